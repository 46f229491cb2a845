"""What speaks against a restart: real sockets and directories."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from pd import preflight
from pd.ports import Port


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_report_155_a_port_that_a_stranger_holds_is_found_with_its_process(family: int, address: str) -> None:
    with socket.create_server((address, 0), family=socket.AddressFamily(family)) as taken:
        number = taken.getsockname()[1]
        asked = Port(number, "decode0", "engine_port", "group_vars/decode.yml:2")
        (problem,) = preflight.strangers([asked])
        assert preflight.strangers([Port(1, "decode0", "engine_port")]) == []
    assert (problem.where, problem.key) == ("group_vars/decode.yml:2", "engine_port")
    assert f"port {number} is held by process {os.getpid()} (" in problem.found
    assert preflight.strangers([asked]) == []


def test_a_port_that_our_own_unit_holds_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_cgroup", lambda _pid: "0::/system.slice/sglang-engine@decode0.service\n")
    with socket.create_server(("127.0.0.1", 0)) as ours:
        assert preflight.strangers([Port(ours.getsockname()[1], "decode0", "engine_port")]) == []


def test_a_stranger_on_another_address_of_our_port_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours listens on one family, theirs on the other: one of the two sockets is not ours."""
    monkeypatch.setattr(preflight, "listening", lambda: [(30001, "1"), (30001, "2")])
    monkeypatch.setattr(preflight, "_owners", lambda _inodes: {"1": 100, "2": 200})
    monkeypatch.setattr(preflight, "_cgroup", lambda pid: "0::/x/sglang-engine@decode0.service" if pid == 200 else "0::/")
    assert len(preflight.strangers([Port(30001, "decode0", "engine_port")])) == 1


def test_a_socket_whose_process_cannot_be_seen_is_no_reason_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "_owners", lambda _inodes: {})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (problem,) = preflight.strangers([Port(taken.getsockname()[1], "decode0", "engine_port")])
    assert "a process that cannot be seen" in problem.found


@pytest.mark.parametrize(
    ("make", "found"),
    [
        pytest.param(lambda _path: None, "is not a directory on the machine", id="nothing there"),
        pytest.param(lambda path: path.mkdir(), "has no config.json", id="an empty directory"),
        pytest.param(lambda path: (path.mkdir(), (path / "config.json").mkdir()), "has no config.json", id="not a file"),
        pytest.param(lambda path: (path.mkdir(), (path / "config.json").touch()), None, id="a model"),
    ],
)
def test_the_model(tmp_path: Path, make: Callable[[Path], object], found: str | None) -> None:
    make(tmp_path / "M")
    problems = preflight.model(tmp_path / "M", "group_vars/all.yml:20")
    assert [problem.where for problem in problems] == (["group_vars/all.yml:20"] if found else [])
    assert all(found in problem.found for problem in problems if found)


def test_a_release_without_its_last_file_is_half_made(tmp_path: Path) -> None:
    (tmp_path / "0123456789" / "engine").mkdir(parents=True)
    (problem,) = preflight.release("0123456789", tmp_path)
    assert "never finished" in problem.found
    (tmp_path / "0123456789" / "release.json").touch()
    assert preflight.release("0123456789", tmp_path) == []


def test_the_kernels_port_range_can_be_read() -> None:
    low, high = map(int, preflight.sysctl("ip_local_port_range").split())
    assert low < high


@pytest.mark.parametrize(
    ("flag", "value", "found"),
    [
        ("tp-size", "4", None),
        ("tp-sise", "4", "tp-size"),
        ("kv-cache-dtype", "fp8_e4m3", None),
        ("kv-cache-dtype", "fp9", "auto or fp8_e4m3"),
    ],
)
def test_a_flag_is_checked_against_the_release(flag: str, value: str, found: str | None, tmp_path: Path) -> None:
    """A misspelt flag ends SGLang with exit 2 (facts 1.2) after router and prefill were stopped; the release's own list is asked before."""
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "flags.json").write_text('{"tp-size": null, "kv-cache-dtype": ["auto", "fp8_e4m3"]}')
    asked = [{"flag": flag, "value": value, "where": "group_vars/decode.yml:7"}]
    assert [problem.fix for problem in preflight.flags(asked, "r1", tmp_path)] == ([found] if found else [])
    assert preflight.flags(asked, "a release of before", tmp_path) == []


def test_stand_ins_are_found_in_the_release(tmp_path: Path) -> None:
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "release.json").write_text('{"packages": {"engine": {"pdstack-lab-standins": "0.1.0"}}}')
    (problem,) = preflight.stand_ins("r1", tmp_path)
    assert "pdstack-lab-standins" in problem.found
    assert preflight.stand_ins("another", tmp_path) == []

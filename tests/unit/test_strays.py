"""Processes that speak against a restart: real sockets, real processes, a real thread in state D."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from pd import strays
from pd.ports import Port
from pd.strays import Process

UNITS = ("sglang-engine@prefill0.service", "sglang-engine@decode0.service")
DECODE = "12:pids:/system.slice/sglang-engine@decode0.service\n0::/system.slice/system-sglang\\x2dengine.slice/sglang-engine@decode0.service\n"


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_report_155_a_port_that_a_stranger_holds_is_found_with_its_process(family: int, address: str) -> None:
    with socket.create_server((address, 0), family=socket.AddressFamily(family)) as taken:
        number = taken.getsockname()[1]
        asked = Port(number, "decode0", "engine_port", "group_vars/decode.yml:2")
        (problem,) = strays.strangers([asked], UNITS)
        assert strays.strangers([Port(1, "decode0", "engine_port")], UNITS) == []
    assert (problem.where, problem.key) == ("group_vars/decode.yml:2", "engine_port")
    assert f"port {number} is held by process {os.getpid()} (" in problem.found
    assert strays.strangers([asked], UNITS) == []


def test_a_port_that_our_own_unit_holds_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "_cgroup", lambda _pid: DECODE)
    with socket.create_server(("127.0.0.1", 0)) as ours:
        assert strays.strangers([Port(ours.getsockname()[1], "decode0", "engine_port")], UNITS) == []


def test_a_stranger_on_another_address_of_our_port_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours listens on one family, theirs on the other: one of the two sockets is not ours."""
    monkeypatch.setattr(strays, "listening", lambda: [(30001, "1"), (30001, "2")])
    monkeypatch.setattr(strays, "_owners", lambda _inodes: {"1": 100, "2": 200})
    monkeypatch.setattr(strays, "_cgroup", lambda pid: "0::/x/sglang-engine@decode0.service\n" if pid == 200 else "0::/")
    assert len(strays.strangers([Port(30001, "decode0", "engine_port")], UNITS)) == 1


def test_a_socket_whose_process_cannot_be_seen_is_no_reason_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "_owners", lambda _inodes: {})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (problem,) = strays.strangers([Port(taken.getsockname()[1], "decode0", "engine_port")], UNITS)
    assert "a process that cannot be seen" in problem.found


def process(cgroup: str, uid: int = 999) -> Process:
    return Process(pid=77, uid=uid, state="S", since="2026-11-30T12:00:00+00:00", cgroup=cgroup, command="sglang::scheduler_TP0")


@pytest.mark.parametrize(
    ("cgroup", "uid", "idle", "found"),
    [
        pytest.param(DECODE, 999, (), "", id="a process of a unit that runs"),
        pytest.param(DECODE.replace("service", "service/sub"), 999, (), "", id="below a unit"),
        pytest.param("0::/user.slice/session-1.scope\n", 999, (), "in no unit of the set", id="of the user, started by hand"),
        pytest.param("0::/user.slice/session-1.scope\n", 0, (), "", id="of another user"),
        pytest.param("0::/system.slice/sglang-engine@old9.service\n", 999, (), "in no unit of the set", id="an instance that left the inventory"),
        pytest.param(DECODE, 999, (UNITS[1],), "a unit that does not run", id="report 071: its unit is dead and it is not"),
        pytest.param("0::/x/not-sglang-engine@decode0.service\n", 999, (), "in no unit of the set", id="a name that only ends alike"),
    ],
)
def test_report_071_what_is_left_over(cgroup: str, uid: int, idle: tuple[str, ...], found: str) -> None:
    problems = strays.left_over([process(cgroup, uid)], 999, UNITS, idle)
    assert [found in problem.found for problem in problems] == ([True] if found else [])
    for problem in problems:
        assert "process 77, since 2026-11-30T12:00:00+00:00: sglang::scheduler_TP0" in problem.found


def test_a_unit_that_left_the_inventory_is_told_by_its_name() -> None:
    (problem,) = strays.left_over([process("0::/system.slice/sglang-engine@old9.service\n")], 999, UNITS, ())
    assert problem.fix == "systemctl disable --now sglang-engine@old9.service, or put its instance back into the inventory"


def test_a_machine_without_the_user_has_no_processes_of_it() -> None:
    assert strays.user_id("nobody-of-this-name") is None
    assert strays.processes(None, ("no-such.service",)) == []


def test_a_process_is_read_with_its_age() -> None:
    """By /proc alone: whose it is, and since when; a zombie is none."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    dead = subprocess.Popen(["true"])
    try:
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        seen = {one.pid: one for one in strays.processes(os.getuid(), ())}
    finally:
        child.kill()
        child.wait()
        dead.wait()
    assert "time.sleep" in seen[child.pid].command
    assert abs(datetime.fromisoformat(seen[child.pid].since).timestamp() - time.time()) < 10
    assert dead.pid not in seen


@pytest.fixture
def in_state_d() -> Iterator[Process]:
    """A process that waits uninterruptibly: the parent of a vfork() whose child does not exec."""
    code = "import ctypes, time; ctypes.CDLL(None).vfork() or time.sleep(60)"
    started = subprocess.Popen([sys.executable, "-c", code], process_group=0)
    deadline = time.monotonic() + 20
    while not list(strays._waiting(started.pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    yield Process(started.pid, os.getuid(), "D", "now", DECODE, "engine")
    os.killpg(started.pid, 9)
    started.wait()


def test_report_110_a_thread_that_the_kernel_does_not_let_go_is_found(in_state_d: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strays, "STUCK_SECONDS", 0.3)
    (problem,) = strays.stuck([in_state_d])
    assert "waits in the kernel (" in problem.found
    assert str(in_state_d.pid) in problem.found
    assert "only a reboot ends it" in problem.fix


@pytest.mark.parametrize(("switches", "found"), [("100", 1), ("101", 0)])
def test_a_thread_that_was_scheduled_meanwhile_is_only_slow(switches: str, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights from a slow disk: in state D whenever it is looked, and further each time."""
    monkeypatch.setattr(strays, "PROC", tmp_path)
    status = tmp_path / "77" / "task" / "78" / "status"
    status.parent.mkdir(parents=True)
    text = "Name:\tx\nState:\tD (disk sleep)\nvoluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t7\n"
    status.write_text(text.format("100"))
    assert len(strays.stuck([process(DECODE)], sleep=lambda _seconds: status.write_text(text.format(switches)))) == found


def test_nobody_waits_when_nothing_is_stuck() -> None:
    def never(_seconds: float) -> None:
        raise AssertionError("it waited")

    assert strays.stuck([process(DECODE)], sleep=never) == []

"""What files and programs say against a restart: real directories, file systems and processes."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pd import preflight
from pd.refusal import MACHINE, REBOOT


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


def test_report_040_a_model_that_lacks_a_file_of_its_index_is_found_before_minutes_of_loading(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").touch()
    (problem,) = preflight.model(tmp_path, "group_vars/all.yml:20")
    assert "lacks 1 of 2 files" in problem.found
    assert "model-2.safetensors first" in problem.found
    (tmp_path / "model-2.safetensors").touch()
    assert preflight.model(tmp_path, "group_vars/all.yml:20") == []


def test_a_full_file_system_is_named_once(tmp_path: Path) -> None:
    """Both directories are on one file system, and neither need exist yet."""
    free = os.statvfs(tmp_path)
    mib = free.f_bavail * free.f_frsize // 2**20
    places = (tmp_path / "not" / "yet", tmp_path / "there")
    (problem,) = preflight.disk(places, mib + 2000)
    assert problem.where == str(tmp_path)
    assert "MiB are free, below pd_disk_floor_mib" in problem.found
    assert preflight.disk(places, 0) == []


@pytest.mark.parametrize(("total", "free", "found"), [(100_000, 1999, True), (100_000, 2000, False), (0, 0, False)])
def test_a_file_system_without_inodes_is_full_too(total: int, free: int, found: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has no fixed number of them, btrfs, reports 0 of 0."""
    real = os.statvfs(tmp_path)
    fake = os.statvfs_result([*real[:5], total, free, free, *real[8:]])
    monkeypatch.setattr(os, "statvfs", lambda _path: fake)
    assert [problem.found for problem in preflight.disk([tmp_path], 0)] == ([f"{free} inodes are free, below 2000"] if found else [])


def a_release(root: Path, python: str, packages: dict[str, str]) -> Path:
    """A release whose venvs have this interpreter and were made with these packages."""
    for venv in ("engine", "router"):
        (root / "r1" / venv / "bin").mkdir(parents=True, exist_ok=True)
        (root / "r1" / venv / "bin" / "python").unlink(missing_ok=True)
        (root / "r1" / venv / "bin" / "python").symlink_to(python)
    (root / "r1" / "release.json").write_text(json.dumps({"packages": {"engine": packages, "router": {}}}))
    return root


@pytest.fixture
def as_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The services' user is that of the test."""
    me = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: me)
    monkeypatch.setattr(preflight, "USER", me.pw_name)


@pytest.mark.usefixtures("as_this_user")
def test_a_release_is_run_before_anything_rests_on_it(tmp_path: Path) -> None:
    """Field report 014: what is installed is what the release was made with, or it is said."""
    version = subprocess.run(
        [sys.executable, "-I", "-c", "import importlib.metadata as m; print(m.version('pytest'))"], capture_output=True, text=True, check=True
    ).stdout.strip()
    good = a_release(tmp_path, sys.executable, {})
    assert preflight.runs("r1", [Path(__file__)], good) == []
    a_release(tmp_path, str(fake_python(tmp_path, {"pytest": version})), {"pytest": version})
    assert preflight.runs("r1", [], tmp_path) == []
    a_release(tmp_path, str(fake_python(tmp_path, {"pytest": version})), {"pytest": "0.1", "nixl": "1.3"})
    (problem,) = preflight.runs("r1", [], tmp_path)
    assert "2 packages are not what it was made with: pytest is" in problem.found
    assert "nixl is absent, was 1.3" in problem.found


def fake_python(folder: Path, packages: dict[str, str]) -> Path:
    """An interpreter that answers the probe with these packages."""
    path = folder / "python"
    path.write_text("#!/bin/sh\necho '" + json.dumps({"unreadable": [], "packages": packages}) + "'\n")
    path.chmod(0o755)
    return path


@pytest.mark.usefixtures("as_this_user")
@pytest.mark.parametrize(
    ("python", "found"),
    [
        ("/nowhere/python", "does not run as user"),
        ("/bin/false", "exit status 1"),
        ("/bin/true", "does not run as user"),
    ],
)
def test_an_interpreter_that_does_not_run_is_found(python: str, found: str, tmp_path: Path) -> None:
    """203/EXEC, a minute after everything was stopped (lab-facts): a python below a closed home, or gone."""
    problems = preflight.runs("r1", [], a_release(tmp_path, python, {}))
    assert len(problems) == 2
    assert all(found in problem.found for problem in problems)


@pytest.mark.usefixtures("as_this_user")
def test_a_model_that_the_user_cannot_read_is_found(tmp_path: Path) -> None:
    (problem,) = preflight.runs("r1", [tmp_path / "config.json"], a_release(tmp_path, sys.executable, {}))
    assert "cannot read it" in problem.found
    assert "config.json: No such file" in problem.where


ANSWERS = {
    "exit 0": (0, 0, ""),
    "echo fine; echo GPU 3 has fallen off the bus; exit 2": (0, 1, "GPU 3 has fallen off the bus"),
    "echo not now >&2; exit 1": (1, 0, "not now"),
    "exit 1": (1, 0, "it printed no reason"),
    "echo what; exit 7": (1, 0, "ended with 7: what"),
    "kill -9 $$": (1, 0, "ended with -9: it printed no reason"),
}


@pytest.mark.parametrize("script", ANSWERS)
def test_the_users_own_checks_decide_by_exit_status(script: str) -> None:
    """Field reports 110, 111: what they know about the hardware is theirs; an odd end is told as what it is, no cause is made up."""
    machine, reboot, said = ANSWERS[script]
    found = preflight.asked_of([f"sh -c '{script}'"])
    assert (len(found[MACHINE]), len(found[REBOOT])) == (machine, reboot)
    assert [problem.found for problem in (*found[MACHINE], *found[REBOOT])] == ([said] if said else [])


@pytest.mark.parametrize(("command", "found"), [("/nowhere/check --all", "did not run"), ("sh -c 'unclosed", "did not run")])
def test_a_check_that_cannot_run_is_a_refusal(command: str, found: str) -> None:
    (problem,) = preflight.asked_of([command])[MACHINE]
    assert problem.where == command
    assert found in problem.found


def test_checks_run_at_once_and_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Field report 110: nvidia-smi that hangs must not hang the run."""
    monkeypatch.setattr(preflight, "PROBE_SECONDS", 0.3)
    start = time.monotonic()
    found = preflight.asked_of(["sleep 20"] * 4)
    assert time.monotonic() - start < 5
    assert [problem.found for problem in found[MACHINE]] == ["gave no answer in 0.3 s"] * 4
    assert found[REBOOT] == []


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

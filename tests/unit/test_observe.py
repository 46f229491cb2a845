"""What systemd, /proc and systemctl's own texts say. Real processes of the test's own; no systemd is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pd import observe

RUNNING = """\
LoadState=loaded
ActiveState=active
SubState=running
Result=success
MainPID=4711
NRestarts=0
InvocationID=5d0b1f0a5e0c4a0b8a35d5b7a1f4c9d2
ControlGroup=/system.slice/system-sglang\\x2dengine.slice/sglang-engine@decode0.service
NeedDaemonReload=no
ExecMainStatus=0
ExecMainCode=0
ExecMainStartTimestamp=Tue 2026-01-06 09:12:44 UTC
ExecMainStartTimestampMonotonic=98500000
DropInPaths=
UnitFileState=enabled
ExecMainExitTimestampMonotonic=0
ActiveExitTimestampMonotonic=97000000
InactiveEnterTimestampMonotonic=98250000
"""
"""`systemctl show` of systemd 252 (Debian 12)."""


def show(**changes: str) -> observe.Unit:
    told = dict(line.split("=", 1) for line in RUNNING.splitlines()) | changes
    return observe.parse_show("u", "".join(f"{key}={value}\n" for key, value in told.items()))


def test_a_running_unit() -> None:
    assert show() == observe.Unit(
        name="u",
        active_state="active",
        sub_state="running",
        result="success",
        main_pid=4711,
        n_restarts=0,
        invocation="5d0b1f0a5e0c4a0b8a35d5b7a1f4c9d2",
        control_group="/system.slice/system-sglang\\x2dengine.slice/sglang-engine@decode0.service",
        need_reload=False,
        exit_status="",
        since="Tue 2026-01-06 09:12:44 UTC",
        started_at=98.5,
        drop_ins=(),
        enabled=True,
        exited_at=0.0,
        left_active_at=97.0,
        ended_at=98.25,
    )


@pytest.mark.parametrize(
    ("changes", "stopped"),
    [
        pytest.param({}, False, id="runs"),
        pytest.param({"exited_at": 200.0, "left_active_at": 200.1}, False, id="died: the process ended first"),
        pytest.param({"exited_at": 200.0, "left_active_at": 190.0}, True, id="a stop was asked for first"),
        pytest.param({"exited_at": 200.0, "left_active_at": 97.0}, False, id="died before it was active; it left active in an earlier life"),
        pytest.param({"exited_at": 200.0, "left_active_at": 190.0, "result": "oom-kill"}, False, id="systemd ended it for want of memory"),
    ],
)
def test_stopped_or_died(changes: dict[str, Any], stopped: bool) -> None:
    assert replace(show(), **changes).was_stopped is stopped


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [("0", "0", ""), ("1", "2", "exit status 2"), ("2", "9", "killed by signal 9"), ("3", "11", "dumped core on signal 11")],
)
def test_how_its_process_ended(code: str, status: str, told: str) -> None:
    assert show(ExecMainCode=code, ExecMainStatus=status).exit_status == told


@pytest.mark.parametrize("text", ["LoadState=not-found\nActiveState=inactive\nSubState=dead\nMainPID=0\n", "LoadState=\n", ""])
def test_a_unit_that_is_not_there(text: str) -> None:
    assert observe.parse_show("u", text).active_state == "absent"


def test_a_unit_that_never_ran() -> None:
    """systemd leaves out, or leaves empty, what never happened."""
    text = "LoadState=loaded\nActiveState=inactive\nSubState=dead\nMainPID=0\nInvocationID=\nExecMainStartTimestamp=\n"
    unit = observe.parse_show("u", text + "ExecMainStartTimestampMonotonic=0\nControlGroup=\nUnitFileState=disabled\n")
    assert (unit.active_state, unit.main_pid, unit.invocation, unit.started_at, unit.enabled) == ("inactive", 0, "", 0.0, False)


def test_drop_ins_and_a_changed_unit_file_are_seen() -> None:
    unit = show(DropInPaths="/etc/systemd/system/u.d/a.conf /run/systemd/system/u.d/b=c.conf", NeedDaemonReload="yes", NRestarts="3")
    assert unit.drop_ins == ("/etc/systemd/system/u.d/a.conf", "/run/systemd/system/u.d/b=c.conf")
    assert (unit.need_reload, unit.n_restarts) == (True, 3)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["sh", "-c", "echo why >&2; exit 3"], r"`sh -c .*` ended with 3: why"),
        (["sh", "-c", "echo on stdout; exit 1"], "ended with 1: on stdout"),
        (["sleep", "5"], r"`sleep 5` gave no answer in 0 s"),
    ],
)
def test_a_command_that_fails_says_what_was_asked(argv: list[str], message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        observe.run(argv, timeout=0.1)


@contextmanager
def process(environ: dict[str, str], code: str = "") -> Iterator[int]:
    """A process with just this environment, which has run `code`."""
    argv = [sys.executable, "-S", "-c", f"{code}\nprint(flush=True)\ninput()"]
    with subprocess.Popen(argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.kill()


ZEROED = """
import ctypes
start, end = (int(n) for n in open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
ctypes.memset(start, 0, end - start)
"""
"""What setproctitle does to the environment area without SPT_NOENV (facts 2.7)."""


def test_the_environment_of_a_process_to_the_byte() -> None:
    with process({"A": "1 2", "B": "x=y\nz", "C": "\udcff"}) as pid:
        assert observe.environ(pid) == {"A": "1 2", "B": "x=y\nz", "C": "\udcff"}


def test_a_process_that_is_gone_or_a_zombie_has_none() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert observe.environ(child.pid) is None
        assert observe.ranks([child.pid], ["A"]) == ()
    assert observe.environ(child.pid) is None
    assert observe.cmdline(child.pid) == ""


def test_a_zombie_of_an_older_kernel_reads_as_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer ones say ESRCH, as above."""
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "environ").touch()
    monkeypatch.setattr(observe, "PROC", tmp_path)
    assert observe.environ(5) is None
    assert observe.ranks([5], ["A"]) == ()


def test_a_process_whose_environment_was_overwritten_is_seen_without_its_knobs() -> None:
    """It is alive, so it may not be passed over as if it had been proven."""
    with process({"A": "1", "PD_GENERATION": "g"}, ZEROED) as pid:
        assert observe.environ(pid) == {}
        (rank,) = observe.ranks([pid], ["A"])
    assert rank.generation is None
    assert rank.wrong({"A": "1"}) == {"A": None}


def test_ranks_show_only_the_names_that_were_asked_for() -> None:
    with process({"A": "1", "HF_TOKEN": "s3cret", "PD_GENERATION": "g"}) as pid:
        (rank,) = observe.ranks([pid], ["A", "B"])
    assert (rank.pid, rank.generation, rank.has) == (pid, "g", {"A": "1"})
    assert "input()" in rank.title
    assert rank.wrong({"A": "1", "B": "2"}) == {"B": None}
    assert rank.wrong({"A": "2"}) == {"A": "1"}


def fake_proc(root: Path, cgroups: dict[int, str]) -> Path:
    for pid, text in cgroups.items():
        (root / str(pid)).mkdir()
        (root / str(pid) / "cgroup").write_text(text)
    (root / "self").mkdir()
    (root / "77").mkdir()
    return root


UNIT = "/system.slice/sglang-engine@decode0.service"
V1 = f"12:cpuset:/\n11:memory:{UNIT}\n1:name=systemd:{UNIT}\n0::{UNIT}\n"


def test_the_processes_of_a_unit_under_either_cgroup_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {
        11: f"0::{UNIT}\n",
        10: V1,
        12: f"0::{UNIT}/workers\n",
        13: f"0::{UNIT}2\n",
        14: "0::/\n",
        15: "0::/system.slice/sglang-engine@prefill0.service\n",
        16: "torn",
    }
    monkeypatch.setattr(observe, "PROC", fake_proc(tmp_path, groups))
    assert observe.cgroup_pids(UNIT) == (10, 11, 12)
    assert observe.cgroup_pids("") == ()


def test_report_006_only_the_present_start_is_read_from_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(argv: list[str]) -> str:
        asked.append(argv)
        return "one\ntwo\n"

    monkeypatch.setattr(observe, "run", run)
    assert observe.journal("u.service", "abc", 5) == ("one", "two")
    assert observe.journal("u.service", "", 5) == ("one", "two")
    assert "_SYSTEMD_INVOCATION_ID=abc" in asked[0]
    assert "u.service" not in asked[0]
    assert asked[1][-2:] == ["--unit", "u.service"]


def test_the_journal_is_read_on_from_a_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    said = iter(["one\ntwo\n-- cursor: s=1;i=2\n", "-- cursor: s=1;i=2\n", ""])

    def run(argv: list[str], **_: object) -> str:
        asked.append(argv)
        return next(said)

    monkeypatch.setattr(observe, "run", run)
    assert observe.journal_after("abc", "") == (("one", "two"), "s=1;i=2")
    assert observe.journal_after("abc", "s=1;i=2") == ((), "s=1;i=2")
    assert observe.journal_after("abc", "s=1;i=2") == ((), "s=1;i=2"), "nothing at all: the cursor stays"
    assert "_SYSTEMD_INVOCATION_ID=abc" in asked[0]
    assert not any("after-cursor" in word for word in asked[0])
    assert "--after-cursor=s=1;i=2" in asked[1]


BURNS = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"


def test_work_is_counted_per_process_and_keeps_what_a_child_did() -> None:
    """A compiler that ended counts on, in the process that waited for it."""
    with process({}, f"import subprocess, sys\nsubprocess.run(['cicc', '-S', '-c', {BURNS!r}], executable=sys.executable)") as pid:
        (used,) = observe.work([pid])
    assert used.name.startswith("python")
    assert used.cpu >= 0.25
    assert used.read > 0
    assert observe.work([pid]) == ()


def test_a_compiler_is_known_by_its_name() -> None:
    argv = ["/usr/local/cuda/bin/cicc", "-S", "-c", "print(flush=True)\ninput()"]
    with subprocess.Popen(argv, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert [one.name for one in observe.work([child.pid])] == ["cicc"]
        child.kill()


def test_a_stack_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    """No py-spy, one that fails, one that hangs: the others are shown all the same."""
    (missing,) = observe.stack([5], tmp_path / "py-spy")
    assert missing.startswith("process 5: no stack: ") and "py-spy" in missing
    spy = tmp_path / "spy"
    spy.write_text('#!/bin/sh\ncase $3 in 1) echo "Thread 1";; 2) echo "no such process" >&2; exit 1;; 3) exec sleep 9;; esac\n')
    spy.chmod(0o755)
    first, second, third = observe.stack([1, 2, 3], spy, seconds=0.5)
    assert first == "Thread 1"
    assert second.startswith("process 2: no stack: ") and second.endswith("ended with 1: no such process")
    assert third.startswith("process 3: no stack: ") and "gave no answer" in third


@pytest.mark.parametrize(("script", "answer"), [("exit 1", ""), ("echo x; exit 0", "x\n")])
def test_a_failure_without_a_word_may_be_an_empty_answer(script: str, answer: str) -> None:
    """journalctl --show-cursor of an engine that has not said anything yet: exit 1, and not a word (seen on systemd 252)."""
    assert observe.run(["sh", "-c", script], may_be_silent=True) == answer


@pytest.mark.parametrize("script", ["exit 1", "echo why >&2; exit 1"])
def test_any_other_failure_is_one(script: str) -> None:
    with pytest.raises(RuntimeError, match="ended with 1"):
        observe.run(["sh", "-c", script], may_be_silent=script != "exit 1")

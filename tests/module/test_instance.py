"""sglang_instance: jobs are queued and never repeated; a run that lost its lock touches nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pd import generation, ledger, lock, node, observe, shm, stopping

from tests.module.loaded import documented, redirect, run

GEN = "0f3c5a9be210"
NEEDS = documented("sglang_instance").module.needs


@pytest.mark.parametrize(
    ("state", "active", "carries", "expected"),
    [
        ("observed", "active", "old", False),
        ("started", "inactive", None, True),
        ("started", "failed", None, True),
        ("started", "absent", None, True),
        ("started", "active", GEN, False),
        ("started", "activating", GEN, False),
        ("started", "active", "old", True),
        ("started", "active", None, True),
        ("started", "deactivating", GEN, True),
        ("stopped", "active", GEN, True),
        ("stopped", "activating", None, True),
        ("stopped", "deactivating", None, True),
        ("stopped", "inactive", None, False),
        ("stopped", "failed", None, False),
        ("stopped", "absent", None, False),
    ],
)
def test_needs(state: str, active: str, carries: str | None, expected: bool) -> None:
    assert NEEDS(state, {"active_state": active, "generation": carries}, GEN) is expected


class Systemd:
    """Answers `systemctl show`, and remembers what it was asked to do."""

    def __init__(self) -> None:
        self.active = "inactive"
        self.enabled = "enabled"
        self.invocation = 1
        self.drains = True
        """Whether it takes its time after a stop, so that only a kill ends it."""
        self.asked: list[list[str]] = []

    def run(self, argv: list[str], timeout: float = 8.0) -> str:
        assert timeout <= 30
        if argv[1] == "show":
            told = {"LoadState": "loaded", "ActiveState": self.active, "MainPID": "0", "InvocationID": str(self.invocation)}
            told["ControlGroup"] = "" if self.active in ("inactive", "failed") else "/u"
            told |= {"UnitFileState": self.enabled, "NRestarts": "0"}
            return "".join(f"{key}={value}\n" for key, value in told.items())
        self.asked.append(argv[1:])
        if argv[1] == "start":
            self.active, self.invocation = "active", 2
        if argv[1] in ("stop", "kill"):
            self.active = "deactivating" if argv[1] == "stop" and self.drains else "failed"
        return ""


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    systemd = Systemd()
    monkeypatch.setattr(observe, "run", systemd.run)
    monkeypatch.setattr(observe, "cgroup_pids", lambda _group: () if systemd.active in ("inactive", "failed") else (7,))
    redirect(monkeypatch, ledger, ledger.PATH, tmp_path / "ledger.jsonl")
    redirect(monkeypatch, lock, lock.PATH, tmp_path / "lock")
    redirect(monkeypatch, node, Path(generation.CURRENT), tmp_path / "current")
    (tmp_path / "current").symlink_to(f"generations/{GEN}")
    lock.write(lock.new("r1", "ada", "", ""))
    return systemd


def instance(state: str, *, check: bool = False, run_id: str = "r1", **more: Any) -> dict[str, Any]:
    return run("sglang_instance", name="decode0", unit="u.service", state=state, run=run_id, check=check, **more)


def test_a_start_is_queued_and_recorded_with_the_process_it_made(systemd: Systemd) -> None:
    told = instance("started")
    assert told["changed"] is True
    assert systemd.asked == [["reset-failed", "u.service"], ["start", "--no-block", "u.service"]]
    (entry,) = ledger.read()
    assert (entry["event"], entry["instance"], entry["run"], entry["generation"], entry["invocation"]) == ("start", "decode0", "r1", GEN, "2")
    assert told["diff"] == {"before": "inactive\n", "after": "active\n"}


def test_a_unit_that_would_not_come_back_after_a_reboot_is_enabled(systemd: Systemd) -> None:
    systemd.enabled = "disabled"
    instance("started")
    assert [argv[0] for argv in systemd.asked] == ["daemon-reload", "enable", "reset-failed", "start"]


STOP, KILL = ["stop", "--no-block", "u.service"], ["kill", "--signal=SIGKILL", "u.service"]


def events() -> list[str]:
    return [entry["event"] for entry in ledger.read()]


def test_what_is_idle_is_killed_right_after_its_stop_is_queued(systemd: Systemd) -> None:
    """In this order: systemd does not start again what dies while its stop is queued."""
    systemd.active = "active"
    told = instance("stopped", grace=0.0)
    assert (told["changed"], told["stopped"], told["cut"]) == (True, True, None)
    assert systemd.asked == [STOP, KILL]
    assert events() == ["stop", "stopped"]


def test_what_a_killed_engine_had_in_shared_memory_is_cleared_when_it_is_gone(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = shm.SHM / "sglang_loads_x"
    cleared: list[tuple[str, frozenset[Path]]] = []

    def clear(had: frozenset[Path]) -> int:
        cleared.append((systemd.active, had))
        return 16384

    monkeypatch.setattr(shm, "used_by", lambda pids: frozenset({segment}) if list(pids) == [7] else frozenset())
    monkeypatch.setattr(shm, "clear", clear)
    systemd.active = "active"
    instance("stopped", grace=0.0)
    assert cleared == [("failed", frozenset({segment}))]
    assert ledger.read()[-1]["shm_freed"] == 16384


def test_a_stop_is_queued_once_and_gone_on_with_by_the_next_call(systemd: Systemd) -> None:
    systemd.active = "active"
    assert instance("stopped", grace=60.0, seconds=0.0)["stopped"] is False
    told = instance("stopped", grace=60.0, seconds=0.0)
    assert (told["changed"], told["stopped"], told["told"]) == (True, False, "u.service is deactivating, 1 processes left")
    assert systemd.asked == [STOP]
    systemd.active = "inactive"
    assert instance("stopped", grace=60.0, seconds=0.0)["stopped"] is True
    assert instance("stopped", grace=60.0, seconds=0.0)["stopped"] is True
    assert events() == ["stop", "stopped"]


def test_its_time_runs_from_the_stop_whoever_calls(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was lost meanwhile gives it no more time."""
    systemd.active = "active"
    instance("stopped", grace=60.0, seconds=0.0)
    later = lock.boottime() + 61
    monkeypatch.setattr(lock, "boottime", lambda: later)
    monkeypatch.setitem(stopping.halt.__kwdefaults__ or {}, "clock", lambda: later)
    told = instance("stopped", grace=60.0, seconds=0.0)
    assert told["stopped"] is True
    assert systemd.asked == [STOP, KILL]
    assert events() == ["stop", "killed", "stopped"]


def test_what_somebody_else_stops_is_waited_for_and_recorded(systemd: Systemd) -> None:
    systemd.active = "deactivating"
    assert instance("stopped", grace=60.0, seconds=0.0)["stopped"] is False
    assert systemd.asked == []
    assert events() == ["stop"]


def test_nothing_to_stop(systemd: Systemd) -> None:
    told = instance("stopped", grace=0.0)
    assert (told["changed"], told["stopped"]) == (False, True)
    assert systemd.asked == []
    assert events() == []


def test_check_mode_and_observing_queue_nothing(systemd: Systemd) -> None:
    assert instance("started", check=True)["changed"] is True
    assert instance("observed")["changed"] is False
    assert systemd.asked == []
    assert ledger.read() == []


@pytest.mark.parametrize("state", ["started", "stopped"])
def test_a_run_whose_lock_was_taken_over_touches_nothing(systemd: Systemd, state: str) -> None:
    systemd.active = "active" if state == "stopped" else "inactive"
    told = instance(state, run_id="r0")
    assert told["failed"]
    assert "held by ada" in told["msg"]
    assert systemd.asked == []

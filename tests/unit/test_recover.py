"""The program on the node, with a systemd and gates that a test scripts: tries, the lock, and what the ledger says of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pd import gating, instances, ledger, lock, node, observe, recover, runs, unattended
from pd.node import Placed

from tests.module.loaded import redirect
from tests.unit.test_gates import UNIT
from tests.unit.test_unattended import BY_ITSELF

GEN = "0f3c5a9be210"
ROLES = {"prefill0": "prefill", "decode0": "decode", "router0": "router"}
MEMBERS = tuple(Placed(name, role, name, "", None, None, {}, {}, GEN) for name, role in ROLES.items())
SETTINGS = recover.Settings(times=2, start_deadline=0.0, settle=0.0)
GATE = {"rung": "working", "why": "w"}


class Set:
    """Three units. `gate` says what the gate of an instance finds, try after try."""

    def __init__(self) -> None:
        self.units = {name: replace(UNIT, name=name, started_at=10.0 + i, invocation=f"i{i}") for i, name in enumerate(ROLES)}
        self.clock = 100.0
        self.gate: Callable[[str], str] = lambda _name: "READY"
        self.did: list[str] = []

    def kill(self, name: str) -> None:
        self.units[name] = replace(self.units[name], **BY_ITSELF)

    def observed(self, name: str, _unit: str) -> dict[str, Any]:
        return {"active_state": self.units[name].active_state, "generation": GEN if self.units[name].runs else None}

    def stopped(self, asked: dict[str, Any], _seen: dict[str, Any]) -> dict[str, Any]:
        self.did.append(f"stop {asked['name']}")
        self.units[asked["name"]] = replace(self.units[asked["name"]], active_state="inactive", ended_at=self.clock)
        ledger.append("stop", {"instance": asked["name"], "run": asked["run"]})
        return {"stopped": True}

    def started(self, asked: dict[str, Any], _seen: dict[str, Any]) -> dict[str, Any]:
        name = asked["name"]
        self.did.append(f"start {name}")
        self.clock += 10
        self.units[name] = replace(UNIT, name=name, started_at=self.clock, ended_at=self.clock - 1, invocation=f"i{self.clock}")
        ledger.append("start", {"instance": name, "run": asked["run"], "main_pid": 100, "n_restarts": 0, "invocation": f"i{self.clock}"})
        return {}

    def look(self, asked: dict[str, Any]) -> dict[str, Any]:
        state = self.gate(asked["name"])
        if state == "DEAD":
            self.kill(asked["name"])
        rung = "alive" if state == "DEAD" else "working"
        return {"verdict": {"state": state, "rung": rung, "why": f"{asked['name']} is {state}"}, "baseline": {}, "phase": "loading"}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Set:
    made = Set()
    redirect(monkeypatch, ledger, ledger.PATH, tmp_path / "ledger.jsonl")
    redirect(monkeypatch, lock, lock.PATH, tmp_path / "lock")
    monkeypatch.setattr(node, "current_id", lambda: GEN)
    monkeypatch.setattr(node, "everyone", lambda _generation: MEMBERS)
    monkeypatch.setattr(observe, "unit", lambda name: made.units[name])
    for name in ("observed", "stopped", "started"):
        monkeypatch.setattr(instances, name, getattr(made, name))
    monkeypatch.setattr(gating, "look", made.look)
    monkeypatch.setattr(gating, "record", lambda _asked, _told: None)
    monkeypatch.setattr(gating, "watch", lambda _asked: {"verdict": {"state": "READY", "why": ""}})
    return made


def ended() -> list[str]:
    return [entry["outcome"] for entry in ledger.read() if entry["event"] == "end"]


AGAIN = ["start prefill0", "start decode0", "start router0"]


def test_nothing_happened_nothing_is_done(machine: Set, capsys: pytest.CaptureFixture[str]) -> None:
    recover.main(SETTINGS)
    assert (machine.did, ledger.read()) == ([], [])
    assert "nothing died" in capsys.readouterr().out


def test_a_death_is_one_transaction_of_systemds(machine: Set) -> None:
    machine.kill("decode0")
    recover.main(SETTINGS)
    assert sorted(machine.did[:2]) == ["stop prefill0", "stop router0"]
    assert machine.did[2:] == AGAIN
    begin, end = (next(e for e in ledger.read() if e["event"] == event) for event in ("begin", "end"))
    assert (begin["who"], begin["why"], begin["boot_id"]) == ("systemd", "decode0 died: killed by signal 9", lock.boot_id())
    assert (end["outcome"], end["why"], end["run"]) == ("done", begin["why"], begin["run"])
    assert lock.read() is None


def test_one_that_dies_while_its_peer_is_gated_is_seen_there(machine: Set) -> None:
    """The gate of prefill waits; decode, started with it, is dead."""

    def gate(name: str) -> str:
        if name == "prefill0" and machine.did.count("start decode0") == 1:
            machine.kill("decode0")
            return "WAIT"
        return "READY"

    machine.gate = gate
    machine.kill("decode0")
    recover.main(replace(SETTINGS, start_deadline=60.0))
    assert ended() == ["failed", "done"]
    assert "decode0 did not stay up" in next(e for e in ledger.read() if e.get("outcome") == "failed")["why"]


def test_a_crash_loop_ends(machine: Set) -> None:
    machine.gate = lambda name: "DEAD" if name == "decode0" else "READY"
    machine.kill("decode0")
    recover.main(SETTINGS)
    assert ended() == ["failed", "failed", "gave up"]
    assert not any(unit.runs for unit in machine.units.values())
    last = ledger.read()[-1]
    assert last["why"] == "decode0 did not reach `working`: decode0 is DEAD; 2 recoveries in 30 min did not help"
    machine.did.clear()
    recover.main(SETTINGS)
    assert machine.did == [], "the set is closed"


def test_one_that_never_gets_ready_is_stopped_with_all_others_and_tried_again(machine: Set) -> None:
    machine.gate = lambda name: "WAIT" if name == "decode0" and machine.did.count("start decode0") == 1 else "READY"
    machine.kill("prefill0")
    recover.main(SETTINGS)
    assert ended() == ["failed", "done"]
    assert machine.did.count("stop decode0") == 2, "the one that outlived prefill, then the one that hung"


def test_a_co_restart_at_work_is_waited_for(machine: Set, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It has stopped the router; when it is over it has started everything anew."""
    lock.write(lock.new("ada", "ada@desk", "a knob", "T"))
    machine.kill("decode0")

    def over(_seconds: float) -> None:
        lock.release("ada")
        for name in ("prefill0", "decode0", "router0"):
            machine.started({"name": name, "run": "ada"}, {})

    monkeypatch.setattr(time, "sleep", over)
    recover.main(SETTINGS)
    assert machine.did == AGAIN
    assert "a co-restart is at work, held by ada@desk since T (a knob)" in capsys.readouterr().out
    assert ended() == []


def test_the_lock_of_a_recovery_that_was_killed_is_taken_over_at_once(machine: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process is gone; there is no lease to wait for. It had started the engines, and they are left to load."""
    run = "here:boot:1:1"
    lock.write(lock.new(run, "systemd", "decode0 died", "T"))
    ledger.append("begin", {"run": run, "who": "systemd", "why": "decode0 died", "boot_id": lock.boot_id()})
    machine.stopped({"name": "router0", "run": run}, {})
    for name in ("prefill0", "decode0"):
        machine.started({"name": name, "run": run}, {})
    machine.did.clear()
    monkeypatch.setattr(runs, "is_dead_here", lambda held: held == run)
    recover.main(SETTINGS)
    assert machine.did == ["start router0"]
    assert ended() == ["abandoned", "done"]
    begun = [e for e in ledger.read() if e["event"] == "begin"][-1]
    assert "was cut off (decode0 died)" in begun["why"]


def test_a_run_that_lost_its_lock_goes_no_further(machine: Set) -> None:
    """Somebody took it over: nothing more is started on behalf of this one, and the end is theirs to write."""

    def gate(_name: str) -> str:
        lock.write(replace(lock.new("ada", "ada@desk", "a knob", "T"), renewed=-1000.0))
        return "WAIT"

    machine.gate = gate
    machine.kill("decode0")
    recovery = recover.Recovery("mine", GEN, replace(SETTINGS, start_deadline=60.0))
    assert recover.take("mine", "decode0 died", GEN) is None
    failed = recover.attempt(recovery, unattended.Todo("recover", "decode0 died", ("router0", "prefill0")))
    assert failed is not None
    assert "does not have the lock any more" in str(failed)
    assert "start router0" not in machine.did
    assert ended() == []



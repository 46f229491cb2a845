"""sglang_watch and sglang_drain: what they record, and when a call ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pd import drain, ledger, lock, node, observe
from pd.drain import Held
from pd.node import Placed
from pd.observe import Unit

from tests.module.loaded import redirect, run
from tests.unit.test_gates import BASE, GEN, UNIT

MEMBERS = tuple(Placed(name, role, name, "", None, None, {}, {}, GEN) for name, role in (("decode0", "decode"), ("router0", "router")))


@pytest.fixture
def units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Unit]:
    """The units of the machine, a ledger in which both were READY just now, and a lock of this run."""
    redirect(monkeypatch, ledger, ledger.PATH, tmp_path / "ledger.jsonl")
    redirect(monkeypatch, lock, lock.PATH, tmp_path / "lock")
    found = {"decode0": UNIT, "router0": UNIT}
    monkeypatch.setattr(observe, "unit", lambda name: found[name])
    monkeypatch.setattr(observe, "journal", lambda _unit, invocation, _lines: (f"last words of {invocation[:2]}",))
    monkeypatch.setattr(node, "api_key", lambda _generation, _name: None)
    monkeypatch.setattr(node, "placed", lambda name, _generation: next(m for m in MEMBERS if m.name == name))
    monkeypatch.setattr(node, "everyone", lambda _generation: MEMBERS)
    lock.write(lock.new("r1", "ada", "", ""))
    process = {"main_pid": BASE.main_pid, "n_restarts": 0, "invocation": BASE.invocation}
    for name, rung in (("decode0", "working"), ("router0", "serving")):
        ledger.append("gate", {"instance": name, "run": "r1", "state": "READY", "rung": rung, **process})
    return found


def watch(**args: Any) -> dict[str, Any]:
    return run("sglang_watch", generation=GEN, run="r1", **args)


def recorded() -> list[dict[str, Any]]:
    return [entry for entry in ledger.read() if entry["event"] in ("settled", "drained")]


@pytest.mark.usefixtures("units")
def test_when_the_window_is_over_the_gates_hold() -> None:
    told = watch(settle=0.0)
    assert told["verdict"]["state"] == "READY"
    assert told["rungs"] == {"decode0": "working", "router0": "serving"}
    (entry,) = recorded()
    assert (entry["state"], entry["instances"]) == ("READY", ["decode0", "router0"])


@pytest.mark.usefixtures("units")
def test_before_that_it_is_waited_and_nothing_recorded() -> None:
    told = watch(settle=60.0, seconds=0.0)
    assert told["verdict"]["state"] == "WAIT"
    assert "s to go" in told["verdict"]["why"]
    assert recorded() == []


def test_another_process_voids_them_at_once(units: dict[str, Unit]) -> None:
    units["decode0"] = replace(UNIT, main_pid=7, invocation="b" * 32, n_restarts=1)
    told = watch(settle=60.0)
    assert told["verdict"]["why"].startswith("decode0 was READY, then was replaced in the settle window")
    assert told["journal"] == ["last words of aa"], "the one that was READY, not the one in its place"
    (entry,) = recorded()
    assert (entry["state"], entry["instance"]) == ("DEAD", "decode0")


def test_check_mode_records_nothing(units: dict[str, Unit]) -> None:
    units["decode0"] = replace(UNIT, active_state="failed")
    assert watch(settle=0.0, check=True)["verdict"]["state"] == "DEAD"
    assert recorded() == []


def drained(monkeypatch: pytest.MonkeyPatch, requests: int | None, **args: Any) -> dict[str, Any]:
    monkeypatch.setattr(drain, "wait", lambda *_: {"decode0": Held("decode", requests, "refused")})
    return run("sglang_drain", names=["decode0"], generation=GEN, run="r1", **args)


@pytest.mark.usefixtures("units")
@pytest.mark.parametrize(
    ("requests", "budget", "state", "cut"),
    [(0, 60.0, "READY", 0), (3, 60.0, "WAIT", 3), (3, 0.0, "READY", 3), (None, 60.0, "READY", 0)],
)
def test_a_drain_ends_empty_or_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch, requests: int | None, budget: float, state: str, cut: int
) -> None:
    told = drained(monkeypatch, requests, budget=budget)
    assert (told["verdict"]["state"], told["cut"]) == (state, cut)
    assert [(e["cut"], e["instances"]) for e in recorded()] == ([(cut, ["decode0"])] if state == "READY" else [])


@pytest.mark.usefixtures("units")
def test_the_time_is_what_the_router_has_left_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.append("stop", {"instance": "router0", "run": "r1"})
    later = lock.boottime() + 100
    monkeypatch.setattr(lock, "boottime", lambda: later)
    assert drained(monkeypatch, 3, budget=120.0)["verdict"]["state"] == "WAIT"
    ledger.append("killed", {"instance": "router0", "run": "r1", "cut": 5})
    told = drained(monkeypatch, 3, budget=99.0, since=later - 2)
    assert (told["verdict"]["state"], told["cut"]) == ("READY", 5), "those three were among the router's five"
    (entry,) = recorded()
    assert entry["seconds"] == 2.0

"""A crash, a restart by hand, a stop by hand: the set serves again, or says that it does not, with nobody there. More: tests/faults."""

from __future__ import annotations

import pytest

from tests.support import crash, double
from tests.support.pairs import UNITS, Pair
from tests.support.project import ledger
from tests.support.recovery import AGAIN, KILL, active, acts, recovered, said, until

pytestmark = pytest.mark.host


@pytest.mark.parametrize(("target", "clients"), [("decode0", 8), ("prefill0", 0)])
def test_a_killed_engine_takes_its_peer_and_the_router_with_it(pair: Pair, target: str, clients: int) -> None:
    """lab-facts row 4, field reports 001, 007, 020: waiting clients are told at once, and the next request is served by a new pair."""
    before, mark = pair.pids(), len(ledger(pair.machine))
    double.script(pair.machine, "decode0", token_seconds=0.05 if clients else 0.0)
    trial = crash.kill(pair, target, clients, patience=30, limit=60)
    entries = recovered(pair, mark)
    peer = {"decode0": "prefill0", "prefill0": "decode0"}[target]
    assert [a for a in acts(entries) if not a.startswith("stop")] == ["begin", *AGAIN]
    assert {a for a in acts(entries) if a.startswith("stop ")} == {"stop router0", f"stop {peer}"}
    assert (entries[0]["who"], entries[0]["why"]) == ("systemd", f"{target} died: killed by signal 9")
    assert trial.running == clients
    assert all(client["saw"] != "served" and client["at"] < 5 for client in trial.clients), trial.clients
    assert trial.served is not None
    assert all(after not in (before[name], "0") for name, after in pair.pids().items())
    done = pair.project.play("verify.yml").ok()
    assert "1 recovery since the last transaction, the last one at" in done.stdout
    assert f"{target} died: killed by signal 9" in done.stdout


def test_a_killed_router_is_started_again_alone(pair: Pair) -> None:
    """It keeps nothing that outlives it; systemd does that by itself, and verify says so."""
    before, mark = pair.pids(), len(ledger(pair.machine))
    trial = crash.kill(pair, "router0", limit=30)
    assert trial.served is not None and trial.served < 10
    after = pair.pids()
    assert after["router0"] not in (before["router0"], "0")
    assert (after["prefill0"], after["decode0"]) == (before["prefill0"], before["decode0"])
    assert ledger(pair.machine)[mark:] == []
    assert "router0: systemd restarted it 1 times" in pair.project.play("verify.yml").ok().stdout


def test_what_an_operator_stopped_stays_stopped(pair: Pair) -> None:
    """Also when its peer then dies: nobody is there to say that the stop is over."""
    mark = len(ledger(pair.machine))
    pair.machine.exec(["systemctl", "stop", UNITS["decode0"]])
    done = pair.project.play("verify.yml")
    assert done.rc != 0
    assert "note  decode0: was stopped by hand and stays so" in done.stdout
    pair.machine.exec(f"{KILL} {UNITS['prefill0']}")
    until(lambda: "decode0 was stopped by hand and stays so" in said(pair), 30)
    assert active(pair) == ["failed", "inactive", "active"]
    assert ledger(pair.machine)[mark:] == []


@pytest.mark.parametrize("target", ["decode0"])
def test_a_restart_by_hand_takes_the_rest_of_the_set_along(pair: Pair, target: str) -> None:
    """Field reports 001, 005: the unit of a restart is the pair. The engine that is loading already is left to it."""
    mark = len(ledger(pair.machine))
    pair.machine.exec(["systemctl", "restart", UNITS[target]])
    anew = pair.pids()[target]
    entries = recovered(pair, mark)
    peer = {"decode0": "prefill0", "prefill0": "decode0"}[target]
    assert entries[0]["why"] == f"{target} was started anew by hand"
    assert {a for a in acts(entries) if a.startswith("stop ")} == {"stop router0", f"stop {peer}"}
    assert [a for a in acts(entries) if a.startswith("start ")] == [f"start {peer}", "start router0"]
    assert "end done" in acts(entries)
    assert pair.pids()[target] == anew
    pair.project.play("verify.yml").ok()

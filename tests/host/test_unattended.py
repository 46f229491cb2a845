"""A crash, an OOM kill, a reboot, a restart by hand: the set serves again, or says that it does not, with nobody there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import crash, double
from tests.support.pairs import Pair
from tests.support.project import ledger

pytestmark = pytest.mark.host
IDLE = "until [ $(systemctl is-active sglang-recover) = inactive ]; do sleep 0.1; done"


def recovered(pair: Pair, mark: int) -> list[dict[str, Any]]:
    """The ledger since `mark`, once nothing is at work any more."""
    pair.machine.exec(IDLE, timeout=90)
    return ledger(pair.machine)[mark:]


def acts(entries: list[dict[str, Any]]) -> list[str]:
    return [f"{e['event']} {e.get('instance', e.get('outcome', ''))}".strip() for e in entries]


AGAIN = ["start prefill0", "start decode0", "gate prefill0", "gate decode0", "start router0", "gate router0", "end done"]


@pytest.mark.parametrize(("target", "clients"), [("decode0", 0), ("decode0", 8), ("prefill0", 0), ("prefill0", 8)])
def test_a_killed_engine_takes_its_peer_and_the_router_with_it(pair: Pair, target: str, clients: int) -> None:
    """lab-facts row 4, field reports 001, 007, 020: waiting clients are told at once, and the next request is served by a new pair."""
    before, mark = pair.pids(), len(ledger(pair.machine))
    double.script(pair.machine, "decode0", token_seconds=0.05 if clients else 0.0)
    trial = crash.kill(pair, target, clients, patience=30, limit=60)
    entries = recovered(pair, mark)
    peer = {"decode0": "prefill0", "prefill0": "decode0"}[target]
    assert acts(entries) == ["begin", "stop router0", f"stop {peer}", *AGAIN]
    assert (entries[0]["who"], entries[0]["why"]) == ("systemd", f"{target} died: killed by signal 9")
    assert trial.running == clients
    assert all(client["saw"] != "served" and client["at"] < 5 for client in trial.clients), trial.clients
    assert trial.served is not None
    assert all(after not in (before[name], "0") for name, after in pair.pids().items())
    done = pair.project.play("verify.yml").ok()
    assert "1 recovery since the last transaction, the last one at" in done.stdout
    assert f"{target} died: killed by signal 9" in done.stdout

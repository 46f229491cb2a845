"""kill -9 on the real engine: what waiting clients are told, and that the set serves again with nobody there. `bench/crash.py` measures it."""

from __future__ import annotations

import pytest

from tests.support import crash
from tests.support.pairs import Pair
from tests.support.project import ledger

pytestmark = pytest.mark.e2e


def test_decode_killed_with_eight_requests_running(real: Pair) -> None:
    """lab-facts row 4: alone, nobody got an error, and the router refused for another minute after decode was healthy again."""
    mark = len(ledger(real.machine))
    trial = crash.kill(real, "decode0", 8)
    assert trial.running == 8
    assert all(client["saw"] != "served" and client["at"] < 5 for client in trial.clients), trial.told()
    real.machine.exec(crash.IDLE, timeout=60)
    entries = ledger(real.machine)[mark:]
    assert (entries[0]["why"], entries[-1].get("outcome")) == ("decode0 died: killed by signal 9", "done")
    starts = [e["seconds"] for e in entries if e["event"] == "gate" and e["instance"] != "router0"]
    assert trial.served is not None and trial.served < max(starts) + 20, "about the start of the slower engine"


def test_prefill_killed_while_nothing_runs(real: Pair) -> None:
    """The decode would hold the dead prefill's ports for up to 300 s (facts 6.2)."""
    before = real.pids()
    assert crash.kill(real, "prefill0").served is not None
    real.machine.exec(crash.IDLE, timeout=60)
    assert all(pid not in (before[name], "0") for name, pid in real.pids().items())


def test_router_killed(real: Pair) -> None:
    """Nothing else is touched."""
    before = real.pids()
    trial = crash.kill(real, "router0")
    assert trial.served is not None and trial.served < 15
    assert {name for name, pid in real.pids().items() if pid == before[name]} == {"prefill0", "decode0"}
    real.project.play("verify.yml").ok()

"""After the last gate: an engine that dies, or is replaced, voids what its gate said."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support import double
from tests.support.pairs import Pair
from tests.support.project import ledger

pytestmark = pytest.mark.host


def test_report_002_prefill_dies_after_decode_came_back(pair: Pair) -> None:
    """Both were READY and the router served; 4 s after decode connected the prefill dies. Such a pair is not good."""
    mark = len(ledger(pair.machine))
    double.script(pair.machine, "prefill0", die_at={"phase": "handshake", "after_s": 4, "signal": "SIGSEGV"})
    done = pair.project.play("restart-pd.yml", pd_settle=15)
    assert done.rc != 0
    told = "\n".join(done.failures())
    assert "prefill0 was READY, then died in the settle window" in told and "signal 11" in told
    entries = ledger(pair.machine)[mark:]
    entries = [e for e in entries if e.get("run") == entries[0]["run"]]  # afterwards a recovery brings the set up again
    (settled,) = [e for e in entries if e["event"] == "settled"]
    assert (settled["state"], settled["instance"]) == ("DEAD", "prefill0")
    assert [e["instance"] for e in entries if e["event"] == "gate" and e["state"] == "READY"] == ["prefill0", "decode0", "router0"]
    assert not [e for e in entries if e["event"] == "good"]


def test_report_020_an_engine_that_died_is_not_served_with(pair: Pair) -> None:
    """decode is killed when the router starts: the router's gate says so at once, its deadline is not waited for."""
    killed: list[float] = []

    def handler(event: dict[str, Any]) -> bool:
        item = ((event.get("event_data") or {}).get("res") or {}).get("item")
        if not killed and event["event"] == "runner_item_on_ok" and isinstance(item, dict) and item.get("text") == "start router0":
            pair.machine.exec(["kill", "-KILL", pair.pids()["decode0"]])
            killed.append(time.monotonic())
        return True

    done = pair.project.watch("restart-pd.yml", handler, pd_serve_deadline=200)
    assert done.rc != 0 and killed
    assert time.monotonic() - killed[0] < 100
    assert "decode0 was READY, then died in the settle window" in "\n".join(done.failures())

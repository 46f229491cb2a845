"""What a restart will cost, out of the ledger."""

from __future__ import annotations

from typing import Any

import pytest
from pd import forecast, plan
from pd.forecast import Usual
from pd.plan import Seen

NAMES = ("prefill0", "decode0", "router0")
OLD = dict.fromkeys(NAMES, Seen("active", "old"))


MEDIANS = {
    **{"stop router0": 1, "stop prefill0": 2, "stop decode0": 3, "drain prefill0, decode0": 5},
    **{"start prefill0": 20, "start decode0": 22, "start router0": 4},
}
HISTORY = {step: Usual(median, median, median, 3) for step, median in MEDIANS.items()}


def made(strategy: plan.Strategy) -> plan.Plan:
    return plan.plan(OLD, "new", False, NAMES[:2], NAMES[2:], strategy=strategy)


@pytest.mark.parametrize(("strategy", "seconds"), [("ordered", 57), ("overlapped", 37)])
def test_the_outage_is_the_sum_or_the_slower_engine(strategy: plan.Strategy, seconds: float) -> None:
    assert forecast.outage(made(strategy), HISTORY, strategy) == seconds
    assert forecast.told(made(strategy), HISTORY, strategy)[-1] == f"  expected outage: {seconds} s"


def test_without_history_nothing_is_made_up() -> None:
    short = {step: known for step, known in HISTORY.items() if step != "start decode0"}
    assert forecast.outage(made("ordered"), short, "ordered") is None
    told = forecast.told(made("ordered"), short, "ordered")
    assert "  start decode0            no history" in told
    assert "unknown" in told[-1]


def test_nothing_to_restart_costs_nothing() -> None:
    still = plan.plan(dict.fromkeys(NAMES, Seen("active", "new")), "new", True, NAMES[:2], NAMES[2:])
    assert forecast.told(still, HISTORY, "ordered") == []
    assert forecast.outage(still, HISTORY, "ordered") is None


def entry(event: str, second: int, **more: Any) -> dict[str, Any]:
    return {"ts": f"2026-11-30T12:00:{second:02d}.000+00:00", "event": event, "instance": "decode0", **more}


def test_history_is_what_the_ledger_saw() -> None:
    entries = [
        entry("stop", 0),
        entry("stopped", 4),
        entry("gate", 9, started=True, state="READY", seconds=22.5),
        entry("gate", 9, started=False, state="READY", seconds=9000.0),
        entry("gate", 9, started=True, state="DEAD"),
        entry("stop", 20),
        entry("stopped", 18),
        entry("stop", 30),
        entry("stopped", 32),
    ]
    assert forecast.history(entries) == {"stop decode0": Usual(3.0, 2.0, 4.0, 2), "start decode0": Usual(22.5, 22.5, 22.5, 1)}


def test_a_stepped_clock_does_not_lie() -> None:
    """`boot` counts where both entries have it; a reboot between them leaves nothing to count."""
    stepped = [entry("stop", 0, boot=100.0), entry("stopped", 59, boot=104.5)]
    assert forecast.history(stepped)["stop decode0"].median == 4.5
    assert forecast.history([entry("stop", 0, boot=100.0), entry("stopped", 30, boot=12.0)]) == {}
    assert forecast.history([entry("stop", 0), entry("stopped", 30, boot=12.0)])["stop decode0"].median == 30.0


def test_a_drain_is_a_step_with_a_history_of_its_own() -> None:
    drained = [{"event": "drained", "instances": ["prefill0", "decode0"], "seconds": s, "cut": 0} for s in (0.5, 40.0, 0.7)]
    assert forecast.history(drained) == {"drain prefill0, decode0": Usual(0.7, 0.5, 40.0, 3)}


def test_one_slow_start_does_not_shift_it() -> None:
    entries = [entry("gate", 0, started=True, state="READY", seconds=s) for s in (20.0, 90.0, 22.0)]
    assert forecast.history(entries)["start decode0"].median == 22.0


def test_only_the_last_runs_count() -> None:
    entries = [entry("gate", 0, started=True, state="READY", seconds=float(s)) for s in range(1, 31)]
    assert forecast.history(entries)["start decode0"] == Usual(25.5, 21.0, 30.0, 10)

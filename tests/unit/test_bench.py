"""The bench's arithmetic: what it counts as an outage, as overhead, as a ratio, and what it refuses to count."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from bench import figures, table


def entry(at: float, event: str, instance: str = "", **fields: Any) -> dict[str, Any]:
    return {"ts": datetime.fromtimestamp(at, UTC).isoformat(), "event": event, "instance": instance, **fields}


def gated(at: float, instance: str, until: str = "working", state: str = "READY") -> dict[str, Any]:
    return entry(at, "gate", instance, until=until, state=state)


def up(at: float, instance: str, own: float) -> dict[str, Any]:
    return {"unit": f"sglang-engine@{instance}", "serves": True, "at": at, "own": own}


def down(at: float, instance: str) -> dict[str, Any]:
    return {"unit": f"sglang-engine@{instance}", "serves": False, "at": at, "own": None}


ENTRIES = [
    entry(100, "begin"),
    entry(101, "stop", "router0"),
    entry(104, "start", "prefill0"),
    gated(124.3, "prefill0"),
    entry(125, "start", "decode0"),
    gated(147.1, "decode0"),
    entry(148, "start", "router0"),
    gated(150, "router0", "serving"),
]
SEEN = [up(50, "prefill0", 9), down(103, "prefill0"), up(50, "decode0", 9), up(124, "prefill0", 20), down(124.9, "decode0"), up(147, "decode0", 22)]


def answer(sent: float, ended: float, wrong: str = "") -> dict[str, Any]:
    return {"sent": sent, "ended": ended, "wrong": wrong}


ASKED = [
    *[answer(100 + i / 10, 100.02 + i / 10) for i in range(11)],
    *[answer(101.1 + i / 10, 101.1 + i / 10, "ConnectionRefusedError") for i in range(480)],
    answer(149.1, 149.9, "HTTP 503"),
    *[answer(149.9 + i / 10, 150.1 + i / 10) for i in range(10)],
]


def test_overhead_is_from_the_first_token_to_ready_and_a_poll_every_5_s_pays_more() -> None:
    prefill, decode = figures.starts(ENTRIES, SEEN)
    assert (prefill.instance, prefill.own) == ("prefill0", 20) and prefill.overhead == pytest.approx(0.3, abs=1e-3)
    assert decode.overhead == pytest.approx(0.1, abs=1e-3)
    assert prefill.polled == pytest.approx(0, abs=1e-3) and decode.polled == pytest.approx(3, abs=1e-3), "served at 20 s and 22 s"
    told = figures.gates([prefill, decode])
    assert told["overhead"]["median"] == pytest.approx(0.2, abs=1e-3) and told["overhead"]["n"] == 2


def test_a_start_that_the_watcher_missed_or_the_gate_refused_is_not_left_out() -> None:
    with pytest.raises(ValueError, match="did not see decode0 serve"):
        figures.starts(ENTRIES, SEEN[:4])
    with pytest.raises(ValueError, match="prefill0 was not READY"):
        figures.starts([*ENTRIES[:3], gated(110, "prefill0", state="DEAD")], SEEN)


def test_the_clients_outage_is_between_right_answers() -> None:
    lost = figures.outage(ASKED)
    assert lost.down == pytest.approx(101.02) and lost.up == pytest.approx(150.1)
    assert lost.wrong == {"ConnectionRefusedError": 480, "HTTP 503": 1}
    with pytest.raises(ValueError, match="no outage"):
        figures.outage(ASKED[:11])


def test_a_pause_without_a_wrong_answer_is_no_outage() -> None:
    """Nothing was asked, or nothing had ended: that is not what a client would call down."""
    asked = [answer(0, 1), answer(100, 101), answer(101.05, 101.1, "HTTP 503"), answer(101.5, 102)]
    assert figures.outage(asked).seconds == pytest.approx(1)


@pytest.mark.parametrize(("strategy", "expected"), [("ordered", 49.08 / 42), ("overlapped", 49.08 / 22)])
def test_the_ratio_is_over_the_sum_or_the_slower_start(strategy: str, expected: float) -> None:
    row = figures.restart(strategy, ENTRIES, SEEN, ASKED)
    assert row["ratio"] == pytest.approx(expected, abs=2e-3)
    assert row["outage_by_the_ledger"] == pytest.approx(49) and row["own"] == {"prefill0": 20, "decode0": 22}
    assert row["steps"][1] == {"at": 0, "event": "stop", "instance": "router0"}


def test_no_measurement_is_no_figure() -> None:
    with pytest.raises(ValueError, match="nothing was measured"):
        figures.spread([])


def test_the_table_says_figure_spread_bound_and_command() -> None:
    rows = [figures.restart(strategy, ENTRIES, SEEN, ASKED) for strategy in ("ordered", "overlapped")]
    results: dict[str, Any] = {
        "outage": {
            **{"command": "python -m bench.restart outage", "date": "2026-11-30T20:00:00+00:00", "revision": "abc"},
            **{"machine": {"cores": 2, "memory_gib": 23.5, "gpu": None}, "versions": {"sglang": "0.5.23"}, "rows": rows},
            **{row["strategy"]: {key: vars(figures.spread([row[key]])) for key in ("outage", "ratio")} for row in rows},
        }
    }
    trial = {"pair": "ours", "killed": "decode0", "running": 8, "first_served_after_s": 40.25, "last_client_was_told_after_s": 1.5}
    plain = {**trial, "pair": "plain", "first_served_after_s": None}
    crash = {"command": "python -m bench.crash", "when": "2026-11-30", "cores": 2, "engine": "sglang 0.5.23", "trials": [trial, plain]}
    text = table.markdown(results | {"crash": crash})
    assert "first served (ours) | 40.2 s; its 8 clients had an answer or an error after 1.5 s | reported |" in text
    assert "pair) | not within the limit; its 8" in text
    assert "| the same over the sum of own starts | 1.17 (1.17 to 1.17, n=1) | ≤ 1.15 | `python -m bench.restart outage` |" in text
    assert "2 cores, 23.5 GiB, no GPU; sglang 0.5.23; revision abc" in text


def test_the_figures_in_the_docs_are_the_committed_ones() -> None:
    """Nothing is typed by hand: `python -m bench.table` printed it."""
    assert table.markdown(table.read()) in (table.RESULTS.parent.parent / "docs" / "figures.md").read_text()

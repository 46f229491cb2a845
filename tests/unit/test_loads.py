"""The load report of an engine: read before any latency is judged."""

from __future__ import annotations

from typing import Any

import pytest
from pd import loads

DECODE = {
    "timestamp": 1_700_000_000.5,
    "num_running_reqs": 53,
    "num_waiting_reqs": 0,
    "disaggregation": {"decode_prealloc_queue_reqs": 4, "decode_transfer_queue_reqs": 1, "prefill_bootstrap_queue_reqs": None},
}
PREFILL = {
    "timestamp": 1_700_000_000.0,
    "num_running_reqs": 0,
    "disaggregation": {"prefill_bootstrap_queue_reqs": 6, "prefill_inflight_queue_reqs": 4},
}


@pytest.mark.parametrize(
    ("body", "summary", "told"),
    [
        pytest.param(
            {"loads": [DECODE]},
            {"running": 53, "waiting": 0, "decode_prealloc_queue_reqs": 4, "decode_transfer_queue_reqs": 1},
            "53 running, 4 decode prealloc queue, 1 decode transfer queue",
            id="the probe that took 17.9 s",
        ),
        pytest.param(
            {"loads": [PREFILL]},
            {"running": 0, "prefill_bootstrap_queue_reqs": 6, "prefill_inflight_queue_reqs": 4},
            "6 prefill bootstrap queue, 4 prefill inflight queue",
            id="report 031: a prefill always reports zero running, it is its queues that say it is busy",
        ),
        pytest.param({"loads": [{"num_running_reqs": 2}, {"num_running_reqs": 3}]}, {"running": 5}, "5 running", id="two ranks"),
        pytest.param({"loads": [{"num_running_reqs": 0}]}, {"running": 0}, "idle", id="idle"),
        pytest.param([{"num_running_reqs": 1}], {"running": 1}, "1 running", id="a bare list"),
        pytest.param({"loads": []}, {}, "unknown", id="no rank reported"),
        pytest.param({"loads": [{"disaggregation": None}]}, {}, "unknown", id="a row without numbers"),
        pytest.param("error", {}, "unknown", id="text"),
        pytest.param(None, {}, "unknown", id="nothing"),
        pytest.param({"loads": [None, 5]}, {}, "unknown", id="junk"),
    ],
)
def test_summary(body: Any, summary: dict[str, int], told: str) -> None:
    assert loads.summary(body) == summary
    assert loads.told(loads.summary(body)) == told


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        (1_700_000_000.5, (1_700_000_000.5,)),
        (1_700_000_000, (1_700_000_000.0,)),
        ("2023-11-14T22:13:20+00:00", (1_700_000_000.0,)),
        ("2023-11-14T22:13:20Z", (1_700_000_000.0,)),
        ("soon", ()),
        (None, ()),
    ],
)
def test_stamps(stamp: Any, expected: tuple[float, ...]) -> None:
    assert loads.stamps({"loads": [{"timestamp": stamp}]}) == expected

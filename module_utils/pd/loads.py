"""`/v1/loads`: what an engine is doing, read before any latency is judged (facts 3). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

PD_QUEUES = (
    "prefill_bootstrap_queue_reqs",
    "prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
)


def rows(body: Any) -> tuple[Mapping[str, Any], ...]:
    """One row a data-parallel rank; nothing when the body is no load report."""
    loads = body.get("loads") if isinstance(body, dict) else body
    return tuple(row for row in loads if isinstance(row, dict)) if isinstance(loads, list) else ()


def stamps(body: Any) -> tuple[float, ...]:
    """When each rank published its row, seconds since the epoch."""
    return tuple(stamp for row in rows(body) if (stamp := _epoch(row.get("timestamp"))) is not None)


def _epoch(value: Any) -> float | None:
    if isinstance(value, int | float):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None


def summary(body: Any) -> dict[str, int]:
    """running, waiting and the four PD queues, summed over the ranks. A key the engine does not report is left out."""
    found: dict[str, int] = {}
    for row in rows(body):
        disaggregation = row.get("disaggregation") or {}
        counted = {"running": row.get("num_running_reqs"), "waiting": row.get("num_waiting_reqs")}
        counted |= {queue: disaggregation.get(queue) for queue in PD_QUEUES}
        for key, value in counted.items():
            if isinstance(value, int):
                found[key] = found.get(key, 0) + value
    return found


def told(load: Mapping[str, int]) -> str:
    """The load in words; zeros are left out because at 3 a.m. only what is there matters."""
    there = [f"{value} {key.replace('_reqs', '').replace('_', ' ')}" for key, value in load.items() if value]
    return ", ".join(there) if there else ("idle" if load else "unknown")

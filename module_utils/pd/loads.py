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
INFLIGHT = "prefill_inflight_queue_reqs"


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


def in_flight(body: Any) -> int | None:
    """The requests an engine holds, whatever queue they stand in; None when the body is no load report.

    SGLang 0.5.23 counts three of the PD queues and the retracted ones as waiting too (srt/managers/scheduler_components/load_inquirer.py),
    but neither a prefill's transfers nor requests that wait for their grammar.
    """
    reported = rows(body)
    return sum(_held(row) for row in reported) if reported else None


def _held(row: Mapping[str, Any]) -> int:
    queues = row.get("disaggregation") or {}
    waiting = sum(_count(queues, key) for key in PD_QUEUES if key != INFLIGHT) + _count(queues, "decode_retracted_queue_reqs")
    waiting = max(waiting, _count(row, "num_waiting_reqs"))
    return _count(row, "num_running_reqs") + waiting + _count(queues, INFLIGHT) + _count(row.get("queues") or {}, "grammar")


def _count(counts: Mapping[str, Any], key: str) -> int:
    value = counts.get(key)
    return value if isinstance(value, int) else 0


def told(load: Mapping[str, int]) -> str:
    """The load in words; zeros are left out because at 3 a.m. only what is there matters."""
    there = [f"{value} {key.replace('_reqs', '').replace('_', ' ')}" for key, value in load.items() if value]
    return ", ".join(there) if there else ("idle" if load else "unknown")

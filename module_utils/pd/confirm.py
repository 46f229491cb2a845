"""Whether a restart must be agreed to, because of what it would cut (`pd_confirm_over_running`). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .loads import INFLIGHT, PD_QUEUES
from .patience import took

Load = Mapping[str, Mapping[str, int]]


def requests(load: Load, prefill: Collection[str], decode: Collection[str]) -> int | None:
    """How many requests are in flight: running, waiting and queued. None where an engine's load could not be read.

    A request is at a prefill and at a decode at once, and active in the router meanwhile, so the three are not added up:
    it is the most that any of them knows of. A prefill reports 0 running whatever it does; its queues tell (report 031).
    """
    if not load or any(not counts for name, counts in load.items() if name in (*prefill, *decode)):
        return None
    engines = [sum(_held(load.get(name, {})) for name in role) for role in (prefill, decode)]
    active = sum(counts.get("active", 0) for counts in load.values())
    return max(*engines, active)


def _held(counts: Mapping[str, int]) -> int:
    """What one engine holds. SGLang counts the queues as waiting too, but for a prefill's transfers (`loads.in_flight`)."""
    queued = sum(counts.get(queue, 0) for queue in PD_QUEUES if queue != INFLIGHT)
    return counts.get("running", 0) + max(counts.get("waiting", 0), queued) + counts.get(INFLIGHT, 0)


def limit(given: object) -> int:
    """`pd_confirm_over_running` as a number; -e gives text. Raises ValueError that says what to write."""
    try:
        number = int(str(given))
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"pd_confirm_over_running: found {given!r}; write a number of requests, or 0 to never be asked")
    return number


def question(count: int | None, over: int, outage: float | None, restarts: Collection[str]) -> str | None:
    """What is asked before it goes on; None when nothing is: it is not wanted, nothing restarts, or no more than `over` run.

    A load that cannot be read asks nothing: what does not answer may be the very thing that is to be restarted.
    """
    if not over or not restarts or count is None or count <= over:
        return None
    takes = f"about {took(outage)}" if outage is not None else "an unknown time, the ledger has no such run yet"
    return f"{count} requests are in flight, more than pd_confirm_over_running ({over}). Restarting {', '.join(restarts)} stops service for {takes}."


def refusal(asked: str, count: int) -> str:
    """The end of a run that could not ask."""
    return f"{asked} Nothing was stopped. There is no terminal to ask at; to go on: -e pd_confirm_over_running={count} (or 0: never ask)"

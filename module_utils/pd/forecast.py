"""What a plan will cost, out of the ledger's own history: said before anything is stopped. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from .ledger import Entry
from .patience import took
from .plan import Plan, Strategy


@dataclass(frozen=True)
class Usual:
    """How long one step took the last times, in seconds."""

    median: float
    low: float
    high: float
    times: int

    def __str__(self) -> str:
        return f"usually {took(self.median)} ({took(self.low)} to {took(self.high)}, {self.times} times)"


def history(entries: Iterable[Entry], last: int = 10) -> dict[str, Usual]:
    """`start prefill0` -> seconds from start to READY; `stop prefill0` -> seconds until its last process was gone.

    Only starts that a transaction made and whose gate passed count. A pair of stamps across a clock step backwards is dropped.
    """
    found: dict[str, list[float]] = {}
    stopping: dict[str, str] = {}
    for entry in entries:
        name, event = str(entry.get("instance")), entry.get("event")
        if event == "gate" and entry.get("started") and entry.get("state") == "READY" and entry.get("seconds"):
            found.setdefault(f"start {name}", []).append(float(entry["seconds"]))
        elif event == "stop":
            stopping[name] = entry["ts"]
        elif event == "stopped" and name in stopping:
            seconds = _between(stopping.pop(name), entry["ts"])
            if seconds >= 0:
                found.setdefault(f"stop {name}", []).append(seconds)
    return {step: _usual(seconds[-last:]) for step, seconds in found.items()}


def _between(earlier: str, later: str) -> float:
    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def _usual(seconds: Sequence[float]) -> Usual:
    return Usual(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


def outage(made: Plan, usual: Mapping[str, Usual], strategy: Strategy) -> float | None:
    """Seconds from the first stop to the router's answer, by the medians; None when a step has no history.

    Engines that load at once cost as much as the slowest of them.
    """
    steps = [str(s) for s in made.steps if s.action in ("stop", "start")]
    if not steps or any(step not in usual for step in steps):
        return None
    seconds = {step: usual[step].median for step in steps}
    if strategy == "ordered":
        return sum(seconds.values())
    gated = {s.instance for s in made.steps if s.until == "working"}
    together = [seconds[f"start {name}"] for name in gated if f"start {name}" in seconds]
    return sum(seconds.values()) - sum(together) + max(together, default=0.0)


def told(made: Plan, usual: Mapping[str, Usual], strategy: Strategy) -> list[str]:
    """The forecast for a person, nothing when nothing restarts."""
    if not made.restarts:
        return []
    steps = [f"  {step!s:<20} {usual.get(str(step), 'no history')}" for step in made.steps if step.action in ("stop", "start")]
    expected = outage(made, usual, strategy)
    return [*steps, f"  expected outage: {took(expected)}" if expected is not None else "  expected outage: unknown, the ledger has no such run yet"]

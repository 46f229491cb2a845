"""What a plan will cost, out of the ledger's own history: said before anything is stopped. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from .ledger import Entry
from .patience import took
from .plan import Plan, Strategy

COSTLY = ("stop", "drain", "start")
"""What an outage is made of. A gate's time is in the start it is for; while the pair is watched it serves."""


@dataclass(frozen=True)
class Usual:
    """How long one step took the last times, in seconds."""

    median: float
    low: float
    high: float
    times: int

    def __str__(self) -> str:
        if self.times == 1:
            return f"{took(self.median)} the last time"
        return f"usually {took(self.median)} ({took(self.low)} to {took(self.high)}, {self.times} times)"


def history(entries: Iterable[Entry], last: int = 10) -> dict[str, Usual]:
    """`start prefill0` -> seconds from start to READY; `stop prefill0` -> until its last process was gone; `drain prefill0, decode0`.

    Only starts that a transaction made and whose gate passed count. A pair of stamps that a reboot lies between is dropped.
    """
    found: dict[str, list[float]] = {}
    stopping: dict[str, Entry] = {}
    for entry in entries:
        name, event = str(entry.get("instance")), entry.get("event")
        if event == "gate" and entry.get("started") and entry.get("state") == "READY" and entry.get("seconds"):
            found.setdefault(f"start {name}", []).append(float(entry["seconds"]))
        elif event == "stop":
            stopping[name] = entry
        elif event == "drained":
            found.setdefault(f"drain {', '.join(entry['instances'])}", []).append(float(entry["seconds"]))
        elif event == "stopped" and name in stopping:
            seconds = _between(stopping.pop(name), entry)
            if seconds >= 0:
                found.setdefault(f"stop {name}", []).append(seconds)
    return {step: _usual(seconds[-last:]) for step, seconds in found.items()}


def _between(earlier: Entry, later: Entry) -> float:
    """Seconds on the clock that nobody sets, where both entries have it; negative across a reboot."""
    if "boot" in earlier and "boot" in later:
        return float(later["boot"]) - float(earlier["boot"])
    return (datetime.fromisoformat(later["ts"]) - datetime.fromisoformat(earlier["ts"])).total_seconds()


def _usual(seconds: Sequence[float]) -> Usual:
    return Usual(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


def outage(made: Plan, usual: Mapping[str, Usual], strategy: Strategy) -> float | None:
    """Seconds from the first stop to the router's answer, by the medians; None when a step has no history.

    Engines that load at once cost as much as the slowest of them.
    """
    steps = [str(s) for s in made.steps if s.action in COSTLY]
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
    steps = [f"  {step!s:<24} {usual.get(str(step), 'no history')}" for step in made.steps if step.action in COSTLY]
    expected = outage(made, usual, strategy)
    return [*steps, f"  expected outage: {took(expected)}" if expected is not None else "  expected outage: unknown, the ledger has no such run yet"]

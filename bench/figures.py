"""From what was seen to figures: gate overhead, outages, ratios. Pure.

Times are wall-clock seconds of the one machine that everything ran on.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

Told = Mapping[str, Any]
OLD_POLL = 5.0
"""The procedure before this one looked every 5 s, from the start on."""


@dataclass(frozen=True)
class Spread:
    """Some seconds or ratios, as they lie: `values` in the order they were measured."""

    median: float
    low: float
    high: float
    n: int
    values: tuple[float, ...]


def spread(values: Iterable[float]) -> Spread:
    """Raises ValueError for none: a figure without a measurement is not one."""
    found = tuple(round(value, 3) for value in values)
    if not found:
        raise ValueError("nothing was measured")
    return Spread(round(statistics.median(found), 3), min(found), max(found), len(found), found)


def instant(entry: Told) -> float:
    """When a ledger entry was written, seconds since the epoch."""
    return datetime.fromisoformat(str(entry["ts"])).timestamp()


@dataclass(frozen=True)
class Start:
    """One start of an engine: the process's first token as the watcher saw it, and the gate's READY, seconds after the start was queued."""

    instance: str
    own: float
    served: float
    ready: float

    @property
    def overhead(self) -> float:
        """From the first token to READY. Below 0 when the gate's own token was the first."""
        return self.ready - self.served

    @property
    def polled(self) -> float:
        """The same for a procedure that looks every 5 s."""
        return math.ceil(self.served / OLD_POLL) * OLD_POLL - self.served


def starts(entries: Sequence[Told], seen: Sequence[Told]) -> list[Start]:
    """Every start of an engine that a run made and gated, with what the watcher saw of it.

    Raises ValueError when the watcher missed one: leaving it out would flatter the figure.
    """
    found: list[Start] = []
    queued: dict[str, float] = {}
    for entry in entries:
        name = str(entry.get("instance"))
        if entry["event"] == "start":
            queued[name] = instant(entry)
        elif entry["event"] == "gate" and entry["until"] == "working" and name in queued:
            if entry["state"] != "READY":
                raise ValueError(f"{name} was not READY: {entry.get('why')}")
            began = queued.pop(name)
            up = next((one for one in seen if one["unit"].endswith(f"@{name}") and one["serves"] and one["at"] > began), None)
            if up is None:
                raise ValueError(f"the watcher did not see {name} serve after {began}")
            found.append(Start(name, up["own"], up["at"] - began, instant(entry) - began))
    return found


@dataclass(frozen=True)
class Outage:
    """From the end of the last right answer before to the end of the first right answer after, and how many requests went wrong."""

    down: float
    up: float
    wrong: Mapping[str, int]

    @property
    def seconds(self) -> float:
        """The client's outage: up to one period of its asking (0.1 s) longer than the router's."""
        return self.up - self.down


def outage(asked: Sequence[Told]) -> Outage:
    """The longest stretch without a right answer in which at least one request went wrong. Raises ValueError where there is none."""
    right = sorted((one for one in asked if not one["wrong"]), key=lambda one: float(one["ended"]))
    best: Outage | None = None
    for before, after in itertools.pairwise(right):
        failed = [one for one in asked if one["wrong"] and before["ended"] <= one["ended"] and one["sent"] <= after["ended"]]
        if failed and (best is None or after["ended"] - before["ended"] > best.seconds):
            kinds = [str(one["wrong"]) for one in failed]
            best = Outage(before["ended"], after["ended"], {kind: kinds.count(kind) for kind in sorted(set(kinds))})
    if best is None:
        raise ValueError(f"no outage among {len(asked)} answers, {len(right)} of them right")
    return best


def ratio(strategy: str, seconds: float, own: Sequence[float]) -> float:
    """The outage over what no procedure can remove: the engines' own starts, one after the other or the slower one."""
    return seconds / (sum(own) if strategy == "ordered" else max(own))


def restart(strategy: str, entries: Sequence[Told], seen: Sequence[Told], asked: Sequence[Told]) -> dict[str, Any]:
    """One co-restart as a row: the engines' starts, the client's outage, their ratio, and the ledger's own view of the outage."""
    made = starts(entries, seen)
    lost = outage(asked)
    stop = next(instant(e) for e in entries if e["event"] == "stop")
    ready = next(instant(e) for e in entries if e["event"] == "gate" and e["until"] == "serving")
    return {
        "strategy": strategy,
        "own": {one.instance: one.own for one in made},
        "gate_overhead": {one.instance: round(one.overhead, 3) for one in made},
        "outage": round(lost.seconds, 3),
        "outage_by_the_ledger": round(ready - stop, 3),
        "ratio": round(ratio(strategy, lost.seconds, [one.own for one in made]), 3),
        "requests_wrong": dict(lost.wrong),
        "steps": steps(entries),
    }


def steps(entries: Sequence[Told]) -> list[dict[str, Any]]:
    """Where the time went: each entry of the run, seconds after its first stop."""
    stop = next(instant(e) for e in entries if e["event"] == "stop")
    return [{"at": round(instant(e) - stop, 3), "event": e["event"], "instance": e.get("instance", "")} for e in entries]


def gates(made: Sequence[Start]) -> dict[str, Any]:
    """The gate's overhead beside that of a 5 s poll, from the same starts."""
    return {
        "starts": [{**asdict(one), "overhead": round(one.overhead, 3), "polled": round(one.polled, 3)} for one in made],
        "own": asdict(spread(one.own for one in made)),
        "overhead": asdict(spread(one.overhead for one in made)),
        "overhead_of_a_5_s_poll": asdict(spread(one.polled for one in made)),
    }

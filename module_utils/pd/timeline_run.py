"""One run of the ledger as bars, marks, outages and load samples. Pure.

All times are seconds since the run's `begin`. They are taken from CLOCK_BOOTTIME (`boot`) where every entry of the run has it, else
from the wall clock (`ts`), which a step of the clock can spoil: then the run says so. Nothing is drawn that was not recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from .ledger import Entry

Kind = Literal["ran", "drain", "stop", "load", "gate", "ready", "serve", "watch"]
"""ran: what was there before. ready: proven, with no router in front yet. serve: requests get through again."""
SAID_READY = "warm-up done"
"""The phase (phases.py) with which an engine itself says that it is ready; what comes after it is the gate's own time."""


@dataclass(frozen=True)
class Bar:
    """One stretch of one lane. `open`: it was not over when the run ended. `split` false: a load that has its gate's time in it."""

    lane: str
    kind: Kind
    start: float
    end: float
    open: bool = False
    split: bool = True

    @property
    def seconds(self) -> float:
        """How long it was."""
        return self.end - self.start

    @property
    def name(self) -> str:
        """What it is called; a start that never said when it had loaded cannot be told from its gate."""
        return self.kind if self.split else "load+gate"


@dataclass(frozen=True)
class Mark:
    """Something at a moment; of the whole set when `lane` is empty."""

    at: float
    kind: Literal["dead", "bad", "note", "phase"]
    text: str
    lane: str = ""


@dataclass(frozen=True)
class Outage:
    """From a router's stop to its proof. `end` None: not over when the run ended. A negative start: an earlier run stopped it.

    `known` false: the router was down when the run began, and nothing says since when.
    """

    start: float
    end: float | None = None
    known: bool = True


@dataclass(frozen=True)
class Sample:
    """Requests in flight as they were measured, by the instance that reported most: half of each is in prefill, half in decode."""

    at: float
    count: int
    source: str


@dataclass(frozen=True)
class Run:
    """One run of the ledger."""

    id: str
    who: str
    why: str
    began: str
    generation: str
    outcome: str
    length: float
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()
    outages: tuple[Outage, ...] = ()
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class Clock:
    """Seconds since `begin`, on the clock that all entries of the run have."""

    begin: Entry
    steady: bool

    def __call__(self, stamp: Mapping[str, Any]) -> float:
        """Seconds of an entry, or of anything stamped alike. Raises ValueError for a stamp that cannot be read."""
        if self.steady and "boot" in stamp:
            return float(stamp["boot"]) - float(self.begin["boot"])
        return (datetime.fromisoformat(str(stamp["ts"])) - datetime.fromisoformat(str(self.begin["ts"]))).total_seconds()


def clock_of(entries: Sequence[Entry]) -> Clock:
    """The clock of one run; a boot clock that goes back is another boot's."""
    boots = [float(e["boot"]) for e in entries if isinstance(e.get("boot"), int | float)]
    steady = len(boots) == len(entries) and boots == sorted(boots)
    return Clock(entries[0], steady)


@dataclass
class _Reading:
    """The state while entries are read in order."""

    clock: Clock
    routers: Sequence[str]
    phases: Sequence[Mapping[str, Any]]
    open: dict[str, tuple[Kind, float]] = field(default_factory=dict)
    bars: list[Bar] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    started: dict[str, str] = field(default_factory=dict)
    touched: set[str] = field(default_factory=set)
    proved: float = 0.0

    def close(self, lane: str, at: float, unfinished: bool = False) -> None:
        if lane in self.open:
            kind, start = self.open.pop(lane)
            self.bars.extend(self._parts(lane, kind, start, at, unfinished))

    def _parts(self, lane: str, kind: Kind, start: float, end: float, unfinished: bool) -> list[Bar]:
        """A load is told from its gate by the moment the engine itself said that it was ready."""
        whole = Bar(lane, kind, start, end, unfinished)
        if kind != "load":
            return [whole]
        said = [(self.clock(p), str(p["phase"])) for p in self.phases if p.get("invocation") == self.started.get(lane)]
        within = [(at, phase) for at, phase in said if start <= at <= end]
        self.marks.extend(Mark(at, "phase", phase, lane) for at, phase in within if phase != SAID_READY)
        ready = next((at for at, phase in within if phase == SAID_READY), None)
        if ready is None:
            return [replace(whole, split=unfinished)]
        return [replace(whole, end=ready, open=False), Bar(lane, "gate", ready, end, unfinished)]

    def down(self, at: float, known: bool = True) -> None:
        if not self.outages or self.outages[-1].end is not None:
            self.outages.append(Outage(at if known else 0.0, known=known))

    def up(self, at: float) -> None:
        if self.outages and self.outages[-1].end is None:
            self.outages[-1] = replace(self.outages[-1], end=at)

    def read(self, entry: Entry) -> None:
        event, lane, at = str(entry.get("event")), str(entry.get("instance") or ""), self.clock(entry)
        if isinstance(entry.get("load"), dict):
            self.samples.extend(sample(at, entry["load"]))
        if event in ("stop", "start", "stopped", "gate") and lane:
            self._acted(entry, event, lane, at)
        elif event == "drained" and isinstance(entry.get("seconds"), int | float):
            self._over(entry, "drain", max(0.0, at - float(entry["seconds"])), at)
        elif event == "settled":
            self._over(entry, "watch", min(at, self.proved), at)
            if entry.get("state") == "DEAD":
                self.marks.append(Mark(at, "dead", first_line(entry.get("why")), lane))
        elif event == "bad":
            self.marks.append(Mark(at, "bad", f"{entry.get('generation')} marked bad{_because(entry)}"))
        elif event == "begin" and entry is not self.clock.begin:
            self.marks.append(Mark(at, "bad", f"back to {entry.get('generation')}{_because(entry)}"))
        elif event == "takeover":
            self.marks.append(Mark(at, "note", f"took over from {entry.get('from_who')}, who was gone"))
        if entry.get("cut"):
            self.marks.append(Mark(at, "note", f"{entry['cut']} requests were cut", lane))

    def _acted(self, entry: Entry, event: str, lane: str, at: float) -> None:
        """What was done to one instance."""
        untouched = lane not in self.touched
        self.touched.add(lane)
        if untouched and (event == "stop" or (event == "gate" and entry.get("state") == "READY")):
            # only a stop, or a look without a start, says that something ran there before
            self.bars.append(Bar(lane, "ran", 0.0, at))
        if event in ("stop", "start"):
            self.close(lane, at)
            self.open[lane] = ("stop" if event == "stop" else "load", at)
            self.started[lane] = str(entry.get("invocation"))
            if lane in self.routers:
                self.down(at, known=event == "stop" or not untouched)
        elif event == "stopped":
            self.close(lane, at)
        elif entry.get("state") == "READY":
            self.close(lane, at)
            self.open[lane], self.proved = ("serve", at), at
            if lane in self.routers and entry.get("until", "serving") == "serving":
                self.up(at)
        else:
            self.close(lane, at, unfinished=True)
            self.marks.append(Mark(at, "dead", first_line(entry.get("why")), lane))

    def _over(self, entry: Entry, kind: Kind, start: float, end: float) -> None:
        """A stretch over the lanes that were looked at."""
        self.bars.extend(Bar(str(name), kind, start, end) for name in entry.get("instances") or ())


def _served(bar: Bar, outages: Sequence[Outage]) -> list[Bar]:
    """A proven instance serves from the end of the outage it was proven in; until then it is only ready."""
    around = next((o for o in outages if bar.kind == "serve" and o.start <= bar.start and (o.end is None or o.end > bar.start)), None)
    if around is None:
        return [bar]
    if around.end is None or around.end >= bar.end:
        return [replace(bar, kind="ready")]
    return [replace(bar, kind="ready", end=around.end), replace(bar, start=around.end)]


def _because(entry: Entry) -> str:
    why = first_line(entry.get("why"))
    return f": {why}" if why else ""


def first_line(text: Any) -> str:
    """The first line of what was said, or nothing."""
    return next(iter(str(text or "").splitlines()), "")


def sample(at: float, load: Mapping[str, Any]) -> list[Sample]:
    """What was in flight by one reading of the load (instance -> counts); nothing when nobody answered."""
    counted = {name: sum(v for v in told.values() if isinstance(v, int)) for name, told in load.items() if isinstance(told, dict) and told}
    most = max(counted, key=lambda name: counted[name], default=None)
    return [] if most is None else [Sample(at, counted[most], most)]


def read(entries: Sequence[Entry], routers: Sequence[str], phases: Sequence[Mapping[str, Any]] = (), since: Entry | None = None) -> Run:
    """One run of its entries, `begin` first. `since`: the router's stop of an earlier run that this one found it with.

    Raises ValueError where the entries do not begin with `begin`, or a stamp cannot be read.
    """
    if not entries or entries[0].get("event") != "begin":
        raise ValueError("the ledger has no `begin` of this run")
    begin, clock = entries[0], clock_of(entries)
    reading = _Reading(clock, routers, phases)
    if since is not None:
        reading.down(min(0.0, replace(clock, steady=False)(since)))
    for entry in entries:
        reading.read(entry)
    end = next((e for e in reversed(entries) if e.get("event") == "end"), None)
    length = max(0.0, *(clock(e) for e in entries))
    for lane in list(reading.open):
        reading.close(lane, length, unfinished=reading.open[lane][0] != "serve")
    bars = [part for bar in reading.bars for part in _served(bar, reading.outages)]
    times = [clock(e) for e in entries]
    if not clock.steady and times != sorted(times):
        reading.marks.append(Mark(0.0, "note", "the machine's clock was set back during this run: these times cannot be trusted"))
    return Run(
        id=str(begin.get("run")),
        who=str(begin.get("who") or "?"),
        why=str(begin.get("why") or "?"),
        began=str(begin["ts"]),
        generation=str(begin.get("generation")),
        outcome=str(end.get("outcome")) if end else "not ended",
        length=length,
        bars=tuple(sorted(bars, key=lambda bar: (bar.lane, bar.start, -bar.end))),
        marks=tuple(reading.marks),
        outages=tuple(reading.outages),
        samples=tuple(reading.samples),
    )

"""A run and the earlier ones of its kind, chosen from the ledger: what the picture and its text version draw. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .ledger import Entry
from .timeline_run import Run, clock_of, read, sample

LAST = 5
"""How many earlier runs of the same kind are shown."""


@dataclass(frozen=True)
class Timeline:
    """A run, the earlier ones of its kind (oldest first), and what the plan expected of its outage."""

    run: Run
    lanes: tuple[str, ...]
    routers: tuple[str, ...]
    earlier: tuple[Run, ...] = ()
    forecast: float | None = None

    @property
    def until(self) -> float:
        """The last second that is drawn."""
        expected = [o.start + self.forecast for o in self.run.outages[:1] if self.forecast]
        return max([1.0, self.run.length, *expected, *(earlier.length for earlier in self.earlier)])


def relevant(entries: Sequence[Entry], run: str, last: int = LAST) -> list[Entry]:
    """Of a whole ledger: this run, the `last` finished runs with the same steps before it, and a router's stop it may have inherited."""
    begins = [e for e in entries if e.get("event") == "begin"]
    mine = next((e for e in begins if e.get("run") == run), None)
    if mine is None:
        return []
    done = {e.get("run") for e in entries if e.get("event") == "end" and e.get("outcome") == "done"}
    alike = [e["run"] for e in begins[: begins.index(mine)] if e.get("steps") == mine.get("steps") and e.get("run") in done]
    runs = {run, *alike[-last:]}
    down: list[Entry] = []
    for entry in entries[: entries.index(mine)]:
        if entry.get("instance") in routers_of(mine) and entry.get("event") in ("stop", "gate"):
            proven = entry["event"] == "gate" and entry.get("state") == "READY"
            down = [] if proven else [*down, entry]
    inherited = [e for e in down[:1] if e["event"] == "stop" and e.get("run") not in runs]
    return [*inherited, *(e for e in entries if e.get("run") in runs)]


def of_run(entries: Sequence[Entry], begin: Entry) -> list[Entry]:
    """The entries of one run, its `begin` first. A takeover is written right before it, and counts from there."""
    rest = [e for e in entries if e.get("run") == begin.get("run") and e is not begin]
    stamps: Entry = {key: begin[key] for key in ("ts", "boot") if key in begin}
    return [begin, *({**e, **stamps} if e.get("event") == "takeover" else e for e in rest)]


def routers_of(begin: Entry) -> tuple[str, ...]:
    """The routers, by the rung that only they are gated to."""
    return tuple(words[1] for words in _steps(begin) if words[0] == "gate" and words[-1] == "serving")


def instances_of(begin: Entry) -> tuple[str, ...]:
    """Every instance of the plan; routers first, then the engines in start order."""
    routers = routers_of(begin)
    return (*routers, *dict.fromkeys(words[1] for words in _steps(begin) if words[0] == "gate" and words[1] not in routers))


def _steps(begin: Entry) -> list[list[str]]:
    """The steps as words, those of one instance: `gate prefill0 until working`."""
    steps = [str(step).split() for step in begin.get("steps") or []]
    return [words for words in steps if len(words) > 1 and words[0] in ("stop", "start", "gate")]


def timeline(
    entries: Sequence[Entry],
    run: str,
    *,
    phases: Sequence[Mapping[str, Any]] = (),
    loads: Sequence[Mapping[str, Any]] = (),
    forecast: float | None = None,
) -> Timeline:
    """The model of what `relevant` chose. `loads`: readings beside the ledger's, {"ts", "boot", "load": instance -> counts}.

    Raises ValueError when the ledger has no such run.
    """
    begins: dict[str, Entry] = {}
    for entry in entries:
        if entry.get("event") == "begin":
            begins.setdefault(str(entry.get("run")), entry)
    if run not in begins:
        raise ValueError(f"the ledger has no `begin` of run {run}")
    routers = routers_of(begins[run])
    inherited = next((e for e in entries if e.get("run") not in begins), None)
    mine = of_run(entries, begins[run])
    told = read(mine, routers, phases, inherited)
    clock = clock_of(mine)
    beside = [one for stamped in loads for one in sample(clock(stamped), stamped.get("load") or {})]
    told = replace(told, samples=tuple(sorted((*told.samples, *beside), key=lambda one: one.at)))
    others = [name for name in begins if name != run]
    earlier = tuple(read(of_run(entries, begins[name]), routers) for name in others)
    if sum(e.get("event") == "begin" for e in mine) > 1:
        forecast = None  # it went back: what was expected of one bring-up says nothing of two
    acted = dict.fromkeys(b.lane for b in told.bars)
    lanes = tuple(dict.fromkeys((*instances_of(begins[run]), *acted)))
    return Timeline(told, lanes, routers, earlier, forecast)

"""What must be done when something happened that no transaction did: a crash, an OOM kill, a restart by hand. Pure.

One rule. An engine keeps what it knows of its peer, and the router keeps open circuits and the connections of waiting clients. So
whatever has *outlived* a process of an engine is stopped hard, and started anew together with it (facts 6.2, field reports 001, 002, 005,
020). Everything else is left alone: a set whose router is stopped is closed, and what was stopped by hand stays stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .ledger import Entry, unfinished
from .observe import Unit

WHO = "systemd"
"""Who holds the lock and begins the transaction in the ledger, when nobody asked for it."""
GAVE_UP = "gave up"


@dataclass(frozen=True)
class Limit:
    """How many recoveries may begin within `seconds`, before it is over."""

    times: int
    seconds: float


@dataclass(frozen=True)
class Now:
    """The set as it is. `started`: invocations that a transaction or a recovery started; `closed`: instances that the last recovery stopped.

    `recent`: recoveries within the window. `goes_on`: why this is not the first try, empty when it is; `hung`: that try waited in vain for
    something that did not die.
    """

    engines: Mapping[str, Unit]
    routers: Mapping[str, Unit]
    started: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    recent: int = 0
    goes_on: str = ""
    hung: bool = False


@dataclass(frozen=True)
class Todo:
    """`why` is for the journal and the ledger. `stop`: what is stopped hard before anything is started."""

    what: Literal["nothing", "recover", "give up"]
    why: str
    stop: tuple[str, ...] = ()


def decide(now: Now, limit: Limit) -> Todo:
    """What to do about the set as it is."""
    everyone = {**now.engines, **now.routers}
    died = {name: unit for name, unit in everyone.items() if is_dead(name, unit, now.closed)}
    renewed = {name: unit for name, unit in now.engines.items() if unit.runs and unit.ended_at and unit.invocation not in now.started}
    survivors = outlived({**{n: u for n, u in died.items() if n in now.engines}, **renewed}, everyone)
    # what hangs has met all others
    stop = tuple(name for name in (*now.routers, *now.engines) if name in survivors or (now.hung and everyone[name].runs))
    if not died and not stop and not now.goes_on:
        return Todo("nothing", "nothing died, and nothing has outlived a process of an engine")
    why = now.goes_on or "; ".join([*(f"{name} died: {how(unit)}" for name, unit in died.items()), *_renewed(renewed, survivors)])
    if not now.goes_on and not any(unit.runs or name in died for name, unit in now.routers.items()):
        return Todo("nothing", f"{why}; but the router is stopped, so the set is closed: restart-pd.yml opens it")
    by_hand = [name for name, unit in now.engines.items() if not unit.runs and name not in died and name not in now.closed]
    if by_hand:
        return Todo("nothing", f"{why}; but {' and '.join(by_hand)} was stopped by hand and stays so: restart-pd.yml starts the set")
    router_limit = [name for name in died if name in now.routers and everyone[name].result == "start-limit-hit"]
    if router_limit or now.recent >= limit.times:
        times = f"{now.recent} recoveries in {limit.seconds / 60:.0f} min" if not router_limit else "systemd started it again and again"
        running = [name for name in (*now.routers, *(() if router_limit else now.engines)) if everyone[name].runs]
        return Todo("give up", f"{why}; {times} did not help", tuple(running))
    return Todo("recover", why, stop)


def is_dead(name: str, unit: Unit, closed: Iterable[str] = ()) -> bool:
    """Whether it ended by itself. One that was killed because its stop took too long was stopped; one that a recovery killed was too."""
    return unit.active_state == "failed" and not unit.was_stopped and name not in closed


def how(unit: Unit) -> str:
    """How the last process ended, in words."""
    return "killed for want of memory" if unit.result == "oom-kill" else unit.exit_status or f"result {unit.result}"


def outlived(changed: Mapping[str, Unit], everyone: Mapping[str, Unit]) -> dict[str, str]:
    """Running instance -> the engine of `changed` (ended by itself or by hand) of which it has seen the last process end."""
    return {
        name: other
        for other, gone in changed.items()
        for name, unit in everyone.items()
        if name != other and unit.runs and unit.started_at < gone.ended_at
    }


def _renewed(renewed: Mapping[str, Unit], survivors: Mapping[str, str]) -> list[str]:
    return [f"{name} was started anew by hand" for name in renewed if name in survivors.values()]


def since_last_transaction(entries: Iterable[Entry]) -> list[Entry]:
    """The `begin` entries of recoveries, oldest first, after the last transaction that somebody asked for."""
    found: list[Entry] = []
    for entry in entries:
        if entry.get("event") == "begin":
            found = [*found, entry] if entry.get("who") == WHO else []
    return found


def recent(entries: Iterable[Entry], boot: str, now: float, seconds: float) -> int:
    """Recoveries since the last transaction, of this boot, within the window; `now` is on the boot clock, which no clock step moves."""
    return sum(e.get("boot_id") == boot and now - float(e["boot"]) < seconds for e in since_last_transaction(entries))


def started(entries: Iterable[Entry]) -> frozenset[str]:
    """Invocations of processes that a transaction or a recovery started."""
    return frozenset(str(e.get("invocation")) for e in entries if e.get("event") == "start")


def closed(entries: Sequence[Entry]) -> frozenset[str]:
    """Instances that a recovery stopped and nobody has started since."""
    mine = {e.get("run") for e in entries if e.get("event") == "begin" and e.get("who") == WHO}
    found: dict[str, bool] = {}
    for entry in entries:
        if entry.get("event") in ("start", "stop"):
            found[str(entry.get("instance"))] = entry["event"] == "stop" and entry.get("run") in mine
    return frozenset(name for name, stopped in found.items() if stopped)


def cut_off(entries: Iterable[Entry]) -> Entry | None:
    """The `begin` of a recovery that was killed half way."""
    begun = unfinished(entries)
    return begun if begun and begun.get("who") == WHO else None

"""Are the engines empty? After the router is gone nothing new comes, so what they hold only gets less; it is measured, not assumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from . import gates, http, loads, lock, node, observe
from .gates import Http
from .ledger import Entry
from .node import Placed

HUNG_SECONDS = 30.0
"""A scheduler publishes with every turn of its loop, at the latest after one step or chunk (srt/managers/scheduler.py: on_idle)."""
POLL_SECONDS = 0.1
TRIES = 2


@dataclass(frozen=True)
class Held:
    """What one engine holds: its requests, or None and why that was not measured. `fresh`: reported since the question was asked."""

    role: str
    requests: int | None
    why: str = ""
    fresh: bool = True

    @property
    def is_done(self) -> bool:
        """Nothing to wait for: it is empty, or nothing will ever be known of it."""
        return self.requests is None or (self.fresh and not self.requests)

    def __str__(self) -> str:
        if self.requests is None:
            return f"not measured ({self.why})"
        return f"{self.requests} in flight" if self.requests else "empty" if self.fresh else "no fresh report yet"


def held(role: str, answer: Http, asked: float, now: float) -> Held:
    """Judge a load report; `asked` and `now` are the node's wall clock. Pure."""
    stamps = loads.stamps(answer.body) if answer.status == 200 else ()
    requests = loads.in_flight(answer.body)
    if not stamps or requests is None:
        return Held(role, None, f"/v1/loads: {answer}")
    if now - min(stamps) > HUNG_SECONDS:
        return Held(role, None, f"its report is {now - min(stamps):.0f} s old: the scheduler hangs")
    return Held(role, requests, fresh=min(stamps) >= asked)


def left(engines: Iterable[Held]) -> int:
    """How many requests the engines still hold. One request is in a prefill and in a decode at once, so the fuller side counts. Pure."""
    sides: dict[str, int] = {}
    for engine in engines:
        sides[engine.role] = sides.get(engine.role, 0) + (engine.requests or 0)
    return max(sides.values(), default=0)


def told(engines: Mapping[str, Held]) -> str:
    """What each engine holds, for a person."""
    return ", ".join(f"{name} {engine}" for name, engine in engines.items())


def begun(entries: Iterable[Entry], run: str, routers: Sequence[str], otherwise: float) -> float:
    """When the time to drain began (seconds since boot): with the router's stop in this run, else now. Pure."""
    stops = [float(e["boot"]) for e in entries if e["event"] == "stop" and e.get("run") == run and e.get("instance") in routers]
    return stops[-1] if stops else otherwise


def cut_by_router(entries: Iterable[Entry], run: str) -> int:
    """Requests that this run cut by killing a router whose time was over. Pure."""
    return sum(int(e.get("cut") or 0) for e in entries if e["event"] == "killed" and e.get("run") == run)


def wait(
    names: Sequence[str], wanted: str, until: float, seconds: float, clock: Callable[[], float] = lock.boottime
) -> dict[str, Held]:
    """Read the engines' reports until all are done, or `seconds` or the time `until` are over; `wanted` says which unit is whose.

    Each engine is asked at the address of the generation that its process carries: the one to come may have another.
    """
    units = {name: node.placed(name, wanted).unit for name in names}
    end, asked = min(until, clock() + seconds), time.time()
    failed = dict.fromkeys(names, 0)
    with ThreadPoolExecutor(max_workers=len(names)) as pool:
        while True:
            found = dict(zip(names, pool.map(lambda name: _look(name, units[name], asked), names), strict=True))
            failed = {name: failed[name] + 1 if engine.requests is None else 0 for name, engine in found.items()}
            sure = all(engine.is_done and (not failed[name] or failed[name] >= TRIES) for name, engine in found.items())
            if sure or clock() >= end:
                return found
            time.sleep(POLL_SECONDS)


def _look(name: str, unit: str, asked: float) -> Held:
    try:
        member = _carried(name, unit)
    except node.NoGenerationError as error:
        return Held("?", None, str(error))
    answer = http.ask(f"{member.url}/v1/loads?include=all", timeout=3, key=node.api_key(member.generation, name))
    return held(member.role, answer, asked, time.time())


def _carried(name: str, unit: str) -> Placed:
    """The instance as its process was started. Raises NoGenerationError when it has no process, or one of no known generation."""
    pid = observe.unit(unit).main_pid
    generation = (observe.environ(pid) or {}).get("PD_GENERATION") if pid else None
    if generation is None:
        raise node.NoGenerationError("it has no process" if not pid else f"process {pid} carries no generation")
    return node.placed(name, generation)


def verdict(engines: Mapping[str, Held], over: bool) -> gates.Verdict:
    """READY when there is nothing to wait for, or no time left to. Pure."""
    if over or all(engine.is_done for engine in engines.values()):
        return gates.Verdict("READY", "drained", told(engines))
    return gates.Verdict("WAIT", "drained", told(engines))

"""Everything the truth table rests on, read in one go; what it means is judged in truth_table.py."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from . import climb, http, loads, lock, metrics, node, observe, recover, serving, truth_unattended
from .gates import Http
from .gates_serving import Serving
from .ledger import Entry
from .node import Placed
from .observe import Rank, Unit


@dataclass(frozen=True)
class Seen:
    """One instance: its unit, its processes against its knobs, and what it answered. `local` is None where the router proved more."""

    member: Placed
    unit: Unit
    ranks: tuple[Rank, ...]
    ready: Http
    route: Http | None
    load: Mapping[str, int]
    loads: Http | None
    local: Http | None
    now: float


@dataclass(frozen=True)
class Everything:
    """All instances in start order, and what a request through each router showed (router name -> observation)."""

    instances: tuple[Seen, ...]
    served: Mapping[str, Serving]


def look(generation: str, timeout: float) -> Everything:
    """Read the whole set. Load is read first: it is what a latency must be judged by (design 2)."""
    members = node.everyone(generation)
    engines = [m for m in members if not m.is_router]
    with ThreadPoolExecutor(max_workers=len(members) or 1) as pool:
        before = list(pool.map(_reports, members))
    routers = [m for m in members if m.is_router]
    served = {r.name: serving.look(r, engines, node.api_key(generation, r.name), timeout) for r in routers}
    names = {name for m in members for name in m.knobs}
    moved = {name for s in served.values() for name, tokens in s.moved.items() if tokens > 0}
    with ThreadPoolExecutor(max_workers=len(members) or 1) as pool:
        instances = list(pool.map(lambda m, told: _instance(m, told, names, moved, timeout), members, before))
    return Everything(tuple(instances), served)


def story(generation: str, entries: Sequence[Entry]) -> truth_unattended.Story:
    """Who is at work now, and what there is to recover the set."""
    held, now = lock.read(), lock.boottime()
    holder = held.told(now) if held is not None and not lock.is_gone(held, lock.boot_id(), now) else ""
    recoverers = [observe.unit(recover.units(m.name)[0]) for m in node.everyone(generation)]
    return truth_unattended.Story(entries, holder, recoverers)


def _reports(member: Placed) -> Http | None:
    if member.is_router:
        return None
    return http.ask(f"{member.url}/v1/loads?include=all", timeout=3, key=node.api_key(member.generation, member.name))


def _instance(member: Placed, told: Http | None, names: set[str], moved: set[str], timeout: float) -> Seen:
    unit = observe.unit(member.unit)
    ready, route = climb.listening_answers(member)
    local = None
    if not member.is_router and member.name not in moved and ready.status == 200:
        local = http.ask(f"{member.url}/generate", climb.LOCAL, timeout, node.api_key(member.generation, member.name))
    fresh = _reports(member) if told is not None else None
    return Seen(
        member=member,
        unit=unit,
        ranks=observe.ranks(observe.cgroup_pids(unit.control_group), names),
        ready=ready,
        route=route,
        load=loads.summary(told.body) if told is not None else {},
        loads=fresh,
        local=local,
        now=time.time(),
    )


def load_now(generation: str) -> dict[str, dict[str, int]]:
    """Instance -> requests and queues. An engine by its own report, a router by what it counts as active at its workers."""
    members = node.everyone(generation)
    with ThreadPoolExecutor(max_workers=len(members) or 1) as pool:
        return dict(zip((m.name for m in members), pool.map(_counts, members), strict=True))


def _counts(member: Placed) -> dict[str, int]:
    if not member.is_router:
        told = _reports(member)
        return loads.summary(told.body) if told is not None else {}
    active = metrics.by_label(http.ask(f"{member.metrics_url}/metrics", timeout=3).body, "smg_worker_requests_active", "worker")
    return {"active": int(max(active.values()))} if active else {}

"""The planner: what must be stopped, drained, started, gated and watched, in which order, and why. Pure.

Drift is `PD_GENERATION` of the process != the wanted generation (design 2). A member that already runs the wanted
generation is only gated, so a run that was killed half way is finished, not repeated. A member that died under a
generation that was proven good is not drift: nothing is restarted behind the operator's back; verify says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Action = Literal["stop", "drain", "start", "gate", "watch"]
Strategy = Literal["ordered", "overlapped"]
"""ordered: stop, start, gate, one engine after the other. overlapped: both stop, both load at once, gated in order: the outage is about
the slower engine's start instead of their sum."""

RUNNING = ("active", "activating", "reloading")


@dataclass(frozen=True)
class Seen:
    """One instance as observed: systemd's ActiveState, and the generation its main process carries, if it has one."""

    active_state: str
    generation: str | None


@dataclass(frozen=True)
class Step:
    """One thing to do to one instance. `until` is the rung a gate must reach; `started`: this plan starts what it gates.

    `hard`: this stop kills at once; what it stops was measured idle, or its time to drain is over. `instances`: what a drain or a watch
    looks at; it is carried out where `instance` is. `then`: the starts that follow a stop directly. They are made in the same call, for
    every call is half a second of outage; their own steps find them made.
    """

    action: Action
    instance: str
    until: str | None = None
    started: bool = False
    hard: bool = False
    instances: tuple[str, ...] = ()
    then: tuple[str, ...] = ()

    def __str__(self) -> str:
        who = ", ".join(self.instances) or self.instance
        return f"{self.action} {who}" + (f" until {self.until}" if self.until else "")


@dataclass(frozen=True)
class Plan:
    """The steps, in order, and for every instance the reason why it is or is not restarted."""

    steps: tuple[Step, ...]
    reasons: Mapping[str, str]

    @property
    def restarts(self) -> tuple[str, ...]:
        """The instances that get a new process, in the order they get it."""
        return tuple(s.instance for s in self.steps if s.action == "start")


def drift(seen: Seen, wanted: str, wanted_is_good: bool) -> str | None:
    """Why this instance must be started anew, or None when it must not."""
    if seen.generation is not None and seen.active_state in RUNNING:
        if seen.generation == wanted:
            return None
        return f"runs {seen.generation}, wanted is {wanted}"
    if wanted_is_good and seen.active_state != "active":
        return None
    if wanted_is_good:
        return f"its process carries no generation, wanted is {wanted}"
    if seen.active_state in RUNNING:
        return f"is {seen.active_state} without a process; {wanted} was never proven"
    return f"not running ({seen.active_state}); {wanted} was never proven"


def plan(
    seen: Mapping[str, Seen],
    wanted: str,
    wanted_is_good: bool,
    engines: Sequence[str],
    routers: Sequence[str],
    *,
    strategy: Strategy = "ordered",
) -> Plan:
    """Which instances get a new process, and in which order. Routers stop first and start last.

    A router may finish what is in flight; then all engines that run are drained, also one that stays: half of each request is in it. After
    that they are killed: an engine's own SIGTERM drain has no bound and goes on admitting (facts 2.5). At the end everything is watched
    for a while, because a peer that comes back can kill one that was READY (report 002).

    `engines` is in start order (prefill before decode: a decode caches what its prefill tells it, facts 6.2). A router that
    itself has not drifted is still cycled when any engine is, because only its start clears its circuits (facts 5.3.4).
    """
    why = {name: drift(seen[name], wanted, wanted_is_good) for name in (*engines, *routers)}
    if wanted_is_good and not any(why.values()):
        return Plan((), {name: _at_rest(seen[name], wanted) for name in why})
    cycled = [name for name in engines if why[name]]
    routers_cycled = [name for name in routers if why[name] or cycled]
    steps = _stops(routers_cycled, seen)
    if _stops(cycled, seen):
        up = tuple(step.instance for step in _stops(engines, seen))
        steps.append(Step("drain", up[0], instances=up))
    if strategy == "overlapped":
        steps += [*_stops(cycled, seen, hard=True), *(Step("start", name) for name in cycled)]
        steps += [_gate(name, cycled) for name in engines]
    else:
        for name in engines:
            steps += [*_stops([name], seen, hard=True), Step("start", name)] if name in cycled else []
            steps.append(_gate(name, cycled))
    steps += [Step("start", name) for name in routers_cycled]
    steps += [Step("gate", name, "serving", started=name in routers_cycled) for name in routers]
    steps.append(Step("watch", steps[-1].instance, instances=(*engines, *routers)))
    reasons = {
        name: reason or ("its engines restart" if name in routers_cycled else _at_rest(seen[name], wanted))
        for name, reason in why.items()
    }
    return Plan(tuple(_onward(steps)), reasons)


def _onward(steps: Sequence[Step]) -> list[Step]:
    """The steps, each stop with the starts that come right after it."""
    made: list[Step] = []
    following: tuple[str, ...] = ()
    for step in reversed(steps):
        made.append(replace(step, then=following) if step.action == "stop" else step)
        following = (step.instance, *following) if step.action == "start" else ()
    return made[::-1]


def _stops(names: Sequence[str], seen: Mapping[str, Seen], *, hard: bool = False) -> list[Step]:
    return [Step("stop", name, hard=hard) for name in names if seen[name].active_state not in ("inactive", "failed", "absent")]


def _gate(name: str, cycled: Sequence[str]) -> Step:
    return Step("gate", name, "working", started=name in cycled)


def _at_rest(seen: Seen, wanted: str) -> str:
    if seen.generation == wanted:
        return f"runs {wanted} already"
    return f"is {seen.active_state}: it died. site.yml does not start it behind your back, restart-pd.yml does"


def told(made: Plan) -> list[str]:
    """The plan for a person: one line an instance with the reason, then the count."""
    width = max(map(len, made.reasons), default=0)
    lines = [f"  {name:<{width}}  {'restart' if name in made.restarts else 'stays  '}  {why}" for name, why in made.reasons.items()]
    return [*lines, f"  {len(made.restarts)} restarts: {', '.join(made.restarts)}" if made.restarts else "  0 restarts"]

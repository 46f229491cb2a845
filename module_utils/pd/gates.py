"""The gate: READY, WAIT or DEAD, with evidence, from a ladder of observations (design 2). Pure.

alive      the unit is active with the process it was started with
listening  /ready says 200; a prefill also has every rank registered at its bootstrap server
working    the engine itself generated a token; every process carries the generation and the knobs; its load report is fresh
serving    the router sees healthy workers with closed circuits, and answers real requests that moved both engines' counters
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from . import kernels
from .loads import stamps
from .observe import Rank, Unit
from .patience import took

State = Literal["READY", "WAIT", "DEAD"]
RUNGS = ("alive", "listening", "working", "serving")
LADDER: Mapping[str, tuple[str, ...]] = {
    "prefill": ("alive", "listening", "working"),
    "decode": ("alive", "listening", "working"),
    "router": ("alive", "listening", "serving"),
}
LOADS_FRESH_SECONDS = 60.0
"""An idle engine publishes its load report every 30 s at the latest (facts 3); twice that is stale."""


@dataclass(frozen=True)
class Verdict:
    """What a gate says of one instance: the rung it speaks of, why, and what that rests on."""

    state: State
    rung: str
    why: str
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Baseline:
    """The process a gate was opened for. Another one in its place voids the gate."""

    main_pid: int
    n_restarts: int
    invocation: str


@dataclass(frozen=True)
class Effort:
    """What a starting engine has done so far, as far as it shows from outside; with `at` (seconds since boot) the moment of its last progress.

    `lines`: of its journal, our own probes' left out; `cpu`: seconds of all its processes and of the children they had; `read`: bytes they
    read; `compilers`: those that run now, `compiling`: their CPU seconds; `reached`: the rung it stands on.
    """

    at: float
    lines: int = 0
    cursor: str = ""
    cpu: float = 0.0
    read: int = 0
    compilers: tuple[str, ...] = ()
    compiling: float = 0.0
    reached: str = "none"


@dataclass(frozen=True)
class Http:
    """One answer, or the error instead of one (`status` 0). `body` is parsed JSON where it is JSON."""

    status: int
    body: Any = None
    error: str = ""

    def __str__(self) -> str:
        return self.error or f"HTTP {self.status}"


def baseline(unit: Unit) -> Baseline:
    """Take the present process as the one to be gated."""
    return Baseline(unit.main_pid, unit.n_restarts, unit.invocation)


def alive(unit: Unit, since: Baseline | None) -> Verdict:
    """Rung 1. A process that ended, or another in its place, is DEAD at once: a corpse is not waited for."""
    exit_status = unit.exit_status or f"result {unit.result}"
    if unit.active_state in ("failed", "inactive", "absent"):
        why = f"{unit.name} is {unit.active_state} ({exit_status})"
        return Verdict("DEAD", "alive", why)
    if since is not None and unit.sub_state == "auto-restart":
        return Verdict("DEAD", "alive", f"{unit.name} died ({exit_status}); systemd is about to start it again")
    if since is not None and since.main_pid and (unit.invocation != since.invocation or unit.n_restarts != since.n_restarts):
        now = f"MainPID {since.main_pid} -> {unit.main_pid}, NRestarts {since.n_restarts} -> {unit.n_restarts}"
        why = f"{unit.name} was started again behind the gate: {now}"
        return Verdict("DEAD", "alive", why)
    if unit.active_state != "active" or not unit.main_pid:
        return Verdict("WAIT", "alive", f"{unit.name} is {unit.active_state} ({unit.sub_state})")
    return Verdict("READY", "alive", f"MainPID {unit.main_pid}, NRestarts {unit.n_restarts}")


BUSY_CORES = 0.05
"""What counts as work: polling a stale lock or an empty socket takes less of a core, loading and compiling take more (report 121)."""
READ_RATE = 1 << 18
"""Bytes a second: weights from the slowest disk come faster, sockets and lock files that are polled slower."""


def progress(now: Effort, last: Effort | None, *, listens: bool) -> Effort:
    """What to carry to the next look: `now` when anything moved since `last`, else `last`, read on to the end of the journal.

    A PD scheduler spins at 100 % of a core when idle (lab-facts), so CPU and reading prove something only until the engine listens.
    A process that ended takes its share along: the others start counting from there.
    """
    if last is None or moved(now, last, listens=listens):
        return now
    return replace(last, cursor=now.cursor, cpu=min(last.cpu, now.cpu), read=min(last.read, now.read))


def moved(now: Effort, last: Effort, *, listens: bool) -> bool:
    """Whether there is any sign of work since `last`."""
    compiles = bool(now.compilers) and (now.compilers, now.compiling) != (last.compilers, last.compiling)
    if now.lines > last.lines or now.reached != last.reached or compiles:
        return True
    seconds = now.at - last.at
    return not listens and (now.cpu - last.cpu > BUSY_CORES * seconds or now.read - last.read > READ_RATE * seconds)


def stalled(waits: Verdict, now: Effort, last: Effort, phase: str, after: float) -> Verdict:
    """A WAIT with the progress it rests on; DEAD when there has been none for `after` seconds. `after` 0: never."""
    quiet = now.at - last.at
    evidence = {"quiet_for": round(quiet, 1), "lines": now.lines, "cpu": now.cpu, "compilers": list(now.compilers)}
    waits = replace(waits, evidence={**waits.evidence, **evidence})
    if not after or quiet < after:
        return waits
    running = f"{', '.join(now.compilers)} runs without getting on" if now.compilers else "nothing compiles"
    cores = (now.cpu - last.cpu) / quiet if quiet else 0.0
    seen = f"no line in its journal, {cores:.2f} cores busy, {(now.read - last.read) >> 20} MiB read, {running}"
    why = f"no progress for {took(quiet)}: {seen}; it was {phase}; {waits.why}"
    return replace(waits, state="DEAD", why=why)


def ready_processes(entries: Iterable[Mapping[str, Any]], run: str) -> dict[str, Baseline]:
    """Instance -> the process that a gate of this run found READY, out of the ledger; not one that was stopped or started since."""
    found: dict[str, Baseline] = {}
    for entry in (e for e in entries if e.get("run") == run and e.get("instance")):
        if entry["event"] in ("stop", "start"):
            found.pop(entry["instance"], None)
        elif entry["event"] == "gate" and entry["state"] == "READY":
            found[entry["instance"]] = Baseline(entry["main_pid"], entry["n_restarts"], entry["invocation"])
    return found


def settled(ready: Mapping[str, Baseline], units: Mapping[str, Unit]) -> Verdict:
    """After the last gate: whether every instance is still the process that was READY (reports 002, 020). `ready`: instance -> that one."""
    for name, since in ready.items():
        verdict = alive(units[name], since)
        if verdict.state != "READY":
            how = {"active": "was replaced", "deactivating": "was stopped"}.get(units[name].active_state, "died")
            why = f"{name} was READY, then {how} in the settle window: {verdict.why}"
            return Verdict("DEAD", "settled", why, {"instance": name})
    return Verdict("READY", "settled", f"{', '.join(ready)}: the same processes as at their gates")


def listening(role: str, ready: Http, route: Http | None) -> Verdict:
    """Rung 2. `/health` is not asked: it generates, and can take 20 s (facts 2.2)."""
    if ready.status != 200:
        return Verdict("WAIT", "listening", f"{'/liveness' if role == 'router' else '/ready'}: {ready}")
    if role == "prefill" and (route is None or route.status != 200):
        return Verdict("WAIT", "listening", f"bootstrap /route: {route} (the ranks have not all registered)")
    return Verdict("READY", "listening", "answers 200")


def carried(ranks: Sequence[Rank], generation: str, wanted: Mapping[str, str]) -> Verdict | None:
    """What speaks against every process carrying the generation, the knobs and the kernels; None when nothing does."""
    for rank in ranks:
        who = f"process {rank.pid} ({rank.title})"
        if rank.generation is None:  # a compiler started with an empty environment, which ends; or a rank that hides its own
            return Verdict("WAIT", "working", f"{who} shows no PD_GENERATION")
        wrong = rank.wrong(wanted)
        if rank.generation != generation or wrong:
            what = f"has {wrong} instead of what was asked" if wrong else f"carries {rank.generation}, wanted is {generation}"
            return Verdict("DEAD", "working", f"{who} {what}")
    lacking = kernels.against(ranks, wanted)
    if lacking:
        return Verdict("DEAD", "working", lacking)
    return None if ranks else Verdict("WAIT", "working", "none of its processes can be seen, so none is proven")


def working(
    local: Http | None, ranks: Sequence[Rank], generation: str, wanted: Mapping[str, str], *, loads: Http | None, now: float
) -> Verdict:
    """Rung 3. `local` is the engine's own generation (facts 2.3), None while it is still out; `now` is the wall clock of the node.

    `wanted` are the knobs that every process must have, secrets left out.
    """
    against = carried(ranks, generation, wanted)
    if against:
        return against
    if local is None:
        return Verdict("WAIT", "working", "its own generation has not answered yet")
    tokens = completion_tokens(local.body)
    if local.status != 200 or tokens < 1:
        return Verdict("WAIT", "working", f"its own generation: {local}, {tokens} tokens (200 without a token proves nothing)")
    age = loads_age(loads, now)
    if age is None or age > LOADS_FRESH_SECONDS:
        return Verdict("WAIT", "working", f"/v1/loads: {loads if age is None else f'{age:.0f} s old, the scheduler may hang'}")
    return Verdict("READY", "working", f"generated {tokens} token(s), {len(ranks)} processes carry {generation}{kernels.said(wanted)}")


def completion_tokens(body: Any) -> int:
    """Tokens an answer of /generate or of the OpenAI routes really carries; a missing key is 0, never an exception (report 005)."""
    if isinstance(body, list):
        body = body[0] if body else None
    if not isinstance(body, dict):
        return 0
    counted = body.get("meta_info") if isinstance(body.get("meta_info"), dict) else body.get("usage")
    tokens = counted.get("completion_tokens") if isinstance(counted, dict) else 0
    return tokens if isinstance(tokens, int) else 0


def loads_age(loads: Http | None, now: float) -> float | None:
    """Seconds since the oldest rank published its load, None when the report cannot be read."""
    taken = stamps(loads.body) if loads is not None and loads.status == 200 else ()
    return now - min(taken) if taken else None

"""One short look at a gate, or at a set that has passed its gates: what sglang_gate and sglang_watch do for a playbook, recover.py without."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from . import climb, forecast, gates, ledger, lock, node, observe, phases

POLL_SECONDS = 0.2


def look(params: dict[str, Any]) -> dict[str, Any]:
    """The verdict and what the next call needs."""
    member = node.placed(params["name"], params["generation"])
    entries = ledger.read()
    since = gates.Baseline(**params["baseline"]) if params["baseline"] else started_by(params, entries)
    peers = gates.ready_processes(entries, params["run"]) if params["run"] and member.is_router else {}
    climber = climb.Climber(member, params["until"], since, params["request_timeout"], peers)
    verdict = climb.wait(climber, params["seconds"])
    unit = climber.unit
    said = phases.redact(observe.journal(member.unit, unit.invocation, 300), member.secrets)
    phase = phases.phase(said)
    usual = forecast.history(entries).get(f"start {member.name}")
    told = {
        "reached": climber.reached,
        "baseline": asdict(since or gates.baseline(unit)),
        "process": asdict(gates.baseline(unit)),
        "usual": usual.median if usual else None,
        "phase": phase,
        "running_for": round(time.monotonic() - unit.started_at, 3) if unit.started_at else 0.0,
    }
    if verdict.state == "WAIT" and not member.is_router:
        last = gates.Effort(**params["progress"]) if params["progress"] else None
        verdict, more = judged(climber, verdict, last, phase, params["stall_after"])
        told |= more
    return {**told, "verdict": asdict(verdict), **({"journal": tails(member, said)} if verdict.state != "READY" else {})}


def judged(
    climber: climb.Climber, waits: gates.Verdict, last: gates.Effort | None, phase: str, after: float
) -> tuple[gates.Verdict, dict[str, Any]]:
    """A WAIT with what it has done since the last look; DEAD with its stack when that is nothing for too long."""
    now = climber.effort(last)
    mark = gates.progress(now, last, listens=climber.listens)
    verdict = gates.stalled(waits, now, mark, phase, after)
    told: dict[str, Any] = {"progress": asdict(mark)}
    return verdict, {**told, "stack": climber.stack()} if verdict.state == "DEAD" else told


def tails(member: node.Placed, said: list[str]) -> list[str]:
    """The end of its journal; a router that does not serve may have its reason in an engine's, so theirs come along."""
    found: list[str] = phases.readable(said)[-20:]
    if not member.is_router:
        return found
    for engine in (m for m in node.everyone(member.generation) if not m.is_router):
        lines = observe.journal(engine.unit, observe.unit(engine.unit).invocation, 100)
        found += [f"{engine.name}: {line}" for line in phases.readable(phases.redact(lines, engine.secrets))[-12:]]
    return found


def started_by(params: dict[str, Any], entries: list[ledger.Entry]) -> gates.Baseline | None:
    """The process that this transaction started, out of the ledger: a death before the gate's first look is seen too."""
    if not params["started"]:
        return None
    starts = [e for e in entries if e["event"] == "start" and e.get("run") == params["run"] and e["instance"] == params["name"]]
    return gates.Baseline(**{key: starts[-1][key] for key in ("main_pid", "n_restarts", "invocation")}) if starts else None


def record(params: dict[str, Any], told: dict[str, Any]) -> None:
    """The gate's verdict in the ledger, with the process it is about; `seconds` is from the start of that process."""
    verdict = told["verdict"]
    fields = {"instance": params["name"], "generation": params["generation"], "run": params["run"], "started": params["started"]}
    fields |= {"state": verdict["state"], "rung": verdict["rung"], "why": verdict["why"], "until": params["until"]}
    fields |= told["process"]
    if verdict["state"] == "READY":
        fields["seconds"] = told["running_for"]
    ledger.append("gate", fields)


def watch(params: dict[str, Any]) -> dict[str, Any]:
    """Look until the window or this call is over, or something is not as it was."""
    entries = ledger.read()
    ready = gates.ready_processes(entries, params["run"])
    passed = [e for e in entries if e["event"] == "gate" and e.get("run") == params["run"] and e["state"] == "READY"]
    members = {name: node.placed(name, params["generation"]) for name in ready}
    over = max((float(e["boot"]) for e in passed), default=lock.boottime()) + params["settle"]
    end = min(over, lock.boottime() + params["seconds"])
    while True:
        verdict = gates.settled(ready, {name: observe.unit(member.unit) for name, member in members.items()})
        if verdict.state == "DEAD" or lock.boottime() >= end:
            break
        time.sleep(POLL_SECONDS)
    if verdict.state == "READY" and lock.boottime() < over:
        verdict = gates.Verdict("WAIT", "settled", f"{verdict.why}, {over - lock.boottime():.0f} s to go")
    rungs = {e["instance"]: e["rung"] for e in passed}
    return {"verdict": asdict(verdict), "rungs": rungs, **last_lines(verdict, ready, members)}


def last_lines(verdict: gates.Verdict, ready: dict[str, gates.Baseline], members: dict[str, node.Placed]) -> dict[str, Any]:
    """What the process said before it went, not what came in its place."""
    if verdict.state != "DEAD":
        return {}
    name = verdict.evidence["instance"]
    lines = observe.journal(members[name].unit, ready[name].invocation, 100)
    return {"journal": phases.readable(phases.redact(lines, members[name].secrets))[-20:]}

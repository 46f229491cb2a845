"""The truth table: rows of instances, rows of knobs, findings. Pure: it judges what truth.py read.

It prints the highest rung that was reached and never more. A rung that this generation reached when it was marked good and does
not reach now makes verify fail; everything else that is odd is a finding to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from . import gates, gates_serving, loads, truth_unattended
from .gates import Verdict
from .truth import Everything, Seen
from .truth_unattended import Story
from .truth_unattended import finding as _finding

OWN_KEYS = ("PATH", "HOME", "SPT_NOENV")
"""Set by the product on every instance; proven like the others, but not shown as knobs."""


def verdicts(everything: Everything, generation: str) -> dict[str, tuple[str, Verdict]]:
    """Instance -> (highest rung reached, the verdict that ended the climb)."""
    engines = sum(not s.member.is_router for s in everything.instances)
    found = {}
    for seen in everything.instances:
        reached = "none"
        verdict = gates.alive(seen.unit, None)
        for rung in gates.LADDER[seen.member.role]:
            if rung != "alive":
                verdict = _rung(rung, seen, everything, generation, engines)
            if verdict.state != "READY":
                break
            reached = rung
        found[seen.member.name] = (reached, verdict)
    return found


def _rung(rung: str, seen: Seen, everything: Everything, generation: str, engines: int) -> Verdict:
    if rung == "listening":
        return gates.listening(seen.member.role, seen.ready, seen.route)
    if rung == "serving":
        return gates_serving.judge(everything.served.get(seen.member.name), engines)
    moved = _moved(seen, everything)
    local = seen.local
    served = moved > 0 and local is None
    if served:  # the request through the router is the better proof: the synthetic one was not made
        local = gates.Http(200, {"usage": {"completion_tokens": int(moved)}})
    verdict = gates.working(local, seen.ranks, generation, seen.member.knobs, loads=seen.loads, now=seen.now)
    if verdict.state != "READY" or not served:
        return verdict
    did = "read" if seen.member.role == "prefill" else "wrote"
    return replace(verdict, why=f"{did} {moved:.0f} tokens for the router, {len(seen.ranks)} processes carry {generation}")


def _moved(seen: Seen, everything: Everything) -> float:
    return max((s.moved.get(seen.member.name, 0.0) for s in everything.served.values()), default=0.0)


def judge(everything: Everything, generation: str, good: bool, proved: Mapping[str, str], story: Story) -> dict[str, Any]:
    """`rows`, `knobs` and `findings` for the module to return."""
    climbed = verdicts(everything, generation)
    rows = [_row(seen, everything, *climbed[seen.member.name]) for seen in everything.instances]
    found = [] if good else [_finding("", f"generation {generation} was never proven: no run reached its last gate", True)]
    units = {seen.member.name: seen.unit for seen in everything.instances}
    routers = {seen.member.name for seen in everything.instances if seen.member.is_router}
    engines = {name: unit for name, unit in units.items() if name not in routers}
    found += truth_unattended.findings(engines, {name: units[name] for name in routers}, story)
    runs = {row["instance"]: row["generation"] for row in rows if row["generation"]}
    if len(set(runs.values())) > 1:
        found.append(_finding("", f"mixed generations: {', '.join(f'{name} {runs[name]}' for name in runs)}", True))
    for seen in everything.instances:
        reached, verdict = climbed[seen.member.name]
        found.extend(_findings(seen, generation, reached, verdict, proved.get(seen.member.name)))
    return {"rows": rows, "knobs": knobs(everything), "findings": found}


def _row(seen: Seen, everything: Everything, reached: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "instance": seen.member.name,
        "unit": f"{seen.unit.active_state}, pid {seen.unit.main_pid}" if seen.unit.main_pid else seen.unit.active_state,
        "since": " ".join(seen.unit.since.split()[1:3]),
        "n_restarts": seen.unit.n_restarts,
        "generation": next((r.generation for r in seen.ranks if r.pid == seen.unit.main_pid), None),
        "reached": reached,
        "state": verdict.state,
        "why": verdict.why,
        "load": loads.told(seen.load) if not seen.member.is_router else "",
        "moved": _moved(seen, everything) if not seen.member.is_router else None,
    }


def _findings(seen: Seen, generation: str, reached: str, verdict: Verdict, proved: str | None) -> list[dict[str, Any]]:
    name, unit = seen.member.name, seen.unit
    found = []
    if proved is not None and _height(reached) < _height(proved):
        found.append(_finding(name, f"reached `{proved}` when {generation} was proven, now `{reached}`: {verdict.why}", True))
    strangers = {r.generation for r in seen.ranks if r.generation not in (generation, None)}
    if strangers:
        found.append(_finding(name, f"runs generation {', '.join(sorted(map(str, strangers)))}, current is {generation}: site.yml co-restarts", True))
    if unit.n_restarts:
        found.append(_finding(name, f"systemd restarted it {unit.n_restarts} times since it was started; nobody asked for that", False))
    if unit.need_reload:
        found.append(_finding(name, "its unit file changed on disk and systemd has not read it: the next start by a playbook does", False))
    if unit.drop_ins:
        found.append(_finding(name, f"drop-ins that are not ours: {', '.join(unit.drop_ins)}", False))
    if seen.unit.active_state == "active" and not unit.enabled:
        found.append(_finding(name, "is not enabled: it would not come back after a reboot", False))
    return found


def _height(rung: str) -> int:
    return gates.RUNGS.index(rung) if rung in gates.RUNGS else -1


def knobs(everything: Everything) -> list[dict[str, Any]]:
    """One row a knob: its value on each instance and the rung that is proven there, as cells of `instance -> text`.

    `ranks`: every process has the value; `process`: the main one has; `rendered`: only the file. Where it is no knob of an instance, no
    process of it may have the name: absence is proven too.
    """
    names = sorted({name for seen in everything.instances for name in seen.member.knobs} - set(OWN_KEYS))
    return [{"knob": name, "cells": {s.member.name: _cell(name, s) for s in everything.instances}} for name in names]


def _cell(name: str, seen: Seen) -> str:
    value = seen.member.knobs.get(name)
    if not seen.ranks:
        return "no process" if value is None else f"{value} (rendered)"
    if value is None:
        having = [r for r in seen.ranks if name in r.has]
        return f"NOT OURS, BUT THERE in {len(having)} of {len(seen.ranks)}" if having else f"absent ({len(seen.ranks)})"
    having = [r for r in seen.ranks if r.has.get(name) == value]
    if len(having) == len(seen.ranks):
        return f"{value} (ranks, {len(having)})"
    rung = "process" if any(r.pid == seen.unit.main_pid for r in having) else "rendered"
    return f"{value} ({rung}, {len(having)} of {len(seen.ranks)})"

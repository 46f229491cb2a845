"""One instance, looked at and changed: what sglang_instance does for a playbook, and recover.py without one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from . import ledger, lock, node, observe, shm, stopping


def observed(name: str, unit: str) -> dict[str, Any]:
    """The instance as it is: systemd's view, and PD_GENERATION of its main process."""
    seen = observe.unit(unit)
    has = observe.environ(seen.main_pid) if seen.main_pid else None
    return {**asdict(seen), "name": name, "unit": unit, "generation": (has or {}).get("PD_GENERATION")}


def needs(state: str, seen: dict[str, Any], current: str | None) -> bool:
    """Whether a job must be queued. Pure."""
    runs = seen["active_state"] in ("active", "activating", "reloading")
    if state == "stopped":
        return bool(runs or seen["active_state"] == "deactivating")
    return state == "started" and not (runs and seen["generation"] == current)


def start(unit: str, seen: dict[str, Any]) -> None:
    """Queue a start. A restart is never queued: stop and start are steps of their own."""
    if seen["need_reload"] or not seen["enabled"]:
        observe.run(["systemctl", "daemon-reload"], timeout=30)
    if not seen["enabled"]:
        observe.run(["systemctl", "enable", unit], timeout=30)
    observe.run(["systemctl", "reset-failed", unit])
    observe.run(["systemctl", "start", "--no-block", unit])


def settled(name: str, unit: str, before: dict[str, Any], seconds: float = 3.0) -> dict[str, Any]:
    """After a start: the unit once systemd has given it a process of its own, so that the gate knows which one to watch."""
    deadline = time.monotonic() + seconds
    while True:
        after = observed(name, unit)
        if after["invocation"] != before["invocation"] or time.monotonic() > deadline:
            return after
        time.sleep(0.05)


def started(params: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Start it and record the process that it got."""
    start(params["unit"], before)
    after = settled(params["name"], params["unit"], before)
    record("start", params, after)
    return {"instance": after}


def stopped(params: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Stop it as far as this call gets, and record what happened; the next call goes on from there."""
    since = stopping.begun(ledger.read(), params["run"], params["name"])
    if since is None:
        if needs("stopped", before, None):
            if before["active_state"] != "deactivating":
                observe.run(["systemctl", "stop", "--no-block", params["unit"]])
            record("stop", params, before)
        since = lock.boottime()
    unit = observe.unit(params["unit"])
    had = frozenset() if params["grace"] else shm.used_by(observe.cgroup_pids(unit.control_group))
    halted = stopping.halt(unit, since=since, grace=params["grace"], seconds=params["seconds"], count=counter(params["name"], before))
    told = str(halted)
    if halted.killed and params["grace"]:
        record("killed", params, before, cut=halted.cut)
        told += f", killed with {'an unknown number of' if halted.cut is None else halted.cut} requests in flight"
    if halted.gone and stopping.begun(ledger.read(), params["run"], params["name"]):
        record("stopped", params, before, why=told, shm_freed=shm.clear(had))
    return {"instance": observed(params["name"], params["unit"]), "stopped": halted.gone, "cut": halted.cut, "told": told}


def counter(name: str, seen: dict[str, Any]) -> Callable[[], int | None]:
    """How to count what a router has in flight, at the address it was started with; an engine is asked before it is stopped."""
    try:
        member = node.placed(name, seen["generation"] or "")
    except node.NoGenerationError:
        return lambda: None
    return (lambda: stopping.in_flight(member)) if member.is_router else lambda: None


def record(event: str, params: dict[str, Any], seen: dict[str, Any], **more: Any) -> None:
    """One entry in the ledger, with the process it is about."""
    fields = {"instance": params["name"], "run": params["run"], "generation": node.current_id(), **more}
    ledger.append(event, {**fields, **{key: seen[key] for key in ("main_pid", "n_restarts", "invocation")}})

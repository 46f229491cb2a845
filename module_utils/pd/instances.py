"""One instance, looked at and changed: what sglang_instance does for a playbook and recover.py does without one."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from . import ledger, node, observe

EVENT = {"started": "start", "stopped": "stop"}


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


def started(name: str, unit: str, run: str | None, before: dict[str, Any]) -> dict[str, Any]:
    """Start it, record the process that it got, and return the instance as it is then. Raises RuntimeError, OSError."""
    start(unit, before)
    after = settled(name, unit, before)
    record("start", name, run, after)
    return after


def record(event: str, name: str, run: str | None, seen: dict[str, Any], **more: Any) -> None:
    """One entry in the ledger, with the process it is about."""
    fields = {"instance": name, "run": run, "generation": node.current_id(), **more}
    ledger.append(event, {**fields, **{key: seen[key] for key in ("main_pid", "n_restarts", "invocation")}})

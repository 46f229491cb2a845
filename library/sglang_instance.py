#!/usr/bin/python
"""Observe, start or stop one instance; systemd's job is queued, and waited for in short calls only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_instance
short_description: Observe, start or stop one prefill, decode or router instance
description:
  - Reads what systemd and C(/proc) say of one instance of the active generation, and queues a start or a stop.
  - A job is queued with C(--no-block). Waiting is done from the controller (M(sglang_step)), so a lost connection never
    leaves a half-made restart that nobody knows of.
  - A stop gives the instance O(grace) seconds to finish what is in flight; then all its processes are killed. Nobody needs to be there for
    O(grace) to hold from the moment the stop was queued, but the kill is made by the first call after it.
  - What a killed instance leaves in C(/dev/shm), and nobody else has open or mapped, is unlinked.
  - A start of an instance that already runs the active generation, and a stop of one that does not run, change nothing.
options:
  name:
    description: The instance, for example C(prefill0).
    type: str
    required: true
  state:
    description: C(observed) only looks.
    type: str
    choices: [observed, started, stopped]
    default: observed
  unit:
    description: Its systemd unit.
    type: str
    required: true
  grace:
    description: Seconds to finish what is in flight. 0 kills at once what was measured idle; an engine gets no other stop.
    type: float
    default: 180.0
  seconds:
    description: How long this call may wait for a stop.
    type: float
    default: 8.0
  run:
    description: The transaction on whose behalf this is done; its lock is renewed.
    type: str
attributes:
  check_mode:
    support: full
    description: Says what would change, changes nothing.
  diff_mode:
    support: full
    description: Shows the unit's state before and after.
author: [pdstack]
"""

EXAMPLES = r"""
- name: What does the decode engine run?
  sglang_instance:
    name: decode0
    unit: sglang-engine@decode0.service
"""

RETURN = r"""
instance:
  description: Unit state, main process and the generation that process carries.
  returned: always
  type: dict
  sample: {"name": "decode0", "active_state": "active", "main_pid": 4711, "generation": "0f3c5a9be210"}
stopped:
  description: Whether its last process has ended.
  returned: with O(state=stopped)
  type: bool
cut:
  description: Requests that were in flight when it was killed because O(grace) was over; null where there was no such kill.
  returned: with O(state=stopped)
  type: int
told:
  description: How far the stop has come, in words.
  returned: with O(state=stopped)
  type: str
"""

import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import asdict  # noqa: E402
from typing import Any  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.pd import ledger, lock, node, observe, ops, shm, stopping  # noqa: E402

SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["observed", "started", "stopped"], "default": "observed"},
    "unit": {"type": "str", "required": True},
    "grace": {"type": "float", "default": 180.0},
    "seconds": {"type": "float", "default": 8.0},
    "run": {"type": "str"},
}
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


def main() -> None:
    """Observe, decide, act, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    name, state, unit = params["name"], params["state"], params["unit"]
    told: dict[str, Any] = {}
    try:
        if state == "stopped" and params["grace"]:
            ops.ensure()  # what is killed at once has nothing to be asked
        if params["run"] and not module.check_mode:
            lock.keep(params["run"], doing=f"{EVENT.get(state, state)} {name}")
        before = observed(name, unit)
        changed = needs(state, before, node.current_id())
        if state == "stopped" and not module.check_mode:
            told = stopped(params, before)
        elif changed and not module.check_mode:
            told = started(params, before)
    except (RuntimeError, OSError, ValueError, node.NoGenerationError) as error:
        module.fail_json(msg=f"{name} ({unit}): {error}")
    shown = {"before": f"{before['active_state']}\n", "after": f"{'inactive' if state == 'stopped' else 'active'}\n"}
    module.exit_json(changed=changed, before=before, diff=shown if changed else {}, **{"instance": before, **told})


if __name__ == "__main__":
    main()

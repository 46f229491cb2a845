#!/usr/bin/python
"""Observe, start or stop one instance; systemd's job is queued and never waited for here."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_instance
short_description: Observe, start or stop one prefill, decode or router instance
description:
  - Reads what systemd and C(/proc) say of one instance of the active generation, and queues a start or a stop.
  - A job is queued with C(--no-block). Waiting is done from the controller (M(sglang_step)), so a lost connection never
    leaves a half-made restart that nobody knows of.
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
"""

import time  # noqa: E402
from dataclasses import asdict  # noqa: E402
from typing import Any  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.pd import ledger, lock, node, observe  # noqa: E402

SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["observed", "started", "stopped"], "default": "observed"},
    "unit": {"type": "str", "required": True},
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


def act(state: str, unit: str, seen: dict[str, Any]) -> None:
    """Queue the job. A restart is never queued: stop and start are steps of their own."""
    if state == "stopped":
        if seen["active_state"] != "deactivating":
            observe.run(["systemctl", "stop", "--no-block", unit])
        return
    if seen["need_reload"] or not seen["enabled"]:
        observe.run(["systemctl", "daemon-reload"], timeout=30)
    if not seen["enabled"]:
        observe.run(["systemctl", "enable", unit], timeout=30)
    observe.run(["systemctl", "reset-failed", unit])
    observe.run(["systemctl", "start", "--no-block", unit])


def settled(state: str, name: str, unit: str, before: dict[str, Any], seconds: float = 3.0) -> dict[str, Any]:
    """After a start: the unit once systemd has given it a process of its own, so that the gate knows which one to watch."""
    deadline = time.monotonic() + seconds
    while True:
        after = observed(name, unit)
        if state == "stopped" or after["invocation"] != before["invocation"] or time.monotonic() > deadline:
            return after
        time.sleep(0.05)


def main() -> None:
    """Observe, decide, act, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    name, state, unit, run = (module.params[key] for key in ("name", "state", "unit", "run"))
    try:
        if run and not module.check_mode:
            lock.keep(run)
        before = observed(name, unit)
        changed = needs(state, before, node.current_id())
        if changed and not module.check_mode:
            act(state, unit, before)
            after = settled(state, name, unit, before)
            fields = {"instance": name, "run": run, "generation": node.current_id()}
            ledger.append(EVENT[state], {**fields, **{key: after[key] for key in ("main_pid", "n_restarts", "invocation")}})
        else:
            after = before
    except (RuntimeError, OSError, ValueError) as error:
        module.fail_json(msg=f"{name} ({unit}): {error}")
    shown = {"before": f"{before['active_state']}\n", "after": f"{'inactive' if state == 'stopped' else 'active'}\n"}
    module.exit_json(changed=changed, instance=after, before=before, diff=shown if changed else {})


if __name__ == "__main__":
    main()

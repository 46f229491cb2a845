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

from typing import Any  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.pd import instances, lock, node  # noqa: E402

SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["observed", "started", "stopped"], "default": "observed"},
    "unit": {"type": "str", "required": True},
    "run": {"type": "str"},
}


def main() -> None:
    """Observe, decide, act, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    name, state, unit, run = (module.params[key] for key in ("name", "state", "unit", "run"))
    try:
        if run and not module.check_mode:
            lock.keep(run)
        before = instances.observed(name, unit)
        changed = instances.needs(state, before, node.current_id())
        after = instances.change(state, name, unit, before, run) if changed and not module.check_mode else before
    except (RuntimeError, OSError, ValueError) as error:
        module.fail_json(msg=f"{name} ({unit}): {error}")
    shown = {"before": f"{before['active_state']}\n", "after": f"{'inactive' if state == 'stopped' else 'active'}\n"}
    module.exit_json(changed=changed, instance=after, before=before, diff=shown if changed else {})


if __name__ == "__main__":
    main()

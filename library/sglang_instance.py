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
  then:
    description:
      - Instances of the active generation to start in the same call, once this one is stopped. Each is started as O(state=started) would,
        and found started by that step when its turn comes.
    type: list
    elements: str
    default: []
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

from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import instances, lock, node, ops  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "state": {"type": "str", "choices": ["observed", "started", "stopped"], "default": "observed"},
    "unit": {"type": "str", "required": True},
    "grace": {"type": "float", "default": 180.0},
    "seconds": {"type": "float", "default": 8.0},
    "then": {"type": "list", "elements": "str", "default": []},
    "run": {"type": "str"},
}
EVENT = {"started": "start", "stopped": "stop"}


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
        before = instances.observed(name, unit)
        changed = instances.needs(state, before, node.current_id())
        if state == "stopped" and not module.check_mode:
            told = instances.stopped(params, before)
            instances.onward(params, told)
        elif changed and not module.check_mode:
            told = instances.started(params, before)
    except (RuntimeError, OSError, ValueError, node.NoGenerationError) as error:
        module.fail_json(msg=f"{name} ({unit}): {error}")
    shown = {"before": f"{before['active_state']}\n", "after": f"{'inactive' if state == 'stopped' else 'active'}\n"}
    module.exit_json(changed=changed, before=before, diff=shown if changed else {}, **{"instance": before, **told})


if __name__ == "__main__":
    main()

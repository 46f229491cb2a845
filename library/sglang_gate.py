#!/usr/bin/python
"""One short look up the ladder of one instance."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_gate
short_description: Judge one instance READY, WAIT or DEAD, with evidence
description:
  - Climbs the ladder alive, listening, working, serving for at most O(seconds), polling every 100 ms, and says where it stands.
  - WAIT is an answer, not a failure. Whoever waits calls again (M(sglang_step) does); nothing on the node waits for long.
  - It never restarts anything. A verdict of READY or DEAD of a transaction is written to the ledger.
options:
  name:
    description: The instance.
    type: str
    required: true
  generation:
    description: The generation it must run.
    type: str
    required: true
  until:
    description: The rung to reach.
    type: str
    choices: [alive, listening, working, serving]
    required: true
  baseline:
    description: The process the gate was opened for, as an earlier call returned it; another one in its place is DEAD.
    type: dict
  progress:
    description: The last sign of work, as an earlier call returned it.
    type: dict
  stall_after:
    description: Seconds without any sign of work after which an engine that is not READY is DEAD. 0 waits for the deadline.
    type: float
    default: 0.0
  started:
    description: Whether run O(run) started the process; then that process is the baseline, and its time to READY a start time.
    type: bool
    default: false
  seconds:
    description: How long this call may look.
    type: float
    default: 8.0
  request_timeout:
    description: How long one probe request may take. At most one is out at a time; it outlives the call.
    type: float
    default: 60.0
  run:
    description: The transaction on whose behalf this is done; its lock is renewed and the verdict recorded.
    type: str
attributes:
  check_mode:
    support: full
    description: It only looks; a verdict is not recorded.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Does decode0 generate, with the knobs of the active generation?
  sglang_gate:
    name: decode0
    generation: 0f3c5a9be210
    until: working
"""

RETURN = r"""
verdict:
  description: state, rung, why, and evidence.
  returned: always
  type: dict
  sample: {"state": "READY", "rung": "working", "why": "generated 1 token(s), 3 processes carry 0f3c5a9be210"}
reached:
  description: The highest rung reached.
  returned: always
  type: str
baseline:
  description: The process that was looked at; hand it to the next call.
  returned: always
  type: dict
progress:
  description: The last sign of work; hand it to the next call. Journal lines, CPU seconds, compilers, and the moment, in seconds since boot.
  returned: for an engine that is not READY
  type: dict
stack:
  description: What its processes were doing when it had stalled, as py-spy tells it, secrets redacted.
  returned: when it was DEAD for want of progress
  type: list
  elements: str
process:
  description: The process that was seen last.
  returned: always
  type: dict
usual:
  description: Median seconds of earlier starts out of the ledger, absent without history.
  returned: always
  type: float
phase:
  description: How far its start has come, as its journal tells it.
  returned: always
  type: str
running_for:
  description: Seconds since the main process started.
  returned: always
  type: float
journal:
  description: The last journal lines of this start, secrets redacted.
  returned: when not READY
  type: list
  elements: str
"""

from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import gating, lock, node, ops  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "generation": {"type": "str", "required": True},
    "until": {"type": "str", "choices": ["alive", "listening", "working", "serving"], "required": True},
    "baseline": {"type": "dict"},
    "progress": {"type": "dict"},
    "stall_after": {"type": "float", "default": 0.0},
    "started": {"type": "bool", "default": False},
    "seconds": {"type": "float", "default": 8.0},
    "request_timeout": {"type": "float", "default": 60.0},
    "run": {"type": "str"},
}


def main() -> None:
    """Observe, judge, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        ops.ensure()
        if module.params["run"] and not module.check_mode:
            lock.keep(module.params["run"], doing=f"gate {module.params['name']} until {module.params['until']}")
        told = gating.look(module.params)
        if module.params["run"] and told["verdict"]["state"] != "WAIT" and not module.check_mode:
            gating.record(module.params, told)
    except (RuntimeError, OSError, ValueError, node.NoGenerationError) as error:
        module.fail_json(msg=f"{module.params['name']}: {error}")
    module.exit_json(changed=False, **told)


if __name__ == "__main__":
    main()

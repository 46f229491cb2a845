#!/usr/bin/python
"""After the last gate: is every instance still the process that was READY?"""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_watch
short_description: Watch every instance that a run found READY for a settle window
description:
  - An engine that comes back can kill its peer seconds later, and systemd then starts that one again as if nothing had been. So the gates
    of a run hold only when all their processes are still the same O(settle) seconds after the last of them. Another process, or none, is DEAD.
  - Nothing is asked of the instances; the pair serves meanwhile. Whoever waits calls again (M(sglang_step) does).
options:
  generation:
    description: The generation whose instances are watched.
    type: str
    required: true
  run:
    description: The transaction whose gates are meant; its lock is renewed and the verdict recorded.
    type: str
    required: true
  settle:
    description: Seconds from the last gate.
    type: float
    default: 10.0
  seconds:
    description: How long this call may look.
    type: float
    default: 8.0
attributes:
  check_mode:
    support: full
    description: It only looks; a verdict is not recorded.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Did anything die after its gate?
  sglang_watch:
    generation: 0f3c5a9be210
    run: desk:1a2b3c4d:4711:100
    settle: 10
"""

RETURN = r"""
verdict:
  description: READY when the window is over, WAIT before that, DEAD as soon as an instance is not the process that was READY.
  returned: always
  type: dict
rungs:
  description: Instance to the rung at which it was READY.
  returned: always
  type: dict
journal:
  description: The last lines of the process that was READY and is not there any more, secrets redacted.
  returned: when DEAD
  type: list
  elements: str
"""

from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import gating, ledger, lock, node, ops  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {
    "generation": {"type": "str", "required": True},
    "run": {"type": "str", "required": True},
    "settle": {"type": "float", "default": 10.0},
    "seconds": {"type": "float", "default": 8.0},
}


def main() -> None:
    """Observe, judge, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    try:
        ops.ensure()
        if not module.check_mode:
            lock.keep(params["run"], doing="watch the pair")
        told = gating.watch(params)
        verdict = told["verdict"]
        if verdict["state"] != "WAIT" and not module.check_mode:
            fields = {"run": params["run"], "generation": params["generation"], "instances": list(told["rungs"])}
            ledger.append("settled", {**fields, "state": verdict["state"], "why": verdict["why"], **verdict["evidence"]})
    except (RuntimeError, OSError, ValueError, node.NoGenerationError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **told)


if __name__ == "__main__":
    main()

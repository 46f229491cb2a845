#!/usr/bin/python
"""What the set is doing right now."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_load
short_description: Read the load of the current generation, requests and queues, before anything is judged or stopped
description:
  - Reads C(/v1/loads) of each engine and the router's count of active requests. It sends no request of its own.
options: {}
attributes:
  check_mode:
    support: full
    description: It only looks.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: What would a restart cut?
  pd_load:
"""

RETURN = r"""
load:
  description: Instance to its counts; empty for one that does not answer.
  returned: always
  type: dict
  sample: {"decode0": {"running": 53, "waiting": 0, "decode_transfer_queue_reqs": 2}, "router0": {"active": 55}}
at:
  description: When it was read, on the clock of the machine and on that since its boot.
  returned: always
  type: dict
  sample: {"ts": "2026-11-30T19:38:01.250+00:00", "boot": 5181.25}
told:
  description: The same in words.
  returned: always
  type: dict
"""

from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import loads, node, ops, stamped, truth  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {}


def main() -> None:
    """Observe, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    current, at = node.current_id(), stamped.now()
    try:
        if current is None:
            module.exit_json(changed=False, load={}, at=at, told={})
        ops.ensure()
        load = truth.load_now(current)
    except (OSError, RuntimeError, ValueError, node.NoGenerationError) as error:
        module.fail_json(msg=f"generation {current}: {error}")
    module.exit_json(changed=False, load=load, at=at, told={name: loads.told(counts) for name, counts in load.items()})


if __name__ == "__main__":
    main()

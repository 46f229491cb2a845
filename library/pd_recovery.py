#!/usr/bin/python
"""Lay down on the machine the brain that every module carries there with it, so that systemd can run it too."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_recovery
short_description: Install the program that brings the set up when nobody is there
description:
  - Writes C(/opt/sglang-pd/lib/DIGEST) with the program and its settings, and points C(current) to it in one step.
  - Has systemd read unit files again that changed on disk. It starts and stops nothing.
options:
  settings:
    description: What the program is told - times, window, settle, stall_after, start_deadline, serve_deadline, request_timeout.
    type: dict
    required: true
attributes:
  check_mode:
    support: full
    description: Says whether it would write or have systemd read anything.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Install the program
  pd_recovery:
    settings: {times: 3, window: 1800, settle: 10, start_deadline: 3600, serve_deadline: 300, request_timeout: 60}
"""

RETURN = r"""
digest:
  description: Names what is installed.
  returned: always
  type: str
reloaded:
  description: Units that systemd was made to read again.
  returned: always
  type: list
  elements: str
"""

import json  # noqa: E402  the documentation comes first
from pathlib import Path  # noqa: E402  the documentation comes first
from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import brain, node, observe, recover  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {"settings": {"type": "dict", "required": True}}
LIB = Path("/opt/sglang-pd/lib")


def stale_units() -> list[str]:
    """Units of ours that systemd knows in an older form."""
    current = node.current_id()
    members = node.everyone(current) if current else ()
    units = [unit for m in members for unit in (m.unit, *recover.units(m.name))]
    return [name for name in units if observe.unit(name).need_reload]


def main() -> None:
    """Observe, act, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        settings = recover.Settings(**{key: json.loads(str(value)) for key, value in module.params["settings"].items()})
        files = brain.files(recover.__package__, settings)
        digest = brain.digest(files)
        changed = not brain.is_installed(digest, LIB)
        reloaded = stale_units()
        if not module.check_mode:
            if changed:
                brain.install(files, digest, LIB)
            if reloaded:
                observe.run(["systemctl", "daemon-reload"], timeout=30)
    except (OSError, RuntimeError, TypeError, ValueError, node.NoGenerationError) as error:
        module.fail_json(msg=f"the program that recovers the set: {error}")
    module.exit_json(changed=changed or bool(reloaded), digest=digest, reloaded=reloaded)


if __name__ == "__main__":
    main()

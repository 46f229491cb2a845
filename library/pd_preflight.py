#!/usr/bin/python
"""What only the machine can say, before anything on it is stopped."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_preflight
short_description: Find what would make a restart fail, while everything still runs
description:
  - The model directory, the release, ports inside the kernel's ephemeral range, ports held by somebody else, flags that the
    release's SGLang does not have, the lab's stand-ins on a machine with GPUs.
  - All problems are reported at once. Nothing is changed.
options:
  ports:
    description: Every port of every instance of this machine, made by the action plugin from the inventory.
    type: list
    elements: dict
    default: []
  model:
    description: Where the model must be, and which line asks for it (C(path), C(where)).
    type: dict
    required: true
  release:
    description: The release that must be there, whole.
    type: str
    required: true
  flags:
    description: Flags of the engines that are the user's (C(flag), C(value), C(where)), made by the action plugin.
    type: list
    elements: dict
    default: []
  device:
    description: What the engines compute on; C(cuda) refuses a release with the lab's stand-ins.
    type: str
    default: cuda
attributes:
  check_mode:
    support: full
    description: In check mode what site.yml itself would make (a release, a made model) is not missed.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Look for what would make a restart fail
  pd_preflight:
"""

RETURN = r"""
problems:
  description: What was found.
  returned: always
  type: list
  elements: str
"""

from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.pd import ports, preflight  # noqa: E402
from ansible.module_utils.pd.problem import Problem, report  # noqa: E402

SPEC: dict[str, Any] = {
    "ports": {"type": "list", "elements": "dict", "default": []},
    "model": {"type": "dict", "required": True},
    "release": {"type": "str", "required": True},
    "flags": {"type": "list", "elements": "dict", "default": []},
    "device": {"type": "str", "default": "cuda"},
}


def problems(params: dict[str, Any], check: bool) -> list[Problem]:
    """Everything that is wrong with the machine."""
    asked = [ports.Port(**{**port, "number": int(port["number"])}) for port in params["ports"]]
    found = list(ports.ephemeral_conflicts(asked, preflight.sysctl("ip_local_port_range"), preflight.sysctl("ip_local_reserved_ports")))
    found += preflight.strangers(asked)
    if not check or params["model"]["source"] == "path":
        found += preflight.model(Path(params["model"]["path"]), params["model"]["where"])
    if not check:
        found += preflight.release(params["release"])
    found += preflight.flags(params["flags"], params["release"])
    if params["device"] == "cuda":
        found += preflight.stand_ins(params["release"])
    return found


def main() -> None:
    """Observe, judge, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        found = problems(module.params, module.check_mode)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        module.fail_json(msg=f"preflight: {type(error).__name__}: {error}")
    if found:
        module.fail_json(msg=report(found))
    module.exit_json(changed=False, problems=[])


if __name__ == "__main__":
    main()

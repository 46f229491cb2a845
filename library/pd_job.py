#!/usr/bin/python
"""A long command on the node as a systemd job: started once, looked at in short calls, finished whoever is watching."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_job
short_description: Run a long command on the node as a transient systemd unit, unless what it makes is there
description:
  - Used through the action plugin of this name, which waits with a progress line at least every 10 s. A lost connection or a killed
    run does not stop the command; the next run finds it at work and waits on.
options:
  name:
    description: A short name; the unit is C(sglang-pd-job-NAME).
    type: str
    required: true
  argv:
    description: The command.
    type: list
    elements: str
    required: true
  creates:
    description: The file that the command writes last. Where it exists there is nothing to do.
    type: path
    required: true
  deadline:
    description: Seconds to wait for it.
    type: float
    default: 3600.0
  user:
    description: Who runs it.
    type: str
    default: root
  start:
    description: Start it if it is not at work; false only looks. Made by the action plugin.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: Says whether it would run.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Make the model
  pd_job:
    name: model
    creates: /opt/sglang-pd/models/tiny/model.json
    argv: [/usr/bin/python3, /opt/sglang-pd/libexec/make_model.py, --source, random, --out, /opt/sglang-pd/models/tiny]
"""

RETURN = r"""
state:
  description: C(there) when the file exists, C(running), C(failed), or C(absent) when it would have to run.
  returned: always
  type: str
said:
  description: The last lines the command printed.
  returned: always
  type: list
  elements: str
"""

import time  # noqa: E402  the documentation comes first
from pathlib import Path  # noqa: E402  the documentation comes first
from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import observe  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {
    "name": {"type": "str", "required": True},
    "argv": {"type": "list", "elements": "str", "required": True},
    "creates": {"type": "path", "required": True},
    "deadline": {"type": "float", "default": 3600.0},
    "user": {"type": "str", "default": "root"},
    "start": {"type": "bool", "default": True},
}
LOOK_SECONDS = 6.0


def start(unit: str, params: dict[str, Any]) -> None:
    """Start the command; its output goes to the journal, where it stays."""
    if observe.unit(unit + ".service").active_state == "failed":
        observe.run(["systemctl", "reset-failed", unit + ".service"])
    observe.run(["systemd-run", "--unit", unit, "--uid", params["user"], "--", *params["argv"]])


def look(unit: str, creates: Path, seconds: float) -> str:
    """Wait a little for it to end; where it stands."""
    deadline = time.monotonic() + seconds
    while True:
        state = observe.unit(unit + ".service").active_state
        if state not in ("active", "activating", "deactivating"):
            return "there" if creates.exists() else "failed"
        if time.monotonic() >= deadline:
            return "running"
        time.sleep(0.1)


def main() -> None:
    """Observe, start, look, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    unit, creates = f"sglang-pd-job-{module.params['name']}", Path(module.params["creates"])
    try:
        at_work = observe.unit(unit + ".service").active_state in ("active", "activating")
        if creates.exists() and not at_work:
            module.exit_json(changed=False, state="there", said=[])
        if module.check_mode:
            module.exit_json(changed=True, state="absent", said=[])
        if module.params["start"] and not at_work:
            start(unit, module.params)
        state = look(unit, creates, LOOK_SECONDS)
        said = observe.journal(unit + ".service", observe.unit(unit + ".service").invocation, 15)
    except (RuntimeError, OSError) as error:
        module.fail_json(msg=f"job {module.params['name']}: {error}")
    module.exit_json(changed=True, state=state, said=list(said))


if __name__ == "__main__":
    main()

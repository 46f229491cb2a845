#!/usr/bin/python
"""Open and close a co-restart: the lock, and the entries that frame it in the ledger."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_transaction
short_description: Take or give back the lock of a co-restart, and frame it in the ledger
description:
  - O(state=open) takes the lock or fails with who holds it, since when and why. A lock whose holder is gone is taken over, and the
    ledger says so.
  - O(state=closed) writes how it ended and gives the lock back. It never touches a lock that is not this run's.
options:
  state:
    description: What to do.
    type: str
    choices: [open, closed]
    required: true
  run:
    description: The id of this run.
    type: str
    required: true
  who:
    description: Who runs it, and from where.
    type: str
    default: ""
  why:
    description: The reason, in a few words.
    type: str
    default: ""
  generation:
    description: The generation to bring up.
    type: str
    required: true
  back_from:
    description: The generation that is left, when this goes back to an earlier one.
    type: str
  steps:
    description: The plan, as text.
    type: list
    elements: str
    default: []
  dead_runs:
    description: Runs that the controller knows to be dead.
    type: list
    elements: str
    default: []
  outcome:
    description: How it ended.
    type: str
    choices: [done, failed]
attributes:
  check_mode:
    support: full
    description: Fails as it would, takes nothing.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Take the lock
  pd_transaction:
    state: open
    run: 5f1c
    who: ada@desk
    why: decode knob
    generation: 0f3c5a9be210
"""

RETURN = r"""
lock:
  description: The lock as it was found, or null.
  returned: always
  type: dict
"""

from contextlib import nullcontext  # noqa: E402  the documentation comes first
from dataclasses import asdict  # noqa: E402  the documentation comes first
from datetime import UTC, datetime  # noqa: E402  the documentation comes first
from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import lock, transaction  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["open", "closed"], "required": True},
    "run": {"type": "str", "required": True},
    "who": {"type": "str", "default": ""},
    "why": {"type": "str", "default": ""},
    "generation": {"type": "str", "required": True},
    "back_from": {"type": "str"},
    "steps": {"type": "list", "elements": "str", "default": []},
    "dead_runs": {"type": "list", "elements": "str", "default": []},
    "outcome": {"type": "str", "choices": ["done", "failed"]},
}


def opened(module: AnsibleModule, held: lock.Lock | None) -> bool:
    """Take the lock, take it over, or fail with who has it."""
    params = module.params
    asked = lock.new(params["run"], params["who"], params["why"], datetime.now(UTC).isoformat(timespec="seconds"))
    todo = lock.decide(held, asked, asked.boot, asked.renewed, frozenset(params["dead_runs"]))
    if todo == "refuse" and held is not None:
        module.fail_json(msg=f"another co-restart is at work: {held.told(asked.renewed)}. Nothing was stopped.", lock=asdict(held))
    if module.check_mode:
        return bool(todo != "keep")
    back = {"back_from": params["back_from"]} if params["back_from"] else {}
    transaction.begin(asked, held, params["generation"], **back, steps=params["steps"])
    return True


def closed(params: dict[str, Any]) -> bool:
    """Write the end and give the lock back, if it is ours."""
    return bool(transaction.end(params["run"], params["generation"], params["outcome"]))


def main() -> None:
    """Observe, decide, act, report."""
    needs = [("state", "closed", ["outcome"])]
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True, required_if=needs)
    try:
        with nullcontext() if module.check_mode else lock.exclusive():
            held = lock.read()
            if module.params["state"] == "open":
                changed = opened(module, held)
            else:
                changed = closed(module.params) if not module.check_mode else held is not None
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=changed, lock=asdict(held) if held else None)


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""The truth table of the set: read-only."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_verify
short_description: Climb every rung of every instance of the current generation, and say what is not as proven
description:
  - Reads units, processes, load, router and circuits, sends two small requests through the router, and looks which engine's counters
    moved. It starts, stops and writes nothing.
  - A finding that C(fails) is a rung that was reached when the generation was marked good and is not reached now.
options:
  request_timeout:
    description: How long one request may take.
    type: float
    default: 8.0
attributes:
  check_mode:
    support: full
    description: It only looks.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: What is true?
  pd_verify:
"""

RETURN = r"""
generation:
  description: The current generation, null on a machine without one.
  returned: always
  type: str
rows:
  description: One row an instance.
  returned: always
  type: list
  elements: dict
knobs:
  description: One row a knob, with a cell an instance - the value and the highest rung proven, or that it is absent.
  returned: always
  type: list
  elements: dict
findings:
  description: What is not as it should be; C(fails) says whether it makes the run fail.
  returned: always
  type: list
  elements: dict
"""

from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import ledger, node, ops, store, truth, truth_table, truth_unattended  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {"request_timeout": {"type": "float", "default": 8.0}}


def edited(current: str) -> list[dict[str, Any]]:
    """A finding where the generation on disk is not what was proven: the next start, a recovery's too, would start something else."""
    wrong = store.changed_by_hand(current, node.manifest(current))
    told = f"{', '.join(wrong)} of generation {current} was changed by hand: a start would not start what was proven"
    return [truth_unattended.finding("", told, True)] if wrong else []


def main() -> None:
    """Observe, judge, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    current = node.current_id()
    if current is None:
        module.exit_json(changed=False, generation=None, rows=[], knobs=[], findings=[])
    try:
        ops.ensure()
        seen = truth.look(current, module.params["request_timeout"])
        entries = ledger.read()
        story, changed = truth.story(current, entries), edited(current)
    except (RuntimeError, OSError, ValueError, node.NoGenerationError) as error:
        module.fail_json(msg=f"generation {current}: {error}")
    table = truth_table.judge(seen, current, ledger.is_good(entries, current), ledger.proved_rungs(entries, current), story)
    module.exit_json(changed=False, generation=current, **{**table, "findings": [*changed, *table["findings"]]})


if __name__ == "__main__":
    main()

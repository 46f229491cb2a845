#!/usr/bin/python
"""Documentation of the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_check
short_description: Check the inventory and every knob on the controller, before any machine is touched
description:
  - Reads group_vars, host_vars and the inventory as text and as Ansible loaded them. All problems are reported at once, each with
    file, line, key, what was found and what to write instead.
options: {}
attributes:
  check_mode:
    support: full
    description: It only reads.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Check what is asked
  pd_check:
"""

RETURN = r"""
checked:
  description: The instances that were checked.
  returned: success
  type: list
  elements: str
"""

#!/usr/bin/python
"""Documentation of the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_release
short_description: Find the release that the inventory asks for
description:
  - A release is the pair of venvs of engine and router, named by a digest over the lock files, the packages on top and the interpreter.
  - The id is computed on the controller; on the machine only C(release.json) is looked for, which is written last, and
    which releases the last good generations need.
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
- name: Find the release that is asked for
  pd_release:
  register: runtime_wanted
"""

RETURN = r"""
id:
  description: The release.
  returned: success
  type: str
path:
  description: Its directory on the machine.
  returned: success
  type: str
keep:
  description: Releases that a rollback may need and a build must not prune; empty when there is nothing to build.
  returned: success
  type: list
  elements: str
there:
  description: Whether it is there, whole.
  returned: success
  type: bool
"""

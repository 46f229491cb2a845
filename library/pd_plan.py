#!/usr/bin/python
"""Documentation of the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_plan
short_description: Plan the co-restart from what was observed
description:
  - Pure. It compares the generation each process carries with the wanted one, and says what would be stopped, started and gated, in
    order, with the reason for every instance.
options:
  generation:
    description: The wanted generation.
    type: str
    required: true
  good:
    description: Whether that generation is current and was proven good.
    type: bool
    required: true
  observed:
    description: Results of M(sglang_instance), one an instance.
    type: list
    elements: dict
    required: true
  engines:
    description: Engine instances in start order.
    type: list
    elements: str
    required: true
  routers:
    description: Router instances.
    type: list
    elements: str
    required: true
  strategy:
    description: C(ordered) restarts one engine after the other; C(overlapped) stops both and lets them load at once.
    type: str
    choices: [ordered, overlapped]
    default: ordered
  usual:
    description: What M(pd_generation) says of earlier steps; for the forecast.
    type: dict
  confirm_over_running:
    description:
      - When more requests than this are in flight and something restarts, it asks at the terminal whether to go on; anything but C(yes), or
        no terminal, fails, and nothing was stopped. 0 never asks. Check mode only says that it would ask.
      - A load that cannot be read asks nothing, and the plan says so. Nor does a run that plans a second time, to go back (O(folder)).
    type: int
    default: 0
  folder:
    description: Where the run leaves what it has to show; a new one by default. A run that plans a second time goes on with its first.
    type: str
attributes:
  check_mode:
    support: full
    description: It plans the same.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Plan
  pd_plan:
    generation: "{{ pd_wanted.id }}"
    good: "{{ pd_wanted.good }}"
    observed: "{{ pd_seen.results }}"
    engines: [prefill0, decode0]
    routers: [router0]
"""

RETURN = r"""
steps:
  description: What to do, in order.
  returned: always
  type: list
  elements: dict
restarts:
  description: The instances that get a new process.
  returned: always
  type: list
  elements: str
reasons:
  description: Why each instance is or is not restarted.
  returned: always
  type: dict
expected_outage:
  description: Seconds, by the medians of earlier runs; null without history.
  returned: always
  type: float
load:
  description: The load it read, C(load) by instance, with when that was; empty where nothing restarts or nobody answered.
  returned: always
  type: dict
run:
  description: An id for this run; the lock and the ledger carry it.
  returned: always
  type: str
folder:
  description: Where the run leaves what it has to show (evidence, picture), on the controller; made only when something is left there.
  returned: always
  type: str
who:
  description: Who runs it, and from where.
  returned: always
  type: str
"""

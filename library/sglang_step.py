#!/usr/bin/python
"""Documentation of the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_step
short_description: Carry out one step of a plan on its instance
description:
  - C(stop) lets a router finish what is in flight and waits until the last process of the unit is gone; what is marked hard is killed at
    once. C(drain) waits until the engines hold no request. C(start) queues the start. C(gate) waits for the rung. C(watch) sees whether
    all that was READY stays so.
  - Waiting is done from the controller in short calls with a progress line at least every 10 s. A lost connection is waited out; what was
    queued goes on, and the next look says where it stands.
options:
  step:
    description: One element of C(steps) of M(pd_plan).
    type: dict
    required: true
  unit:
    description: The systemd unit of the instance.
    type: str
    required: true
  generation:
    description: The generation it must run.
    type: str
    required: true
  run:
    description: The transaction on whose behalf this is done.
    type: str
    required: true
  deadline:
    description: Seconds after which waiting ends and the step has failed.
    type: float
    required: true
  request_timeout:
    description: How long one probe request may take.
    type: float
    required: true
  drain_timeout:
    description: Seconds there are for requests in flight from the router's stop on; what is left then is cut, and counted.
    type: float
    default: 180.0
  stall_after:
    description: Seconds without any sign of work after which an engine that is not READY is DEAD; 0 waits for O(deadline).
    type: float
    default: 600.0
  settle:
    description: Seconds after the last gate in which no process may change.
    type: float
    default: 10.0
attributes:
  check_mode:
    support: full
    description: Says what it would do.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Stop, start and gate
  sglang_step:
    step: "{{ item }}"
    unit: sglang-engine@decode0.service
    generation: 0f3c5a9be210
    run: desk:1a2b3c4d:4711:100
    deadline: 3600
    request_timeout: 60
  delegate_to: "{{ item.instance }}"
  loop: "{{ pd_todo.steps }}"
"""

RETURN = r"""
verdict:
  description: The verdict of the step.
  returned: outside check mode
  type: dict
gated:
  description: The instance.
  returned: always
  type: str
reached:
  description: The highest rung reached.
  returned: always
  type: str
seconds:
  description: How long it was waited for.
  returned: outside check mode
  type: float
cut:
  description: Requests that were cut because their time was over.
  returned: for stop and drain
  type: int
stack:
  description: What the processes of an engine that had stalled were doing.
  returned: for a gate that was DEAD for want of progress
  type: list
  elements: str
"""

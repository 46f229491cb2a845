#!/usr/bin/python
"""Documentation of the action plugin of this name."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_step
short_description: Carry out one step of a plan on its instance
description:
  - C(stop) queues the stop and waits until the last process of the unit is gone. C(start) queues the start. C(gate) waits for the rung.
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
  description: The gate's verdict.
  returned: for stop and gate
  type: dict
gated:
  description: The instance.
  returned: outside check mode
  type: str
reached:
  description: The highest rung reached.
  returned: outside check mode
  type: str
seconds:
  description: How long it was waited for.
  returned: for stop and gate
  type: float
"""

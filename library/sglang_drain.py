#!/usr/bin/python
"""Measure whether the engines are empty."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sglang_drain
short_description: Wait, in one short call, until the engines hold no request
description:
  - Reads C(/v1/loads) of each engine - running, waiting, and all queues between prefill and decode - until a report that is newer than the
    question says 0 of all of them, or the time is over.
  - An engine whose report cannot be read, or is old because its scheduler hangs, is not waited for; that is said.
  - It stops nothing. It is meant for the time when the router is gone and nothing new comes.
options:
  names:
    description: The engines.
    type: list
    elements: str
    required: true
  generation:
    description: The generation to bring up. Each engine is asked at the address of the one that its process carries.
    type: str
    required: true
  run:
    description: The transaction on whose behalf this is done; its lock is renewed and the outcome recorded.
    type: str
    required: true
  budget:
    description: Seconds there are to drain, from the moment this run stopped the router.
    type: float
    default: 180.0
  since:
    description: When the first call of this step began, as it was returned.
    type: float
  seconds:
    description: How long this call may look.
    type: float
    default: 8.0
attributes:
  check_mode:
    support: full
    description: It only looks; nothing is recorded.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Do the engines hold any request?
  sglang_drain:
    names: [prefill0, decode0]
    generation: 0f3c5a9be210
    run: desk:1a2b3c4d:4711:100
    budget: 180
"""

RETURN = r"""
verdict:
  description: READY when there is nothing to wait for or no time left, else WAIT; with what each engine holds.
  returned: always
  type: dict
cut:
  description: Requests that the router's end or the coming kill cuts; the count of engines that could not be measured is not in it.
  returned: always
  type: int
since:
  description: When the first call of this step began, in seconds since boot; hand it to the next call.
  returned: always
  type: float
"""

from dataclasses import asdict  # noqa: E402  the documentation comes first
from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import drain, ledger, lock, node, ops  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {
    "names": {"type": "list", "elements": "str", "required": True},
    "generation": {"type": "str", "required": True},
    "run": {"type": "str", "required": True},
    "budget": {"type": "float", "default": 180.0},
    "since": {"type": "float"},
    "seconds": {"type": "float", "default": 8.0},
}


def look(params: dict[str, Any]) -> dict[str, Any]:
    """What the engines hold, and whether that is to be waited for."""
    entries, since = ledger.read(), params["since"] or lock.boottime()
    routers = [member.name for member in node.everyone(params["generation"]) if member.is_router]
    until = drain.begun(entries, params["run"], routers, since) + params["budget"]
    engines = drain.wait(params["names"], params["generation"], until, params["seconds"])
    verdict = drain.verdict(engines, over=lock.boottime() >= until)
    cut = max(drain.cut_by_router(entries, params["run"]), drain.left(engines.values()))
    return {"verdict": asdict(verdict), "cut": cut, "since": since}


def record(params: dict[str, Any], told: dict[str, Any]) -> None:
    """The drain in the ledger: how long it was measured, and what is cut."""
    fields = {"run": params["run"], "generation": params["generation"], "instances": params["names"], "why": told["verdict"]["why"]}
    ledger.append("drained", {**fields, "seconds": round(lock.boottime() - told["since"], 3), "cut": told["cut"]})


def main() -> None:
    """Observe, judge, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        ops.ensure()
        if not module.check_mode:
            lock.keep(module.params["run"], doing=f"drain {', '.join(module.params['names'])}")
        told = look(module.params)
        if told["verdict"]["state"] == "READY" and not module.check_mode:
            record(module.params, told)
    except (RuntimeError, OSError, ValueError, node.NoGenerationError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, **told)


if __name__ == "__main__":
    main()

#!/usr/bin/python
"""What a failed co-restart leaves to be seen, as a bundle of files without secrets."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_evidence
short_description: Collect the evidence of a failed co-restart, and say how it ended
description:
  - O(state=collected) reads units, journals, processes, answers, kernel log, disks, generations and ledger on the node, all at once and in a few
    seconds, and puts them into one directory on the controller. Secrets are hidden. What could not be read is told, and fails nothing.
  - It decides whether the failure is a verdict about the generation, and whether the last good one can be brought up instead.
  - A run that began nothing (the lock was refused) leaves no bundle.
  - O(state=told) fails with the run's last words; the last line is the bundle's path.
options:
  state:
    description: What to do.
    type: str
    choices: [collected, told]
    default: collected
  run:
    description: The transaction; empty when there is none yet.
    type: str
    default: ""
  generation:
    description: The generation that was to be brought up.
    type: str
  failed:
    description: Ansible's result of the task that failed.
    type: dict
  plan:
    description: What M(pd_plan) returned.
    type: dict
  folder:
    description: Where the run leaves what it has to show, on the controller.
    type: str
    default: ""
  part:
    description: A directory of its own inside the bundle, for the failure of a rollback.
    type: str
    default: ""
  rollback:
    description: Whether the last good generation is to be brought up by itself.
    type: bool
    default: false
  first:
    description: What O(state=collected) returned of the failure. Only O(state=told).
    type: dict
  second:
    description: What it returned of the failed rollback, if that failed too. Only O(state=told).
    type: dict
  marked:
    description: What M(pd_generation) returned when the rollback was marked good. Only O(state=told).
    type: dict
attributes:
  check_mode:
    support: full
    description: In check mode nothing was begun, so nothing is collected.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Collect the evidence
  pd_evidence:
    run: "{{ pd_todo.run }}"
    generation: 0f3c5a9be210
    failed: "{{ ansible_failed_result }}"
    plan: "{{ pd_todo }}"
    folder: "{{ pd_todo.folder }}"
  register: pd_evidence
"""

RETURN = r"""
begun:
  description: Whether the run had begun a transaction; otherwise there is no evidence, and the message is all.
  returned: with O(state=collected)
  type: bool
path:
  description: The bundle on the controller, null when it could not be written.
  returned: with O(state=collected)
  type: str
bad:
  description: Whether the failure is a verdict about the generation.
  returned: with O(state=collected)
  type: bool
back:
  description: The generation to bring up instead (C(id), C(good), C(current), C(usual)), or null.
  returned: with O(state=collected)
  type: dict
why_not:
  description: Why there is none to bring up by itself.
  returned: with O(state=collected)
  type: str
causes:
  description: Mechanical evidence of a cause, or that there is none.
  returned: with O(state=collected)
  type: list
  elements: str
routers:
  description: Router to how it stands.
  returned: with O(state=collected)
  type: dict
"""

from dataclasses import asdict  # noqa: E402  the documentation comes first
from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import bundle, collect, forecast, ledger, lock, node, ops, outcome, startable  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["collected", "told"], "default": "collected"},
    "run": {"type": "str", "default": ""},
    "generation": {"type": "str"},
    "failed": {"type": "dict"},
    "plan": {"type": "dict"},
    "folder": {"type": "str", "default": ""},
    "part": {"type": "str", "default": ""},
    "rollback": {"type": "bool", "default": False},
    "first": {"type": "dict"},
    "second": {"type": "dict"},
    "marked": {"type": "dict"},
}


def holder(run: str) -> str | None:
    """Who has the lock, when it is not this run; in words."""
    held = lock.read()
    if held is not None and held.run == run:
        return None
    return held.told(lock.boottime()) if held else "held by nobody"


def back(params: dict[str, Any], what: outcome.Failed) -> dict[str, Any]:
    """The generation to bring up instead, or why there is none."""
    entries = ledger.read()
    mark = ledger.last_good(entries, params["generation"])
    good = str(mark["generation"]) if mark else None
    obstacle = ""
    try:
        if good:
            startable.startable(good, entries)
    except (node.NoGenerationError, OSError) as error:
        obstacle = str(error)
    why = outcome.why_not_back(
        what, params["generation"], wanted=params["rollback"], holder=holder(params["run"]), good=good, obstacle=obstacle
    )
    usual = {step: asdict(took) for step, took in forecast.history(entries).items()}
    found = {"id": good, "good": False, "current": node.current_id(), "usual": usual, "from": params["generation"]}
    return {"back": None if why else found, "why_not": why}


def collected(params: dict[str, Any]) -> dict[str, Any]:
    """The bundle's files, and what is to be done about the failure."""
    what = outcome.Failed(**params["failed"])
    plan = str(params["plan"]["text"])
    seen = collect.collect(bundle.Failure(what.message, what.instance, what.rung, params["run"], params["generation"], plan), what.stack)
    told = {"files": dict(seen.files), "causes": list(seen.causes), "routers": dict(seen.routers)}
    return {**told, "begun": True, "bad": what.is_verdict and holder(params["run"]) is None, **back(params, what)}


def main() -> None:
    """Observe, decide, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    params = module.params
    told: dict[str, Any] = {"begun": False, "bad": False, "back": None, "why_not": "nothing was begun", "files": {}, "causes": [], "routers": {}}
    try:
        begun = params["run"] and any(e["event"] == "begin" and e.get("run") == params["run"] for e in ledger.read())
        if begun and not module.check_mode and params["state"] == "collected":
            ops.ensure()
            told = collected(params)
    except (RuntimeError, OSError, ValueError, TypeError, node.NoGenerationError) as error:
        module.fail_json(msg=f"evidence: {type(error).__name__}: {error}")
    module.exit_json(changed=False, path=None, **told)


if __name__ == "__main__":
    main()

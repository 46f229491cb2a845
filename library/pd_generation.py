#!/usr/bin/python
"""Keep the immutable generations of the set on the machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_generation
short_description: Write a generation, make it current, or mark it good
description:
  - A generation is a directory with everything the set's processes start from, named by its digest. C(current) points to one.
  - O(state=present) is what playbooks use. The action plugin of this name renders the files from the hostvars of all instances on the
    controller and has them written. Nothing is switched, so this can be done while the pair serves.
  - O(state=current) switches the link in one step. Nothing is restarted by it.
  - O(state=good) records in the ledger that the generation is proven, with the rung each instance reached, and prunes old ones.
options:
  state:
    description: What to do. C(observed) only reads; C(written) writes files that are already rendered.
    type: str
    choices: [present, observed, written, current, good]
    default: present
  id:
    description:
      - The generation. With O(state=present) it is computed from the files, unless it is named here - then nothing is rendered, and an
        earlier generation that is still on the machine, with its release, is the one to run. C(previous) is the last other good one.
    type: str
  restart:
    description: Take a fresh nonce, so that the same files make a new generation. Only O(state=present).
    type: bool
    default: false
  files:
    description: Path below the generation's directory to text. Only O(state=written).
    type: dict
  manifest:
    description: What the modules on the node read. Only O(state=written).
    type: dict
  rungs:
    description: Instance to rung reached. Only O(state=good).
    type: dict
  run:
    description: The transaction on whose behalf this is done.
    type: str
attributes:
  check_mode:
    support: full
    description: Says which generation would be written, and shows how its files differ from the current one's.
  diff_mode:
    support: full
    description: One entry for each file of an instance that differs from the current generation; secrets are redacted.
author: [pdstack]
"""

EXAMPLES = r"""
- name: Write what the set should run
  pd_generation:
    restart: true
  register: pd_wanted
"""

RETURN = r"""
id:
  description: The generation that was asked about.
  returned: with O(state=present)
  type: str
current:
  description: The generation that C(current) points to, or null.
  returned: always
  type: str
good:
  description: Whether generation O(id), or the current one when only observed, was marked good.
  returned: always
  type: bool
previous:
  description: The last generation other than the current one that was marked good, or null.
  returned: with O(state=observed)
  type: str
usual:
  description: Step to the seconds it took the last times - median, low, high, times - out of the ledger.
  returned: with O(state=present) and O(state=observed)
  type: dict
unfinished:
  description: The C(begin) entry of a transaction that never ended, or null.
  returned: always
  type: dict
"""

from dataclasses import asdict  # noqa: E402
from typing import Any  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.pd import forecast, ledger, lock, machine, node, preflight, store  # noqa: E402

SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "observed", "written", "current", "good"], "default": "present"},
    "id": {"type": "str"},
    "restart": {"type": "bool", "default": False},
    "files": {"type": "dict", "no_log": True},
    "manifest": {"type": "dict"},
    "rungs": {"type": "dict"},
    "run": {"type": "str"},
}


def observed(asked: str | None) -> dict[str, Any]:
    """The current generation, its instances out of its manifest (without secrets), and what the ledger says of it."""
    current = node.current_id()
    entries = ledger.read()
    told = node.manifest(current) if current else {}
    begun = ledger.unfinished(entries)
    return {
        "current": current,
        # a run that was cut off before it switched is finished too: its generation's nonce is the one to carry on with
        "nonce": (node.manifest(begun["generation"]) if begun else told).get("nonce"),
        "instances": told.get("instances", {}),
        "previous": ledger.previous_good(entries, current),
        "good": ledger.is_good(entries, asked or current or ""),
        "usual": {step: asdict(usual) for step, usual in forecast.history(entries).items()},
        "unfinished": begun,
    }


def startable(asked: str | None) -> None:
    """Raise NoGenerationError when a generation that was asked for by name, or its release, is not on the machine whole."""
    missing = preflight.release(node.manifest(asked)["release"]) if asked else []
    if missing:
        raise node.NoGenerationError(f"it cannot be started: {missing[0]}")


def act(params: dict[str, Any]) -> bool:
    """Do what the state asks; whether anything changed."""
    if params["state"] == "written":
        return bool(store.write(params["id"], params["files"], {**params["manifest"], "machine": machine.facts()}))
    if params["state"] == "current":
        return bool(store.switch(params["id"]))
    entries = ledger.read()
    ledger.append("good", {"generation": params["id"], "rungs": params["rungs"] or {}, "run": params["run"]})
    store.prune([e["generation"] for e in entries if e["event"] == "good"], keep=[params["id"], node.current_id() or ""])
    return True


def main() -> None:
    """Observe, act, report."""
    needs_id = [("state", state, ["id"]) for state in ("written", "current", "good")]
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True, required_if=needs_id)
    if module.params["state"] == "present":
        module.fail_json(msg="state=present is rendered by the action plugin of this name; is action_plugins set in ansible.cfg?")
    try:
        if module.params["state"] == "observed":
            startable(module.params["id"])
            module.exit_json(changed=False, **observed(module.params["id"]))
        if module.params["run"] and not module.check_mode:
            lock.keep(module.params["run"])
        changed = True if module.check_mode else act(module.params)
    except (OSError, LookupError, RuntimeError, ValueError, node.NoGenerationError) as error:
        module.fail_json(msg=f"generation {module.params['id']}: {error}")
    told = observed(module.params["id"])
    module.exit_json(changed=changed, **{key: told[key] for key in ("current", "good", "unfinished")})


if __name__ == "__main__":
    main()

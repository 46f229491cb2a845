#!/usr/bin/python
"""Keep the immutable generations of the set on the machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_generation
short_description: Write a generation, make it current, or mark it good or bad
description:
  - A generation is a directory with everything the set's processes start from, named by its digest. C(current) points to one.
  - O(state=present) is what playbooks use. The action plugin of this name renders the files from the hostvars of all instances on the
    controller and has them written. Nothing is switched, so this can be done while the pair serves.
  - O(state=current) switches the link in one step. Nothing is restarted by it.
  - O(state=good) records in the ledger that the generation is proven, with the rung each instance reached, and prunes old ones.
  - O(state=bad) records that it failed its gate. Files that failed and were never proven are refused from then on, unless O(retry).
  - A generation is never edited. One whose files are not what was written is refused, if it is asked for or is current.
options:
  state:
    description: What to do. C(observed) and C(kept) only read; C(written) writes files that are already rendered.
    type: str
    choices: [present, observed, kept, written, current, good, bad]
    default: present
  id:
    description:
      - The generation. With O(state=present) it is computed from the files, unless it is named here - then nothing is rendered, and an
        earlier generation that is still on the machine, with its release, is the one to run.
      - C(previous) is the last good one with other files than the current one's; if the current one was never proven, the last good one.
    type: str
  restart:
    description: Take a fresh nonce, so that the same files make a new generation. Only O(state=present).
    type: bool
    default: false
  retry:
    description: Take a generation although one with the same files failed and none was ever proven. Only O(state=present).
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
  why:
    description: What failed. Only O(state=bad).
    type: str
  evidence:
    description: Where the evidence is, on the controller. Only O(state=bad).
    type: str
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
  returned: with O(state=present) and O(state=observed)
  type: str
current:
  description: The generation that C(current) points to, or null.
  returned: unless O(state=kept)
  type: str
good:
  description: Whether generation O(id), or the current one when only observed, was marked good.
  returned: unless O(state=kept)
  type: bool
releases:
  description: Releases of the current generation and of those a rollback would go to.
  returned: with O(state=kept)
  type: list
  elements: str
bad:
  description: Content (the digest of the files and the release, without the nonce) to the ledger's entry, where it failed and was never proven.
  returned: with O(state=observed)
  type: dict
content:
  description: The content of generation O(id), or of the current one when only observed, or null.
  returned: with O(state=observed)
  type: str
at:
  description: When it was marked, UTC.
  returned: with O(state=good) and O(state=bad)
  type: str
usual:
  description: Step to the seconds it took the last times - median, low, high, times - out of the ledger.
  returned: with O(state=present) and O(state=observed)
  type: dict
unfinished:
  description: The C(begin) entry of a transaction that never ended, or null.
  returned: unless O(state=kept)
  type: dict
"""

from dataclasses import asdict  # noqa: E402  the documentation comes first
from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import forecast, ledger, lock, machine, node, startable, store  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {
    "state": {"type": "str", "choices": ["present", "observed", "kept", "written", "current", "good", "bad"], "default": "present"},
    "id": {"type": "str"},
    "restart": {"type": "bool", "default": False},
    "retry": {"type": "bool", "default": False},
    "files": {"type": "dict", "no_log": True},
    "manifest": {"type": "dict"},
    "rungs": {"type": "dict"},
    "why": {"type": "str"},
    "evidence": {"type": "str"},
    "run": {"type": "str"},
}


NONE_BEFORE = "no other generation was ever marked good, so there is none to go back to. Nothing was stopped."


def resolved(asked: str | None) -> str | None:
    """The generation that is meant by `previous`; any other name means itself. Raises NoGenerationError where there is none."""
    if asked != "previous":
        return asked
    found: str | None = ledger.previous_good(ledger.read(), node.current_id())
    if found is None:
        raise node.NoGenerationError(NONE_BEFORE)
    return found


def observed(asked: str | None) -> dict[str, Any]:
    """The current generation, its instances out of its manifest (without secrets), and what the ledger says of it."""
    current = node.current_id()
    entries = ledger.read()
    told = node.manifest(current) if current and node.is_whole(current) else {}
    begun = ledger.unfinished(entries)
    # a run that was cut off before it switched is finished too: its generation's nonce is the one to carry on with
    nonce = node.manifest(begun["generation"])["nonce"] if begun and node.is_whole(begun["generation"]) else told.get("nonce")
    return {
        "id": asked,
        "current": current,
        "nonce": nonce,
        "instances": told.get("instances", {}),
        "good": ledger.is_good(entries, asked or current or ""),
        "content": (node.manifest(asked) if asked else told).get("content"),
        "bad": ledger.bad_contents(entries),
        "usual": {step: asdict(usual) for step, usual in forecast.history(entries).items()},
        "unfinished": begun,
        # one that was cut off while it brought a proven generation up (a recovery, a rollback) has proven nothing new to go on with
        "finishing": begun is not None and not ledger.is_good(entries, begun["generation"]),
    }


def needed_releases() -> list[str]:
    """Releases that must not be pruned: of what is current, and of where a rollback would go."""
    kept = ledger.kept(ledger.read(), node.current_id())
    return list(dict.fromkeys(node.manifest(generation)["release"] for generation in kept if node.is_whole(generation)))


def check(state: str, asked: str | None) -> None:
    """Raise NoGenerationError when what would be run is not on the machine as it was written, with its release.

    Nobody asks about the current one who goes to another: that may be the way out.
    """
    if state == "observed" and asked:
        startable.startable(asked, ledger.read())
    elif state in ("observed", "written", "current"):
        about = node.current_id() if state == "observed" else asked
        if node.is_whole(about):
            startable.untouched(about)


def act(params: dict[str, Any]) -> dict[str, Any]:
    """Do what the state asks; whether anything changed, and when a mark was made."""
    if params["state"] == "written":
        return {"changed": bool(store.write(params["id"], params["files"], {**params["manifest"], "machine": machine.facts()}))}
    if params["state"] == "current":
        return {"changed": bool(store.switch(params["id"]))}
    mark = {"generation": params["id"], "content": node.manifest(params["id"]).get("content"), "run": params["run"]}
    if params["state"] == "bad":
        return {"changed": True, "at": ledger.append("bad", {**mark, "why": params["why"], "evidence": params["evidence"]})["ts"]}
    made = ledger.append("good", {**mark, "rungs": params["rungs"] or {}})
    entries = ledger.read()
    store.prune([e["generation"] for e in entries if e["event"] == "good"], keep=ledger.kept(entries, node.current_id()))
    return {"changed": True, "at": made["ts"]}


def main() -> None:
    """Observe, act, report."""
    needs_id = [("state", state, ["id"]) for state in ("written", "current", "good", "bad")]
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True, required_if=needs_id)
    if module.params["state"] == "present":
        module.fail_json(msg="state=present is rendered by the action plugin of this name; is action_plugins set in ansible.cfg?")
    try:
        if module.params["state"] == "kept":
            module.exit_json(changed=False, releases=needed_releases())
        asked = resolved(module.params["id"])
        check(module.params["state"], asked)
        if module.params["state"] == "observed":
            module.exit_json(changed=False, **observed(asked))
        if module.params["run"] and not module.check_mode:
            lock.keep(module.params["run"])
        done = {"changed": True} if module.check_mode else act(module.params)
    except (OSError, LookupError, RuntimeError, ValueError, node.NoGenerationError) as error:
        module.fail_json(msg=f"generation {module.params['id'] or node.current_id()}: {error}")
    told = observed(None)
    good = ledger.is_good(ledger.read(), module.params["id"])
    module.exit_json(**done, current=told["current"], good=good, unfinished=told["unfinished"])


if __name__ == "__main__":
    main()

"""Render the generation that the inventory asks for, on the controller, and have it written on the node."""

from __future__ import annotations

import getpass
import secrets
import socket
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from pd import generation, members, project

BAD = """generation {asked} is not brought up, and nothing was stopped: the same files and release failed as {generation} at {ts}, and never passed.
    it failed: {why}
    evidence:  {evidence} (on {host})
    Change group_vars (or go back with rollback.yml), or try it again as it is: -e pd_retry=true"""


class ActionModule(ActionBase):
    """`state: present` is rendered here; every other state goes to the module as it is."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The generation's id, whether it was written, and how it differs from the current one."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        told = task_vars or {}
        if self._task.args.get("state", "present") != "present":
            return {**result, **self._execute_module(task_vars=told)}
        earlier = {"id": self._task.args["id"]} if self._task.args.get("id") else {}
        seen = self._execute_module(module_args={"state": "observed", **earlier}, task_vars=told)
        if seen.get("failed"):
            return {**result, **seen}
        return {**result, **(self._earlier(seen) if earlier else self._asked_for(told, seen))}

    def _asked_for(self, told: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
        """The generation that the inventory asks for, written unless it is there."""
        wanted = self._wanted(told, seen)
        new = generation.generation_id(wanted)
        refused = self._refused(new, seen["bad"].get(generation.content_id(wanted)))
        if refused:
            return refused
        answer = {"id": new, "current": seen["current"], "good": False, "nonce": wanted.nonce}
        answer |= {"unfinished": seen["unfinished"], "usual": seen["usual"]}
        if new == seen["current"]:
            return {**answer, "good": seen["good"], "changed": False, "diff": []}
        written: dict[str, Any] = self._execute_module(
            module_args={
                "state": "written",
                "id": new,
                "files": generation.files(wanted, new),
                "manifest": generation.manifest(wanted, new, _origin(Path(told["playbook_dir"]))),
            },
            task_vars=told,
        )
        if written.get("failed"):
            return written
        # `good` is asked of what is current only: a generation that is switched to must pass its gates again
        return {**answer, "changed": written["changed"], "diff": generation.diff_against(seen["instances"], wanted)}

    def _earlier(self, seen: dict[str, Any]) -> dict[str, Any]:
        """An earlier generation instead of the one that group_vars ask for; the node found it whole, with its release."""
        refused = self._refused(seen["id"], seen["bad"].get(seen["content"]))
        if refused:
            return refused
        good = seen["good"] and seen["id"] == seen["current"]
        kept = {key: seen[key] for key in ("id", "current", "unfinished", "usual")}
        kept |= {"from": seen["current"]} if seen["id"] != seen["current"] else {}
        return {**kept, "good": good, "changed": False, "diff": []}

    def _refused(self, asked: str, mark: dict[str, Any] | None) -> dict[str, Any] | None:
        """The failure that keeps what failed before from being tried again in silence; None when it may be tried."""
        if mark is None or self._flag("retry"):
            return None
        told = {key: mark.get(key) or "not recorded" for key in ("generation", "ts", "why", "evidence", "run")}
        return {"failed": True, "msg": BAD.format(asked=asked, host=told["run"].partition(":")[0], **told)}

    def _flag(self, name: str) -> bool:
        return str(self._task.args.get(name, False)).lower() in ("true", "yes", "1")

    def _wanted(self, told: dict[str, Any], seen: dict[str, Any]) -> generation.Wanted:
        root = Path(told["playbook_dir"])
        spec = project.read_spec(root, told.get("ansible_inventory_sources") or [], told["groups"], told["hostvars"])
        release = project.release_of(root, next(iter(spec.nodes.values())))
        restart = self._flag("restart")
        nonce = generation.next_nonce(seen["nonce"], restart, seen["finishing"], secrets.token_hex(4))
        return generation.Wanted(members.members(spec, release), release, nonce)


def _origin(root: Path) -> dict[str, Any]:
    """Who made this generation, when, and from which revision of the project."""
    return {
        "by": f"{getpass.getuser()}@{socket.gethostname()}",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": _git(root, "describe", "--always", "--dirty", "--abbrev=12"),
    }


def _git(root: Path, *argv: str) -> str | None:
    done = subprocess.run(["git", "-C", str(root), *argv], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None

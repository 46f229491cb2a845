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


class ActionModule(ActionBase):  # type: ignore[misc]
    """`state: present` is rendered here; every other state goes to the module as it is."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The generation's id, whether it was written, and how it differs from the current one."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        told = task_vars or {}
        if self._task.args.get("state", "present") != "present":
            return {**result, **self._execute_module(task_vars=told)}
        seen = self._execute_module(module_args={"state": "observed"}, task_vars=told)
        if seen.get("failed"):
            return {**result, **seen}
        if self._task.args.get("id"):
            return {**result, **self._earlier(told, seen, str(self._task.args["id"]))}
        wanted = self._wanted(told, seen)
        new = generation.generation_id(wanted)
        answer = {"id": new, "current": seen["current"], "good": False, "nonce": wanted.nonce}
        answer |= {"unfinished": seen["unfinished"], "usual": seen["usual"]}
        if new == seen["current"]:
            return {**result, **answer, "good": seen["good"], "changed": False, "diff": []}
        written = self._execute_module(
            module_args={
                "state": "written",
                "id": new,
                "files": generation.files(wanted, new),
                "manifest": generation.manifest(wanted, new, _origin(Path(told["playbook_dir"]))),
            },
            task_vars=told,
        )
        if written.get("failed"):
            return {**result, **written}
        # `good` is asked of what is current only: a generation that is switched to must pass its gates again
        return {**result, **answer, "changed": written["changed"], "diff": generation.diff_against(seen["instances"], wanted)}

    def _earlier(self, told: dict[str, Any], seen: dict[str, Any], asked: str) -> dict[str, Any]:
        """An earlier generation instead of the one that group_vars ask for; it must be on the machine whole, with its release."""
        wanted = seen["previous"] if asked == "previous" else asked
        if wanted is None:
            return {"failed": True, "msg": "no other generation was ever marked good, so there is none to go back to. Nothing was stopped."}
        there: dict[str, Any] = self._execute_module(module_args={"state": "observed", "id": wanted}, task_vars=told)
        if there.get("failed"):
            return there
        good = there["good"] and wanted == seen["current"]
        kept = {key: seen[key] for key in ("current", "unfinished", "usual")}
        return {"id": wanted, "good": good, "changed": False, "diff": [], **kept}

    def _wanted(self, told: dict[str, Any], seen: dict[str, Any]) -> generation.Wanted:
        root = Path(told["playbook_dir"])
        spec = project.read_spec(root, told.get("ansible_inventory_sources") or [], told["groups"], told["hostvars"])
        release = project.release_of(root, next(iter(spec.nodes.values())))
        restart = str(self._task.args.get("restart", False)).lower() in ("true", "yes", "1")
        nonce = generation.next_nonce(seen["nonce"], restart, seen["unfinished"] is not None, secrets.token_hex(4))
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

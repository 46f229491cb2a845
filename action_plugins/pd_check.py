"""Check everything that was asked for, on the controller, before any machine is touched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from pd import inventory, project, sources
from pd.problem import Problem

NO_INVENTORY = """there is no inventory: {path} is missing or has no hosts.
  cp inventory/example.yml inventory/hosts.yml
then edit the two marked lines in it: ansible_host (the machine) and ansible_user (who may become root there)."""


class ActionModule(ActionBase):
    """Judge the inventory as a whole; all problems are reported at once."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The result: how many instances were checked, or every problem."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        told = task_vars or {}
        root = Path(told["playbook_dir"])
        inventories = list(told.get("ansible_inventory_sources") or [])
        groups, hostvars = told["groups"], told["hostvars"]
        if not [name for name in groups.get("all", []) if name != "localhost"]:
            path = inventories[0] if inventories else root / "inventory" / "hosts.yml"
            return {**result, "failed": True, "msg": NO_INVENTORY.format(path=path)}
        # the files first, as text: what makes Ansible itself stumble over them is then told with file and line
        problems = list(sources.read(root, [Path(i) for i in inventories]).problems)
        if not problems:
            spec = project.read_spec(root, inventories, groups, hostvars)
            problems = [*inventory.check(spec), *_machines(groups.get("nodes", []))]
        if problems:
            return {**result, "failed": True, "msg": inventory.report(problems)}
        return {**result, "changed": False, "checked": [i.name for i in spec.instances]}


def _machines(nodes: Sequence[str]) -> list[Problem]:
    """One machine a set, for now: generations and preflight are made on the first one only."""
    if len(nodes) == 1:
        return []
    found = ", ".join(nodes) if nodes else "no host"
    return [Problem("inventory", "group nodes", found, "exactly one host: a set spans one machine for now")]

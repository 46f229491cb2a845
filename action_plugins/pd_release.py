"""Which release the inventory asks for, and whether it is on the machine whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from pd import members, project

NAMES = ("runtime_python", "runtime_engine_lock", "runtime_router_lock", "runtime_nvcc_lock", "runtime_packages")


class ActionModule(ActionBase):
    """The id is computed on the controller from the lock files and packages; only the look is made on the node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """`id`, `path`, `there`: whether its release.json exists, and `keep`: the releases that a rollback may need."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        told = task_vars or {}
        node = {name: self._templar.template(told[name]) for name in NAMES}
        try:
            release = project.release_of(Path(told["playbook_dir"]), node)
        except FileNotFoundError as error:
            return {**result, "failed": True, "msg": f"{', '.join(NAMES[1:])} (group_vars/nodes.yml): {error}"}
        path = f"{members.RELEASES}/{release}"
        seen = self._execute_module(module_name="ansible.builtin.stat", module_args={"path": f"{path}/release.json"}, task_vars=told)
        if seen.get("failed"):
            return {**result, **seen}
        answer = {**result, "changed": False, "id": release, "path": path, "there": seen["stat"]["exists"], "keep": []}
        if answer["there"]:
            return answer  # nothing is built, so nothing is pruned
        kept = self._execute_module(module_name="pd_generation", module_args={"state": "kept"}, task_vars=told)
        return {**result, **kept} if kept.get("failed") else {**answer, "keep": kept["releases"]}

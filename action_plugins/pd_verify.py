"""Show the truth table, and fail when a rung that was reached before is not reached now."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from pd import show


class ActionModule(ActionBase):
    """The module reads and judges; this side prints."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer, failed when a finding says so."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        told = self._execute_module(task_vars=task_vars)
        if told.get("failed"):
            return {**result, **told}
        if told["generation"] is None:
            nothing = "no generation is active on this machine: site.yml has not brought the set up"
            return {**result, **told, "failed": not self._task.check_mode, "msg": nothing}
        for line in show.table(told).splitlines():
            Display().display(line)
        wrong = [f"{f['instance']}: {f['text']}".removeprefix(": ") for f in told["findings"] if f["fails"]]
        if wrong:  # the table above has the rest; here is only what is wrong
            return {**result, "changed": False, "failed": True, "msg": "\n".join(wrong), "findings": told["findings"]}
        return {**result, **told}

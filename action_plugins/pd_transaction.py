"""Open or close a co-restart. A lock whose holder ran on this very controller and is dead is taken over at once."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from pd import runs


class ActionModule(ActionBase):
    """The module decides; this side only adds what can be seen on the controller alone."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """What the module answers; asked a second time with the dead run named when that was the obstacle."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        told = self._execute_module(task_vars=task_vars)
        held = told.get("lock") or {}
        if told.get("failed") and held and runs.is_dead_here(held["run"]):
            told = self._execute_module(module_args={**self._task.args, "dead_runs": [held["run"]]}, task_vars=task_vars)
        return {**result, **told}

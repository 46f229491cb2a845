"""Plan the co-restart: pure, on the controller, from what was observed on the nodes."""

from __future__ import annotations

import getpass
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from pd import forecast, plan, runs


class ActionModule(ActionBase):  # type: ignore[misc]
    """Turn observations into steps, and say them before anything happens."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The steps as data, the reasons, and which instances would get a new process."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = self._task.args
        seen = {
            one["instance"]["name"]: plan.Seen(one["instance"]["active_state"], one["instance"]["generation"])
            for one in args["observed"]
        }
        strategy: plan.Strategy = args.get("strategy", "ordered")
        made = plan.plan(seen, args["generation"], bool(args["good"]), args["engines"], args["routers"], strategy=strategy)
        usual = {step: forecast.Usual(**told) for step, told in (args.get("usual") or {}).items()}
        for line in [*plan.told(made), *forecast.told(made, usual, strategy), *self._load_now(made, task_vars)]:
            Display().display(line)
        run = runs.new()
        return {
            **result,
            "changed": False,
            "run": run,
            "folder": str(args.get("folder") or runs.folder(Path((task_vars or {}).get("playbook_dir", ".")), run)),
            "who": f"{getpass.getuser()}@{socket.gethostname()}",
            "steps": [{**asdict(step), "text": str(step)} for step in made.steps],
            "restarts": list(made.restarts),
            "reasons": dict(made.reasons),
            "expected_outage": forecast.outage(made, usual, strategy),
        }

    def _load_now(self, made: plan.Plan, task_vars: dict[str, Any] | None) -> list[str]:
        """What is running that a restart would cut: asked only when something restarts, and an answer that fails stops nothing."""
        if not made.restarts:
            return []
        seen = self._execute_module(module_name="pd_load", module_args={}, task_vars=task_vars)
        if seen.get("failed"):
            return [f"  load now: unknown ({seen.get('msg')})"]
        return [f"  load now: {', '.join(f'{name} {load}' for name, load in seen['told'].items()) or 'nothing runs'}"]

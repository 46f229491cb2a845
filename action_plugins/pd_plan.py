"""Plan the co-restart: pure, on the controller, from what was observed on the nodes."""

from __future__ import annotations

import getpass
import socket
from dataclasses import asdict
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from pd import plan, runs


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
        made = plan.plan(seen, args["generation"], bool(args["good"]), args["engines"], args["routers"])
        for line in plan.told(made):
            Display().display(line)
        return {
            **result,
            "changed": False,
            "run": runs.new(),
            "who": f"{getpass.getuser()}@{socket.gethostname()}",
            "steps": [{**asdict(step), "text": str(step)} for step in made.steps],
            "restarts": list(made.restarts),
            "reasons": dict(made.reasons),
        }

"""Start a long command on the node and wait for it in short calls."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from pd import patience


class ActionModule(ActionBase):
    """The first call may start the command; later ones only look, so nothing is started twice."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Changed when the command ran; failed with its last lines."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        first = True

        def call() -> dict[str, Any]:
            nonlocal first
            with patience.connection(AnsibleConnectionFailure, self._connection.reset):
                answer: dict[str, Any] = self._execute_module(module_args={**args, "start": first}, task_vars=task_vars)
            first = False
            return answer

        def tell(elapsed: float, seen: dict[str, Any]) -> str:
            return f"{args['name']}: {patience.took(elapsed)} | {(seen.get('said') or [''])[-1][:120]}"

        def done(seen: dict[str, Any]) -> bool:
            return bool(seen.get("failed")) or seen["state"] != "running"

        clock = patience.Clock(time.monotonic, time.sleep)
        deadline = float(args.get("deadline", 3600))
        seen, seconds = patience.wait(call, done, tell, lambda line: Display().display(f"  {line}"), deadline=deadline, clock=clock)
        if seen.get("failed"):
            return {**result, **seen}
        if seen["state"] in ("failed", "running"):
            how = "failed" if seen["state"] == "failed" else "is still at work"
            last = "\n".join(f"  {line}" for line in seen["said"])
            return {**result, "failed": True, "changed": True, "msg": f"{args['name']} {how} after {patience.took(seconds)}:\n{last}"}
        return {**result, "changed": seen["changed"], "state": seen["state"], "seconds": round(seconds, 1)}

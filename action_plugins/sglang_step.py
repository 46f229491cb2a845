"""Carry out one step of a plan on its instance: queue it, then wait for it in short calls, with progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from pd import patience

CALL_SECONDS = 8.0
"""How long one call may look: below the 10 s of the design, ssh's own round trip included."""
STATE_OF = {"stop": "stopped", "start": "started"}


class ActionModule(ActionBase):  # type: ignore[misc]
    """`stop` waits for the last process to be gone, `gate` for its rung; `start` only queues."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The verdict, and how long it took."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        told, args = task_vars or {}, self._task.args
        step = args["step"]
        name, action = step["instance"], step["action"]
        if self._task.check_mode:
            return {**result, "changed": action != "gate", "predicted": step["text"], "gated": name, "reached": "none"}
        if action != "gate":
            # asked again after a lost connection, it looks first: what is queued or runs already is left alone
            queued, _ = self._patiently(
                lambda: self._call(told, "sglang_instance", name=name, state=STATE_OF[action], unit=args["unit"], run=args["run"]),
                lambda _answer: True,
                lambda _elapsed, _answer: f"{name}: {action}",
            )
            if queued.get("failed") or action == "start":
                return {**result, **queued, "gated": name, "reached": "none"}
        until = step["until"] or "stopped"
        seen, seconds = self._wait(told, until)
        verdict = seen["verdict"] if not seen.get("failed") else {"state": "DEAD", "rung": "?", "why": seen["msg"]}
        answer = {**result, "changed": action == "stop", "verdict": verdict, "gated": name}
        answer |= {"reached": seen.get("reached"), "seconds": round(seconds, 2)}
        if verdict["state"] == "READY":
            Display().display(f"  {name}: {until} after {patience.took(seconds)} ({verdict['why']})")
            return answer
        return {**answer, "failed": True, "msg": _message(name, until, seconds, verdict, seen.get("journal") or [])}

    def _wait(self, told: dict[str, Any], until: str) -> tuple[dict[str, Any], float]:
        args = self._task.args
        step = args["step"]
        baseline: dict[str, Any] | None = None
        end = time.monotonic() + float(args["deadline"])

        def call() -> dict[str, Any]:
            nonlocal baseline
            seen = self._call(
                told,
                "sglang_gate",
                name=step["instance"],
                generation=args["generation"],
                until=until,
                baseline=baseline,
                started=step["started"],
                request_timeout=args["request_timeout"],
                seconds=max(0.5, min(CALL_SECONDS, end - time.monotonic())),
                run=args["run"],
            )
            baseline = seen.get("baseline") or baseline
            return seen

        def tell(elapsed: float, seen: dict[str, Any]) -> str:
            usual = f", usually {patience.took(seen['usual'])}" if seen.get("usual") and until != "stopped" else ""
            return f"{step['instance']}: {patience.took(elapsed)}{usual} | {seen.get('phase', '')} | {seen['verdict']['why']}"

        def done(seen: dict[str, Any]) -> bool:
            return bool(seen.get("failed")) or seen["verdict"]["state"] != "WAIT"

        return self._patiently(call, done, tell)

    def _patiently(
        self,
        call: Callable[[], dict[str, Any]],
        done: Callable[[dict[str, Any]], bool],
        tell: Callable[[float, dict[str, Any]], str],
    ) -> tuple[dict[str, Any], float]:
        clock = patience.Clock(time.monotonic, time.sleep)
        deadline = float(self._task.args["deadline"])
        return patience.wait(call, done, tell, lambda line: Display().display(f"  {line}"), deadline=deadline, clock=clock)

    def _call(self, told: dict[str, Any], module: str, **args: Any) -> dict[str, Any]:
        with patience.connection(AnsibleConnectionFailure, self._connection.reset):
            answer: dict[str, Any] = self._execute_module(module_name=module, module_args=args, task_vars=told)
        return answer


def _message(name: str, until: str, seconds: float, verdict: dict[str, Any], journal: list[str]) -> str:
    said = f"{name} did not reach `{until}`: {verdict['state']} at `{verdict['rung']}` after {patience.took(seconds)}: {verdict['why']}"
    if verdict["state"] == "WAIT":
        said += " (the deadline is over)"
    return said + ("\nlast lines of its journal:\n" + "\n".join(f"  {line}" for line in journal) if journal else "")

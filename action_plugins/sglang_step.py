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
STACK_LINES = 12
GOAL = {"stop": "stopped", "drain": "drained", "start": "started", "watch": "settled"}
"""What a step is waited for, a gate's being its rung."""
Answer = dict[str, Any]


class ActionModule(ActionBase):
    """`start` only queues; the others wait: `stop` for the last process to be gone, `drain` for empty engines, `gate` for its rung."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The verdict, and how long it took."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        self._told = task_vars or {}
        step = self._task.args["step"]
        name, action = step["instance"], step["action"]
        result |= {"gated": name, "reached": "none"}
        if self._task.check_mode:
            return {**result, "changed": action in ("stop", "start"), "predicted": step["text"]}
        steps = {"stop": self._stop, "drain": self._drain, "start": self._start, "gate": self._gate, "watch": self._watch}
        seen, seconds = steps[action](step)
        answer: Answer = {**result, **{key: seen[key] for key in ("cut", "reached", "stack") if key in seen}}
        answer |= {"changed": action in ("stop", "start"), "seconds": round(seconds, 2)}
        verdict = seen["verdict"] if not seen.get("failed") else {"state": "DEAD", "rung": "?", "why": seen["msg"]}
        answer["verdict"] = verdict
        if verdict["state"] == "READY":
            if action != "start":
                cut = f": {seen['cut']} requests were cut" if action == "drain" and seen["cut"] else ""
                who, goal = _aim(step)
                Display().display(f"  {who}: {goal} after {patience.took(seconds)} ({verdict['why']}){cut}")
            return answer
        return {**answer, "failed": True, "msg": _message(step, seconds, verdict, seen)}

    def _start(self, step: Answer) -> tuple[Answer, float]:
        # asked again after a lost connection, it looks first: what is queued or runs already is left alone
        queued, seconds = self._patiently(
            lambda: self._call("sglang_instance", name=step["instance"], state="started", unit=self._task.args["unit"]),
            lambda _answer: True,
            lambda _elapsed, _answer: f"{step['instance']}: start",
        )
        return {"verdict": {"state": "READY", "rung": "started", "why": "queued"}, **queued}, seconds

    def _stop(self, step: Answer) -> tuple[Answer, float]:
        args, name = self._task.args, step["instance"]
        grace = 0.0 if step["hard"] else float(args["drain_timeout"])

        def call() -> Answer:
            asked = {"name": name, "unit": args["unit"], "grace": grace, "then": list(step["then"])}
            seen = self._call("sglang_instance", state="stopped", seconds=CALL_SECONDS, **asked)
            if not seen.get("failed"):
                seen["verdict"] = {"state": "READY" if seen["stopped"] else "WAIT", "rung": "stopped", "why": seen["told"]}
            return seen

        return self._until(call, lambda seen: f"{name}: {seen['verdict']['why']}", grace)

    def _drain(self, step: Answer) -> tuple[Answer, float]:
        args, since = self._task.args, None
        budget = float(args["drain_timeout"])

        def call() -> Answer:
            nonlocal since
            names, generation = step["instances"], args["generation"]
            seen = self._call("sglang_drain", names=names, generation=generation, budget=budget, since=since, seconds=CALL_SECONDS)
            since = seen.get("since") or since
            return seen

        return self._until(call, lambda seen: f"drain: {seen['verdict']['why']}", budget)

    def _gate(self, step: Answer) -> tuple[Answer, float]:
        args, name = self._task.args, step["instance"]
        baseline: Answer | None = None
        progress: Answer | None = None
        whys: list[str] = []
        end = time.monotonic() + float(args["deadline"])

        def call() -> Answer:
            nonlocal baseline, progress
            seen = self._call(
                "sglang_gate",
                name=name,
                generation=args["generation"],
                until=step["until"],
                baseline=baseline,
                progress=progress,
                stall_after=args["stall_after"],
                started=step["started"],
                request_timeout=args["request_timeout"],
                seconds=max(0.5, min(CALL_SECONDS, end - time.monotonic())),
            )
            baseline, progress = seen.get("baseline") or baseline, seen.get("progress") or progress
            if not seen.get("failed") and seen["verdict"]["why"] not in whys[-1:]:
                whys.append(seen["verdict"]["why"])
            return {**seen, "before": whys[-2] if len(whys) > 1 else ""}

        def tell(seen: Answer) -> str:
            usual = f"usually {patience.took(seen['usual'])} | " if seen.get("usual") else ""
            return f"{name}: {usual}{seen.get('phase', '')}{_work(seen['verdict']['evidence'])} | {seen['verdict']['why']}"

        return self._until(call, tell)

    def _watch(self, step: Answer) -> tuple[Answer, float]:
        args = self._task.args
        settle = float(args["settle"])

        def call() -> Answer:
            seen = self._call("sglang_watch", generation=args["generation"], settle=settle, seconds=CALL_SECONDS)
            return {**seen, "reached": seen.get("rungs", {}).get(step["instance"], "none")}

        return self._until(call, lambda seen: f"watch: {seen['verdict']['why']}", settle)

    def _until(self, call: Callable[[], Answer], tell: Callable[[Answer], str], extra: float = 0.0) -> tuple[Answer, float]:
        """Call until the verdict is READY or DEAD; `extra` seconds belong to the instance and are not taken off the deadline."""

        def line(elapsed: float, seen: Answer) -> str:
            who, _, what = tell(seen).partition(": ")
            return f"{who}: {patience.took(elapsed)} | {what}"

        return self._patiently(call, lambda seen: bool(seen.get("failed")) or seen["verdict"]["state"] != "WAIT", line, extra)

    def _patiently(
        self, call: Callable[[], Answer], done: Callable[[Answer], bool], tell: Callable[[float, Answer], str], extra: float = 0.0
    ) -> tuple[Answer, float]:
        clock = patience.Clock(time.monotonic, time.sleep)
        deadline = float(self._task.args["deadline"]) + extra
        return patience.wait(call, done, tell, lambda line: Display().display(f"  {line}"), deadline=deadline, clock=clock)

    def _call(self, module: str, **args: Any) -> Answer:
        args["run"] = self._task.args["run"]
        with patience.connection(AnsibleConnectionFailure, self._connection.reset):
            answer: Answer = self._execute_module(module_name=module, module_args=args, task_vars=self._told)
        return answer


def _work(evidence: Answer) -> str:
    """What an engine that is waited for is doing, as far as it can be seen."""
    if evidence.get("compilers"):
        return f" ({', '.join(evidence['compilers'])})"
    quiet = evidence.get("quiet_for", 0)
    return f" (no progress for {patience.took(quiet)})" if quiet >= CALL_SECONDS else ""


def _aim(step: Answer) -> tuple[str, str]:
    """Who is to reach what."""
    return ", ".join(step["instances"]) or step["instance"], step["until"] or GOAL[step["action"]]


def _message(step: Answer, seconds: float, verdict: Answer, seen: Answer) -> str:
    who, goal = _aim(step)
    said = f"{who} did not reach `{goal}`: {verdict['state']} at `{verdict['rung']}` after {patience.took(seconds)}: {verdict['why']}"
    if verdict["state"] == "WAIT":
        said += " (the deadline is over)" + (f"; before that: {seen['before']}" if seen.get("before") else "")
    for title, lines in (("its stack", (seen.get("stack") or [])[:STACK_LINES]), ("last lines of its journal", seen.get("journal") or [])):
        said += f"\n{title}:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""
    return said

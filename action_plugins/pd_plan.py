"""Plan the co-restart: pure, on the controller, from what was observed on the nodes."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.errors import AnsiblePromptInterrupt, AnsiblePromptNoninteractive
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from pd import confirm, forecast, plan, runs


class ActionModule(ActionBase):
    """Turn observations into steps, and say them before anything happens."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _read: Mapping[str, Any] = {}

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
        expected = forecast.outage(made, usual, strategy)
        load, said = self._load_now(made, task_vars)
        for line in [*plan.told(made), *forecast.told(made, usual, strategy), *said]:
            Display().display(line)
        if refused := self._confirm(made, load, expected, task_vars or {}):
            return {**result, "failed": True, "msg": refused}
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
            "load": self._read,
            "expected_outage": expected,
        }

    def _load_now(self, made: plan.Plan, task_vars: dict[str, Any] | None) -> tuple[confirm.Load, list[str]]:
        """What is running that a restart would cut, and the line that says it: asked only when something restarts, and no answer stops nothing."""
        if not made.restarts:
            return {}, []
        seen = self._execute_module(module_name="pd_load", module_args={}, task_vars=task_vars)
        if seen.get("failed"):
            return {}, [f"  load now: unknown ({seen.get('msg')})"]
        self._read = {**seen["at"], "load": seen["load"]}
        told = ", ".join(f"{name} {load}" for name, load in seen["told"].items()) or "nothing runs"
        return seen["load"], [f"  load now: {told}"]

    def _confirm(self, made: plan.Plan, load: confirm.Load, outage: float | None, told: dict[str, Any]) -> str | None:
        """Ask when more runs than `confirm_over_running`; why it does not go on, or None when it does. Check mode only says it."""
        try:
            # a run that goes back has stopped things already: there is nothing left to agree to
            over = 0 if self._task.args.get("folder") else confirm.limit(self._task.args.get("confirm_over_running", 0))
        except ValueError as error:
            return str(error)
        groups = told.get("groups") or {}
        count = confirm.requests(load, groups.get("prefill", []), groups.get("decode", []))
        asked = confirm.question(count, over, outage, made.restarts)
        if over and made.restarts and count is None:
            Display().display("  not asked whether to go on: how many requests are in flight could not be read")
        if asked is None or count is None:
            return None
        if self._task.check_mode:
            Display().display(f"  {asked} Without --check it would be asked whether to go on.")
            return None
        try:
            answer = Display().prompt_until(f"{asked} Go on? [yes/no]")
        except AnsiblePromptNoninteractive:
            return confirm.refusal(asked, count)
        except AnsiblePromptInterrupt:
            answer = b""
        return None if answer.strip().lower() in (b"y", b"yes") else f"{asked} The answer was not yes; nothing was stopped."

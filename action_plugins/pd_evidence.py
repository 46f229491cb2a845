"""Write the evidence of a failed run on the controller; the node collects it, this side knows what failed and where it goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from pd import bundle, evidence, outcome, project, secrecy

SECRETS_IN = ("pd_api_key", "engine_env", "engine_args", "engine_common_env", "engine_common_args", "router_env", "router_args")
NONE: dict[str, Any] = {"begun": False, "path": None, "bad": False, "back": None, "why_not": "", "causes": [], "routers": {}, "unwritten": ""}


class ActionModule(ActionBase):
    """`collected` writes the bundle, `told` fails with the run's last words."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """What failed, where the evidence is, and whether to go back."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args, told = self._task.args, task_vars or {}
        if args.get("state") == "told":
            last = outcome.message(args["first"], args.get("second"), args.get("marked"))
            return {**result, "failed": True, "changed": False, "msg": last}
        what = outcome.failed(args["failed"])
        answer = {**NONE, "message": what.message, "first": what.first, "generation": args["generation"], "folder": args.get("folder", "")}
        if not args.get("run") or self._task.check_mode:
            return {**result, **answer, "changed": False}
        seen = self._collect(told, what)
        answer |= {key: seen[key] for key in ("begun", "bad", "back", "why_not", "causes", "routers") if key in seen}
        if answer["begun"]:
            answer |= self._write(told, seen["files"])
        return {**result, **answer, "changed": False}

    def _collect(self, told: dict[str, Any], what: outcome.Failed) -> dict[str, Any]:
        """What the node says. Where it cannot be reached, what is known here is the bundle, and it says so."""
        args = self._task.args
        plan = _plan(args.get("plan") or {}, args["failed"])
        asked = {key: args[key] for key in ("run", "generation", "rollback") if key in args}
        try:
            seen: dict[str, Any] = self._execute_module(module_args={**asked, "failed": asdict(what), "plan": {"text": plan}}, task_vars=told)
            lost = str(seen.get("msg")) if seen.get("failed") else ""
        except AnsibleConnectionFailure as error:
            seen, lost = {}, str(error)
        if not lost:
            return seen
        failure = bundle.Failure(what.message, what.instance, what.rung, args["run"], args["generation"], plan)
        unread = [f"everything on the machine: {lost}"]
        asked_at = (evidence.now(), "the machine was asked for evidence and gave none")
        page = bundle.summary(failure, [asked_at], [bundle.NO_CAUSE], unread, ["plan.txt", "summary.txt"])
        files = {"plan.txt": f"{plan}\n\nwhat failed:\n{what.message}\n", "summary.txt": page}
        return {"begun": True, "files": files, "causes": [f"the machine could not be read: {lost}"], "why_not": "the machine could not be read"}

    def _write(self, told: dict[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
        top = Path(self._task.args["folder"]) / "evidence"
        folder = top / self._task.args.get("part", "")
        hidden = frozenset[str]().union(*(_secrets(told["hostvars"][host]) for host in told["groups"]["all"]))
        try:
            for name, text in files.items():
                path = folder / name
                if not path.resolve().is_relative_to(folder.resolve()):
                    raise OSError(f"{name} would lie outside the bundle")
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                path.touch(mode=0o600)
                path.write_text(secrecy.hide(text, hidden), errors="replace")
        except OSError as error:
            return {"unwritten": str(error)}
        Display().display(f"  evidence: {folder}")
        return {"path": str(top)}


def _plan(plan: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    """The steps with what became of them, and the reasons."""
    done = {str(one["item"]["text"]): one for one in result.get("results") or () if isinstance(one.get("item"), Mapping)}
    lines = [f"{_mark(done.get(str(step['text'])))}  {step['text']}" for step in plan.get("steps") or ()]
    reasons = [f"{name}: {why}" for name, why in (plan.get("reasons") or {}).items()]
    return "\n".join(["the plan, and what became of it:", *lines, "", "why:", *reasons])


def _mark(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "not made"
    return "FAILED  " if one.get("failed") else "done    "


def _secrets(values: Mapping[str, Any]) -> frozenset[str]:
    return secrecy.values({name: project.plain(values[name]) for name in SECRETS_IN if name in values})

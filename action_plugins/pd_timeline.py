"""Draw on the controller what the module of this name read on the node: a picture in the run's folder, and the same as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from pd import timeline, timeline_svg, timeline_text

EXPECTED = (AnsibleError, OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""What reading a strange ledger or writing a file may raise: none of it is worth a run that otherwise succeeded."""
NAME = "timeline.html"


class ActionModule(ActionBase):
    """It never fails: a picture that cannot be drawn is a warning."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The path of the picture, and what it was drawn from."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        if self._task.check_mode:
            return {**result, "skipped": True, "skipped_reason": "nothing was done, so there is nothing to draw"}
        try:
            seen: dict[str, Any] = self._execute_module(task_vars=task_vars)
            if seen.get("failed"):
                return self._without(result, str(seen.get("msg")))
            if not seen["entries"]:  # it never took the lock: nothing was done
                return {**result, **seen, "changed": False}
            return {**result, **seen, "changed": False, "path": str(self._draw(seen))}
        except EXPECTED as error:
            return self._without(result, f"{type(error).__name__}: {error}")

    def _draw(self, seen: dict[str, Any]) -> Path:
        args = self._task.args
        loads = [one for one in (args.get("load"), seen["after"]) if one]
        forecast = float(args["forecast"]) if args.get("forecast") not in (None, "") else None
        told = timeline.timeline(seen["entries"], str(args["run"]), phases=seen["phases"], loads=loads, forecast=forecast)
        path = Path(args["folder"]) / NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(timeline_svg.page(told, seen["entries"]), encoding="utf-8")
        for line in [*timeline_text.lines(told), f"  picture: {path}"]:
            Display().display(line)
        return path

    def _without(self, result: dict[str, Any], why: str) -> dict[str, Any]:
        Display().warning(f"no timeline of this run: {why}")
        return {**result, "changed": False}

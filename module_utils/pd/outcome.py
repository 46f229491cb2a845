"""How a failed run ends: whether its failure says something of the generation, whether to go back, and the last words of the run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .gates import RUNGS

SPEAKS = (*RUNGS, "settled")
"""Rungs at which a verdict says something of the generation: those of the gates, and the watch after READY."""


@dataclass(frozen=True)
class Failed:
    """The task that failed. `rung` is that of a gate's verdict, "" where no gate spoke; `stack` comes with a process that hung."""

    message: str
    instance: str = ""
    rung: str = ""
    stack: str = ""

    @property
    def is_verdict(self) -> bool:
        """Whether it says something of the generation. A stop that does not end, a lost connection, a lost lock do not."""
        return self.rung in SPEAKS

    @property
    def first(self) -> str:
        """The message in one line."""
        return next(iter(self.message.splitlines()), "")


def failed(result: Mapping[str, Any]) -> Failed:
    """Out of Ansible's result of the failed task; of a loop, the first item that failed."""
    one = next((r for r in result.get("results") or () if r.get("failed")), result)
    verdict = one.get("verdict") or {}
    instance = (verdict.get("evidence") or {}).get("instance") or one.get("gated") or ""
    message = str(one.get("msg") or "it failed without a message")
    return Failed(message, str(instance), str(verdict.get("rung") or ""), "\n".join(one.get("stack") or ()))


def why_not_back(what: Failed, generation: str, *, wanted: bool, holder: str | None, good: str | None, obstacle: str) -> str:
    """Why the last good generation is not brought up by itself; "" when it is.

    `holder`: who has the lock, when it is not this run's any more; `good`: the last good generation; `obstacle`: what keeps it from starting.
    """
    reasons = (
        (holder is not None, f"the lock is not this run's any more, it is {holder}"),
        (not what.is_verdict, f"what failed is no verdict about generation {generation}: no gate spoke"),
        (not wanted, "pd_rollback_on_failure is false"),
        (good is None, "no other generation was ever marked good"),
        (bool(obstacle), obstacle),
    )
    return next((reason for applies, reason in reasons if applies), "")


def message(first: Mapping[str, Any], second: Mapping[str, Any] | None, marked: Mapping[str, Any] | None) -> str:
    """The run's last words; the last line is where the evidence is.

    `first`: what pd_evidence returned of the failure; `second`: of the way back, if that failed too; `marked`: the mark at its end.
    """
    if not first["begun"]:
        return str(first["message"])
    back = first["back"]
    lines = [str(first["first"]), *(f"  {line}" for line in first["causes"])]
    if back and not second:
        lines.append(f"Rolled back: generation {back['id']} serves again since {(marked or {}).get('at', 'now')}.")
        lines.append(f"group_vars ask for generation {first['generation']}, the machine runs {back['id']}.")
    elif back and second:
        lines.append(f"The rollback to {back['id']} failed too: {second['first']}")
        lines += [f"  {line}" for line in second["causes"]]
        lines.append(f"group_vars ask for generation {first['generation']}, the machine is set to {back['id']}. {_stands(second)}")
    else:
        lines.append(f"Not rolled back: {first['why_not']}.")
        lines.append(f"group_vars ask for generation {first['generation']}. {_stands(first)}")
    lines.append(_next(first, bool(back) and not second))
    lines.append(str(first["path"] or f"the evidence could not be written: {first['unwritten']}"))
    return "\n".join(lines)


def _stands(seen: Mapping[str, Any]) -> str:
    if not seen["routers"]:
        return "Whether it serves could not be seen."
    told = "; ".join(f"{name} is {state}" for name, state in seen["routers"].items())
    return f"NOT proven to serve: {told}."


def _next(first: Mapping[str, Any], serves: bool) -> str:
    retry = " -e pd_retry=true" if first["bad"] else ""
    mark = f"{first['generation']} is marked bad: unless its files were good before, it is tried again with{retry} only. " if first["bad"] else ""
    if serves:
        return f"{mark}Mend group_vars or the cause, then site.yml."
    return f"{mark}Mend the cause, then: site.yml{retry} goes on from here, restart-pd.yml{retry} starts over, rollback.yml goes back."

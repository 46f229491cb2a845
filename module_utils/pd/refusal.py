"""Whether a restart may begin: one of a closed set of verdicts over everything that was found. Pure.

A restart that is refused has stopped nothing. What to do first depends on the worst thing found: an edit, a hand on the
machine, or a reboot, which no edit and no process that is ended can replace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from .problem import Problem, tidy

Verdict = Literal["ok", "refused: mend what is asked for", "refused: clear the machine first", "refused: reboot or hardware"]
OK: Verdict = "ok"
ASKED: Verdict = "refused: mend what is asked for"
"""Inventory, group_vars or the units ask for what cannot start: an edit mends it."""
MACHINE: Verdict = "refused: clear the machine first"
"""Disk, release, model, ports, left-over processes: a hand on the machine mends it."""
REBOOT: Verdict = "refused: reboot or hardware"
"""Started again, it would be worse off than it runs now: processes that the kernel does not let go, a device that is gone."""
VERDICTS = (OK, ASKED, MACHINE, REBOOT)
"""The mildest first."""

Found = Mapping[Verdict, Sequence[Problem]]


def judge(found: Found) -> Verdict:
    """The worst verdict that has a problem."""
    return next((verdict for verdict in reversed(VERDICTS) if found.get(verdict)), OK)


def told(found: Found) -> str:
    """All problems as one message, the worst first, each under the verdict it leads to; empty where there is none."""
    if judge(found) == OK:
        return ""
    parts = [f"{judge(found)}. Nothing was stopped."]
    for verdict in reversed(VERDICTS):
        parts += [f"[{verdict.removeprefix('refused: ')}] {problem}" for problem in tidy(found.get(verdict, ()))]
    return "\n".join(parts)

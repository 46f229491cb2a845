"""What systemd would really start: the unit's file, drop-ins that win over it, and what `systemd-analyze verify` says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from . import observe
from .problem import Problem

ENVIRONMENT = frozenset({"Environment", "EnvironmentFile", "PassEnvironment", "UnsetEnvironment"})
"""Whatever our unit says, a drop-in with one of these gives a process what no generation knows (reports 063, 064)."""
_DIRECTIVE = re.compile(r"\s*([A-Z][A-Za-z0-9]*)\s*=")


def directives(text: str) -> Iterator[tuple[int, str]]:
    """(line, name) of every directive of a unit file; comments and continued lines are none."""
    continued = False
    for number, line in enumerate(text.splitlines(), 1):
        comment = line.lstrip().startswith(("#", ";"))
        if not continued and not comment and (found := _DIRECTIVE.match(line)):
            yield number, found[1]
        continued = line.endswith("\\") if not comment else continued


def overrides(unit_text: str, drop_ins: Mapping[str, str]) -> list[Problem]:
    """Drop-ins (path -> text) that change what our unit or the generation says. One that only adds, MemoryMax=, may stay."""
    ours = ENVIRONMENT | {name for _, name in directives(unit_text)}
    found = []
    for path, text in drop_ins.items():
        for line, name in directives(text):
            if name in ours:
                fix = f"write it in group_vars, then: rm {path} && systemctl daemon-reload"
                found.append(Problem(f"{path}:{line}", name, "a drop-in that wins over the unit and the generation", fix))
    return found


def look(units: Iterable[str], *, may_be_absent: bool) -> list[Problem]:
    """Every unit of the set: there, without drop-ins that win, and without anything to say for systemd-analyze."""
    found, there = [], []
    for unit in units:
        shown = observe.run(["systemctl", "show", unit, "--property", "LoadState,FragmentPath,DropInPaths"])
        told = dict(line.partition("=")[::2] for line in shown.splitlines())
        if told.get("LoadState") == "not-found":
            if not may_be_absent:
                found.append(Problem(unit, "unit", "systemd knows no such unit", "run site.yml, its roles `engine` and `router` install it"))
            continue
        there.append(unit)
        if told.get("LoadState") == "masked":
            found.append(Problem(unit, "unit", "masked: it cannot be started", f"systemctl unmask {unit}"))
        elif fragment := told.get("FragmentPath"):
            drop_ins = {path: Path(path).read_text() for path in told.get("DropInPaths", "").split()}
            found += overrides(Path(fragment).read_text(), drop_ins)
    return found + (verified(there) if there else [])


def verified(units: Sequence[str]) -> list[Problem]:
    """What `systemd-analyze verify` has to say about these units: a directive it does not take is only a warning at start (report 068)."""
    argv = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=8, check=False)
    names = {unit.partition("@")[0] for unit in units}
    lines = [line for line in (done.stdout + done.stderr).splitlines() if any(name in line for name in names)]
    return [Problem(_place(line), "unit", line, "a unit file that systemd takes as it is meant") for line in lines]


def _place(line: str) -> str:
    """`/etc/systemd/system/x.service:12` at the start of a line, else what it begins with."""
    return (re.match(r"\S+?:\d+(?=:)", line) or re.match(r"[^:]*", line))[0]  # type: ignore[index]  # the second matches anything

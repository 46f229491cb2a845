"""A machine that runs the pair on the real engine, as a newcomer's `make lab` brings it up."""

from __future__ import annotations

from pathlib import Path

import lab
from tests.support.pairs import digest
from tests.support.project import Project

IMAGE = "pair-on-real-engines"
MADE_FROM = (
    *("roles", "requirements", "group_vars", "lab/standins", "kernels/pyproject.toml", "kernels/pd_kernels"),
    *("module_utils/pd", "library/pd_recovery.py"),
)
"""The brain is among it: a copy of it is installed, for the recovery."""


VARIABLES: dict[str, object] = {"pd_settle": 2}
"""As little time as will do, on the machine's disk too: the recovery's settings are made from it."""


def image(folder: Path) -> lab.Image:
    """The image that site.yml took from bare to serving, once."""

    def make(machine: lab.Machine) -> None:
        Project(folder, machine, VARIABLES).play("site.yml").ok()

    return lab.ensure_image(IMAGE, digest(MADE_FROM, VARIABLES), make)

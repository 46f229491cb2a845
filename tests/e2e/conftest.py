"""Fixtures: the pair on the real engine, SGLang 0.5.23 on the CPU, as a newcomer's `make lab` brings it up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lab
from tests.support import pairs
from tests.support.project import Project

MADE_FROM = (
    *("roles", "requirements", "group_vars", "lab/standins", "kernels/pyproject.toml", "kernels/pd_kernels"),
    *("module_utils/pd/generation.py", "module_utils/pd/members.py", "module_utils/pd/kernels.py"),
)


@pytest.fixture(scope="session")
def real_image(tmp_path_factory: pytest.TempPathFactory) -> lab.Image:
    """A machine that site.yml took from bare to serving, once."""

    def make(machine: lab.Machine) -> None:
        Project(tmp_path_factory.mktemp("image"), machine).play("site.yml").ok()

    return lab.ensure_image("pair-on-real-engines", pairs.digest(MADE_FROM), make)


@pytest.fixture(scope="module")
def real(real_image: lab.Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pairs.Pair]:
    """One booted machine for a whole file of tests, which run in order: an engine takes 20 s and more to start."""
    with lab.Machine(lab.unique_name(), real_image) as machine:
        pairs.serving(machine, seconds=240)
        yield pairs.Pair(machine, Project(tmp_path_factory.mktemp("e2e"), machine))

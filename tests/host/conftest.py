"""Fixtures: a machine on which the pair already serves (engine doubles, real router), and a scratch project that points at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lab
from lab.pytest_plugin import MachineFactory
from tests.support import double
from tests.support.pairs import Pair, serving
from tests.support.project import Project


@pytest.fixture
def pair(pair_image: lab.Image, machines: MachineFactory, tmp_path: Path) -> Iterator[Pair]:
    """A booted machine on which both doubles and the router serve."""
    machine = machines(image=pair_image)
    serving(machine)
    yield Pair(machine, Project(tmp_path, machine, double.VARIABLES))

"""Fixtures: a machine of a scenario's own on which the pair serves, as its operator has set it up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lab
from lab.pytest_plugin import MachineFactory
from tests.faults.acts import VARIABLES
from tests.support.pairs import Pair, serving
from tests.support.project import Project


@pytest.fixture
def pair(pair_image: lab.Image, machines: MachineFactory, tmp_path: Path) -> Iterator[Pair]:
    """A booted machine on which both doubles and the router serve."""
    machine = machines(image=pair_image)
    serving(machine)
    yield Pair(machine, Project(tmp_path, machine, VARIABLES))

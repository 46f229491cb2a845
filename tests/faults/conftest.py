"""Fixtures: a machine of a scenario's own on which the pair serves, on doubles and on the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lab
from lab.pytest_plugin import MachineFactory
from tests.faults.acts import VARIABLES
from tests.support import double, pairs
from tests.support import real as real_pair
from tests.support.pairs import Pair, serving
from tests.support.project import Project


@pytest.fixture(scope="session")
def pair_image(tmp_path_factory: pytest.TempPathFactory) -> lab.Image:
    """Made once for all test processes."""
    return double.image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def pair(pair_image: lab.Image, machines: MachineFactory, tmp_path: Path) -> Iterator[Pair]:
    """A booted machine on which both doubles and the router serve."""
    machine = machines(image=pair_image)
    serving(machine)
    yield Pair(machine, Project(tmp_path, machine, VARIABLES))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The machine of `make lab`: made by site.yml once, booted from its image."""
    image = real_pair.image(tmp_path_factory.mktemp("image"))
    with lab.Machine(lab.unique_name(), image) as machine:
        pairs.serving(machine, seconds=240)
        yield Pair(machine, Project(tmp_path_factory.mktemp("faults"), machine, real_pair.VARIABLES))

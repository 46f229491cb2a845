"""Fixtures of more than one folder: the machines on which a pair serves, on engine doubles and on the real engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lab
from tests.support import double, pairs
from tests.support import real as real_pair
from tests.support.project import Project


@pytest.fixture(scope="session")
def pair_image(tmp_path_factory: pytest.TempPathFactory) -> lab.Image:
    """The doubles' machine, made once for all test processes."""
    return double.image(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="session")
def real_image(tmp_path_factory: pytest.TempPathFactory) -> lab.Image:
    """The machine of `make lab`, made by site.yml once for all test files."""
    return real_pair.image(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def real(real_image: lab.Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pairs.Pair]:
    """One booted machine for a whole file of tests, which run in order: an engine takes 20 s and more to start."""
    with lab.Machine(lab.unique_name(), real_image) as machine:
        pairs.serving(machine, seconds=240)
        yield pairs.Pair(machine, Project(tmp_path_factory.mktemp("real"), machine, real_pair.VARIABLES))

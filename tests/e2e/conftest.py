"""Fixtures: the pair on the real engine, SGLang 0.5.23 on the CPU, as a newcomer's `make lab` brings it up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lab
from tests.support import pairs
from tests.support import real as real_pair
from tests.support.project import Project


@pytest.fixture(scope="session")
def real_image(tmp_path_factory: pytest.TempPathFactory) -> lab.Image:
    """Made once for all test files."""
    return real_pair.image(tmp_path_factory.mktemp("image"))


@pytest.fixture(scope="module")
def real(real_image: lab.Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[pairs.Pair]:
    """One booted machine for a whole file of tests, which run in order: an engine takes 20 s and more to start."""
    with lab.Machine(lab.unique_name(), real_image) as machine:
        pairs.serving(machine, seconds=240)
        yield pairs.Pair(machine, Project(tmp_path_factory.mktemp("e2e"), machine, real_pair.VARIABLES))

"""pytest fixtures: `machine` is a fresh lab machine, `machines` makes as many as a test asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator

import pytest

from lab import guest, record
from lab.machine import Machine
from lab.stock import unique_name

MachineFactory = Callable[..., Machine]
_MADE = pytest.StashKey[list[Machine]]()


@pytest.fixture
def machines(request: pytest.FixtureRequest) -> Iterator[MachineFactory]:
    """A factory of booted machines with names of their own, `machines(image="base", binds=())`; gone after the test."""
    made = request.node.stash.setdefault(_MADE, [])
    with contextlib.ExitStack() as stack:

        def make(image: str = "base", **options: object) -> Machine:
            machine = Machine(unique_name(), image, **options)  # type: ignore[arg-type]  # Machine's own keywords
            stack.callback(machine.destroy)
            made.append(machine)
            return machine.boot()

        yield make


@pytest.fixture
def machine(machines: MachineFactory) -> Machine:
    """One booted machine, straight from the base image."""
    return machines()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the end of console and journal of its machines."""
    report = yield
    if report.failed:
        for machine in item.stash.get(_MADE, []):
            if found := record.load(machine.id):
                report.sections.append((f"lab machine {machine.name}", guest.last_words(found)))
    return report

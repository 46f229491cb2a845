"""How the lab says what it is doing: plain lines, or a spinner where rich has a terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol

Detail = Callable[[str], None]

EVERY_SECONDS = 5.0
"""A plain log gets at most one detail line in this time; a spinner shows them all."""


class Progress(Protocol):
    """What a long step reports to."""

    def note(self, text: str) -> None:
        """One line that stays."""

    def step(self, title: str) -> contextlib.AbstractContextManager[Detail]:
        """A step of unknown length; call what it yields with what is being done right now."""


class Plain:
    """Lines on standard error, for tests, pipes and the system's own Python."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock

    def note(self, text: str) -> None:
        sys.stderr.write(f"lab: {text}\n")
        sys.stderr.flush()

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Detail]:
        started = shown = self._clock()

        def detail(text: str) -> None:
            nonlocal shown
            if self._clock() - shown >= EVERY_SECONDS:
                shown = self._clock()
                self.note(f"{title}: {shown - started:.0f} s, {text}")

        self.note(f"{title} ...")
        yield detail
        self.note(f"{title}: done in {self._clock() - started:.1f} s")


class Rich:
    """A spinner with the present detail, replaced by one line with the time it took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # The API works under the system's Python, without rich.
        from rich.console import Console  # noqa: PLC0415  only a terminal needs it
        from rich.markup import escape  # noqa: PLC0415  only a terminal needs it

        self.console = Console(stderr=True, highlight=False)
        self._escape = escape
        self._clock = clock

    def note(self, text: str) -> None:
        self.console.print(f"[green]●[/] {self._escape(text)}")

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Detail]:
        started = self._clock()
        with self.console.status(self._escape(title)) as status:

            def detail(text: str) -> None:
                status.update(f"{self._escape(title)}  [dim]{self._clock() - started:.0f} s  {self._escape(text)}[/]")

            yield detail
        self.note(f"{title}: {self._clock() - started:.1f} s")


def best() -> Progress:
    """Rich on a terminal, plain lines everywhere else."""
    return Rich() if sys.stderr.isatty() else Plain()

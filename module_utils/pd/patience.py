"""Waiting from the controller: short calls on the node, progress for people, a deadline for the rest.

A connection that is lost during a call is not an answer: the call is made again, and what it observes decides. A call that stops or starts
something looks first whether that is done or on its way, so nothing is ever issued twice because a call timed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SAY_EVERY_SECONDS = 1.0
"""A line is promised every 10 s, and a call (8 s of looking, and the way there) may start just before it is time to speak."""
LOST_PAUSE_SECONDS = 1.0


class ConnectionLostError(Exception):
    """The node could not be reached, or the connection broke during the call."""


@contextmanager
def connection(lost: type[Exception], reset: Callable[[], None]) -> Iterator[None]:
    """Around one call on the node: what the connection raises when it breaks (`lost`) becomes ConnectionLostError, and a new one is made."""
    try:
        yield
    except lost as error:
        reset()
        raise ConnectionLostError(str(error)[:200]) from error


@dataclass(frozen=True)
class Clock:
    """A monotonic clock and a pause, so that tests wait no real time."""

    now: Callable[[], float]
    pause: Callable[[float], None]


def wait(
    call: Callable[[], dict[str, Any]],
    done: Callable[[dict[str, Any]], bool],
    tell: Callable[[float, dict[str, Any]], str],
    say: Callable[[str], None],
    *,
    deadline: float,
    clock: Clock,
) -> tuple[dict[str, Any], float]:
    """Call until `done(answer)` or until `deadline` seconds are over; the last answer and the seconds it took.

    `tell` makes a progress line of an answer, said at least every 10 s as long as no call takes more than 9 s.
    Raises ConnectionLostError when the node could not be reached at all until the deadline.
    """
    start = clock.now()
    said = start
    answer: dict[str, Any] | None = None
    lost: ConnectionLostError | None = None
    was_lost = False
    while True:
        try:
            answer, lost = call(), None
        except ConnectionLostError as error:
            lost = error
        elapsed = clock.now() - start
        if answer is not None and lost is None and (done(answer) or elapsed >= deadline):
            return answer, elapsed
        if lost is not None and elapsed >= deadline:
            raise lost
        if clock.now() - said >= SAY_EVERY_SECONDS or (lost is not None and not was_lost):
            said = clock.now()
            say(f"no connection ({lost}); what was started goes on, looking again" if lost else tell(elapsed, answer or {}))
        was_lost = lost is not None
        if was_lost:
            clock.pause(LOST_PAUSE_SECONDS)


def took(seconds: float) -> str:
    """`4 s`, `1 min 12 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

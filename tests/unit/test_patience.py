"""Waiting in short calls, on a clock of the test's own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import patience
from pd.patience import Clock, ConnectionLostError


class World:
    """A clock that only calls and pauses move. `calls` are (seconds, state), any other text is a lost connection; the last one repeats."""

    def __init__(self, calls: list[tuple[float, str]]) -> None:
        self.calls = calls
        self.made = 0
        self.time = 1000.0
        self.said: list[tuple[float, str]] = []

    def call(self) -> dict[str, Any]:
        seconds, answer = self.calls[min(self.made, len(self.calls) - 1)]
        self.made += 1
        self.time += seconds
        if answer not in ("READY", "WAIT", "DEAD"):
            raise ConnectionLostError(answer)
        return {"state": answer}

    def pause(self, seconds: float) -> None:
        self.time += seconds

    def wait(self, deadline: float = 100.0) -> tuple[str, float]:
        clock = Clock(lambda: self.time, self.pause)
        answer, seconds = patience.wait(
            self.call,
            lambda told: bool(told["state"] != "WAIT"),
            lambda elapsed, told: f"{elapsed:.0f} {told['state']}",
            lambda line: self.said.append((self.time - 1000.0, line)),
            deadline=deadline,
            clock=clock,
        )
        return answer["state"], seconds


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param([(0.5, "READY")], ("READY", 0.5), id="at once"),
        pytest.param([(8.0, "WAIT"), (8.0, "WAIT"), (2.0, "READY")], ("READY", 18.0), id="after some calls"),
        pytest.param([(8.0, "WAIT"), (0.1, "DEAD")], ("DEAD", 8.1), id="dead ends it too"),
        pytest.param([(8.0, "WAIT")], ("WAIT", 104.0), id="the deadline: the last answer says how it stood"),
        pytest.param([(8.0, "WAIT"), (1.0, "cut"), (1.0, "READY")], ("READY", 11.0), id="a lost connection is no answer"),
        pytest.param([(1.0, "cut")] * 20 + [(1.0, "READY")], ("READY", 41.0), id="also not the twentieth"),
    ],
)
def test_what_ends_the_wait(calls: list[tuple[float, str]], expected: tuple[str, float]) -> None:
    assert World(calls).wait() == pytest.approx(expected)


def test_a_node_that_cannot_be_reached_until_the_deadline() -> None:
    world = World([(3.0, "WAIT"), (5.0, "no route")])
    with pytest.raises(ConnectionLostError, match="no route"):
        world.wait(20.0)
    assert world.time - 1000.0 < 20.0 + 6.0


def test_a_lost_connection_is_said_and_looked_at_again() -> None:
    world = World([(8.0, "WAIT"), (1.0, "broken pipe"), (1.0, "READY")])
    world.wait()
    assert [line for _, line in world.said] == ["8 WAIT", "no connection (broken pipe); what was started goes on, looking again"]


@given(st.lists(st.floats(0.05, 9.0), min_size=1, max_size=30))
def test_progress_is_said_at_least_every_ten_seconds(durations: list[float]) -> None:
    world = World([(seconds, "WAIT") for seconds in durations])
    _, total = world.wait(60.0)
    moments = [0.0, *[at for at, _ in world.said], total]
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert max(gaps) <= 10.0
    assert len(world.said) <= total / patience.SAY_EVERY_SECONDS + 1, "and it is no flood"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (4.2, "4 s"), (59.6, "1 min 00 s"), (72, "1 min 12 s"), (3600, "60 min 00 s")])
def test_took(seconds: float, text: str) -> None:
    assert patience.took(seconds) == text

"""A stop: the time it is given, the kill after it, and what that cut. systemd and /proc are the test's; nothing is waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pd import observe, stopping
from pd.observe import Unit
from pd.stopping import Halted

from tests.unit.test_gates import UNIT


class Machine:
    """A unit that ends by itself at `ends`, or when it is killed; each look takes a second of its clock."""

    def __init__(self, ends: float, dies_after: float = 0.0) -> None:
        self.now, self.ends, self.dies_after = 99.0, ends, dies_after
        self.kills: list[float] = []

    def clock(self) -> float:
        self.now += 1.0
        return self.now

    @property
    def up(self) -> bool:
        return self.now < (self.kills[0] + self.dies_after if self.kills else self.ends)

    def unit(self, name: str) -> Unit:
        state = "deactivating" if self.up else "failed" if self.kills else "inactive"
        return observe.parse_show(name, f"LoadState=loaded\nActiveState={state}\nControlGroup={'/u' if self.up else ''}\n")

    def run(self, argv: list[str]) -> str:
        assert argv == ["systemctl", "kill", "--signal=SIGKILL", UNIT.name]
        self.kills.append(self.now)
        return ""


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    def make(**args: float) -> Machine:
        made = Machine(**args)
        monkeypatch.setattr(observe, "unit", made.unit)
        monkeypatch.setattr(observe, "run", made.run)
        monkeypatch.setattr(observe, "cgroup_pids", lambda _group: (7, 8) if made.up else ())
        return made

    monkeypatch.setattr(stopping, "POLL_SECONDS", 0.0)
    return make


def halt(machine: Machine, grace: float, seconds: float = 8.0, in_flight: int | None = 3) -> Halted:
    return stopping.halt(UNIT, since=100.0, grace=grace, seconds=seconds, count=lambda: in_flight, clock=machine.clock)


def test_what_finishes_in_time_is_not_killed(machine: Callable[..., Machine]) -> None:
    made = machine(ends=103.0)
    halted = halt(made, grace=180.0)
    assert (halted.gone, halted.killed, halted.cut, made.kills) == (True, False, None, [])
    assert str(halted) == f"{UNIT.name} is inactive"


def test_a_call_ends_and_says_what_is_in_flight(machine: Callable[..., Machine]) -> None:
    halted = halt(machine(ends=900.0), grace=180.0)
    assert (halted.gone, halted.killed, halted.in_flight) == (False, False, 3)
    assert str(halted) == f"{UNIT.name} is deactivating, 2 processes left, 3 requests in flight"


def test_when_its_time_is_over_it_is_killed_once_and_what_that_cut_is_counted(machine: Callable[..., Machine]) -> None:
    made = machine(ends=900.0, dies_after=2.0)
    halted = halt(made, grace=4.0)
    assert (halted.gone, halted.killed, halted.cut, len(made.kills)) == (True, True, 3, 1)
    assert 104.0 <= made.kills[0] <= 106.0


@pytest.mark.parametrize("seconds", [0.0, 8.0])
def test_grace_zero_kills_at_once_also_in_a_call_without_time(machine: Callable[..., Machine], seconds: float) -> None:
    made = machine(ends=900.0, dies_after=1.0)
    assert halt(made, grace=0.0, seconds=seconds, in_flight=None).killed
    assert made.kills[0] < 103.0


def test_what_does_not_die_of_a_kill_is_said(machine: Callable[..., Machine]) -> None:
    """A process that hangs in the kernel: the call ends, and the next one tries again."""
    halted = halt(machine(ends=900.0, dies_after=900.0), grace=0.0)
    assert (halted.gone, halted.killed) == (False, True)
    assert "2 processes left" in str(halted)


def test_stopped_is_when_the_last_process_is_gone(machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    """Report 071: the unit is inactive, a process of it is left."""
    made = machine(ends=0.0)
    monkeypatch.setattr(observe, "cgroup_pids", lambda _group: (7,))
    assert not halt(made, grace=180.0).gone


def test_it_may_end_between_the_look_and_the_kill(machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(ends=102.5)

    def fails(_argv: list[str]) -> str:
        made.ends = 0.0
        raise RuntimeError("unit is not loaded")

    monkeypatch.setattr(observe, "run", fails)
    assert halt(made, grace=0.0).gone
    broken = machine(ends=900.0)
    monkeypatch.setattr(observe, "run", lambda _argv: (_ for _ in ()).throw(RuntimeError("access denied")))
    with pytest.raises(RuntimeError, match="access denied"):
        halt(broken, grace=0.0)


STOP = {"event": "stop", "run": "r1", "instance": "router0", "boot": 100.0}
GONE, STARTED = {**STOP, "event": "stopped", "boot": 105.0}, {**STOP, "event": "start", "boot": 110.0}


@pytest.mark.parametrize(
    ("entries", "begun"),
    [
        ([], None),
        ([STOP], 100.0),
        ([STOP, {**STOP, "event": "killed", "boot": 103.0}], 100.0),
        ([STOP, GONE], None),
        ([STOP, GONE, STARTED], None),
        ([STOP, GONE, STARTED, {**STOP, "boot": 200.0}], 200.0),
        ([{**STOP, "run": "r0"}], None),
        ([{**STOP, "instance": "prefill0"}], None),
        ([{"event": "begin", "run": "r1"}], None),
    ],
)
def test_whether_this_run_stops_it_already(entries: list[dict[str, Any]], begun: float | None) -> None:
    assert stopping.begun(entries, "r1", "router0") == begun

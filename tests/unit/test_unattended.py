"""What is done about a set that nobody is looking after: tables of what systemd and the ledger say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import unattended
from pd.observe import Unit
from pd.unattended import Limit, Now, Todo

from tests.unit.test_gates import UNIT

LIMIT = Limit(3, 1800)
OURS = "a" * 32
PREFILL = replace(UNIT, started_at=10.0, ended_at=9.0, invocation=OURS)
DECODE = replace(UNIT, started_at=30.0, ended_at=29.0, invocation=OURS)
"""Made by an ordered co-restart: prefill has outlived a process of decode, as it should: the router was stopped meanwhile."""
ROUTER = replace(UNIT, started_at=50.0, ended_at=8.0, invocation=OURS)
GONE: dict[str, Any] = {"active_state": "failed", "result": "signal", "exit_status": "killed by signal 9", "main_pid": 0}
BY_ITSELF = {**GONE, "exited_at": 99.0, "left_active_at": 99.1, "ended_at": 100.0}
"""The process ended, then the unit left `active`."""
BY_HAND = {**GONE, "exited_at": 99.0, "left_active_at": 90.0, "ended_at": 100.0}
"""A stop that took too long: the unit left `active`, then SIGKILL ended the process."""
STOPPED = {"active_state": "inactive", "main_pid": 0, "exited_at": 99.0, "left_active_at": 90.0, "ended_at": 100.0}
ANEW = {"started_at": 101.0, "ended_at": 100.0, "invocation": "b" * 32}


def unit(base: Unit, changes: dict[str, Any]) -> Unit:
    return replace(base, **changes)


def decided(prefill: dict[str, Any], decode: dict[str, Any], router: dict[str, Any], **now: Any) -> Todo:
    engines = {"prefill0": unit(PREFILL, prefill), "decode0": unit(DECODE, decode)}
    told = Now(engines, {"router0": unit(ROUTER, router)}, started=frozenset({OURS}), **now)
    return unattended.decide(told, LIMIT)


FINE: dict[str, Any] = {}
BOOT = {"ended_at": 0.0, "invocation": "c" * 32}


@pytest.mark.parametrize(
    ("states", "what", "why", "stop"),
    [
        pytest.param((FINE, FINE, FINE), "nothing", "nothing died", (), id="after an ordered co-restart"),
        pytest.param((FINE, BY_ITSELF, FINE), "recover", "decode0 died: killed by signal 9", ("router0", "prefill0"), id="decode died"),
        pytest.param((BY_ITSELF, FINE, FINE), "recover", "prefill0 died: killed by signal 9", ("router0", "decode0"), id="prefill died"),
        pytest.param((BY_ITSELF, BY_ITSELF, FINE), "recover", "prefill0 died: killed by signal 9; decode0 died", ("router0",), id="both died"),
        pytest.param(
            (FINE, {**BY_HAND, "result": "oom-kill"}, FINE), "recover", "decode0 died: killed for want of memory", ("router0", "prefill0"), id="OOM"
        ),
        pytest.param(
            (FINE, {**BY_ITSELF, "started_at": 98.0, "left_active_at": 29.0}, FINE), "recover", "decode0 died", ("router0", "prefill0"),
            id="never became active (exec failed): the time it left active is of the process before",
        ),
        pytest.param((FINE, ANEW, FINE), "recover", "decode0 was started anew by hand", ("router0", "prefill0"), id="decode restarted by hand"),
        pytest.param((ANEW, FINE, FINE), "recover", "prefill0 was started anew by hand", ("router0", "decode0"), id="prefill restarted by hand"),
        pytest.param(
            (ANEW, {**ANEW, "started_at": 102.0}, FINE), "recover", "was started anew by hand", ("router0",),
            id="both by hand, the router not",
        ),
        pytest.param((ANEW, ANEW, {"started_at": 103.0}), "nothing", "nothing died", (), id="all three restarted by hand"),
        pytest.param((FINE, ANEW, STOPPED), "nothing", "the router is stopped, so the set is closed", (), id="a closed set is nobody's business"),
        pytest.param((FINE, BY_ITSELF, STOPPED), "nothing", "the router is stopped, so the set is closed", (), id="died in a closed set"),
        pytest.param((FINE, STOPPED, FINE), "nothing", "nothing died", (), id="stopped by hand, and nothing else happened"),
        pytest.param((FINE, BY_HAND, FINE), "nothing", "nothing died", (), id="a stop by hand that took too long is no crash"),
        pytest.param((BY_ITSELF, STOPPED, FINE), "nothing", "decode0 was stopped by hand and stays so", (), id="one stopped by hand, one died"),
        pytest.param((BOOT, BOOT, BOOT), "nothing", "nothing died", (), id="after a boot, whoever came first"),
        pytest.param((BOOT, {**BOOT, **BY_ITSELF}, BOOT), "recover", "decode0 died", ("router0", "prefill0"), id="died while loading after a boot"),
        pytest.param(
            (FINE, FINE, {**BY_ITSELF, "result": "start-limit-hit"}), "give up", "systemd started it again and again did not help", (),
            id="a router that cannot be held up: the engines stay",
        ),
    ],
)  # fmt: skip
def test_what_is_done(states: tuple[dict[str, Any], dict[str, Any], dict[str, Any]], what: str, why: str, stop: tuple[str, ...]) -> None:
    todo = decided(*states)
    assert (todo.what, todo.stop) == (what, stop), todo.why
    assert why in todo.why


def test_a_crash_loop_ends_with_everything_stopped() -> None:
    assert decided(FINE, BY_ITSELF, FINE, recent=2).what == "recover"
    todo = decided(FINE, BY_ITSELF, FINE, recent=3)
    assert (todo.what, todo.stop) == ("give up", ("router0", "prefill0"))
    assert todo.why == "decode0 died: killed by signal 9; 3 recoveries in 30 min did not help"


def test_a_recovery_that_was_cut_off_goes_on_with_what_it_left() -> None:
    """It had stopped the router and prefill, and was killed before it started anything."""
    todo = decided(STOPPED, BY_ITSELF, STOPPED, goes_on="cut off", closed=frozenset({"prefill0", "router0"}))
    assert (todo.what, todo.why, todo.stop) == ("recover", "cut off", ())


def test_what_was_stopped_by_hand_while_a_recovery_was_at_work_stays_stopped() -> None:
    todo = decided(FINE, STOPPED, STOPPED, goes_on="decode0 did not reach `working`: it is inactive")
    assert todo.what == "nothing"
    assert "decode0 was stopped by hand" in todo.why


def test_after_one_that_hung_all_are_stopped() -> None:
    todo = decided(FINE, FINE, FINE, goes_on="router0 did not reach `serving` in 300 s", hung=True)
    assert (todo.what, todo.stop) == ("recover", ("router0", "prefill0", "decode0"))


STATES = st.sampled_from([FINE, BY_ITSELF, BY_HAND, STOPPED, ANEW, BOOT])


@given(STATES, STATES, STATES, st.integers(0, 5))
def test_it_never_stops_what_does_not_run_and_acts_only_for_a_reason(
    prefill: dict[str, Any], decode: dict[str, Any], router: dict[str, Any], recent: int
) -> None:
    todo = decided(prefill, decode, router, recent=recent)
    runs = {"prefill0": unit(PREFILL, prefill).runs, "decode0": unit(DECODE, decode).runs, "router0": unit(ROUTER, router).runs}
    assert all(runs[name] for name in todo.stop)
    if todo.what != "nothing":
        assert any(state in (BY_ITSELF, ANEW, BOOT) for state in (prefill, decode, router))
        assert STOPPED not in (prefill, decode)
        assert recent < 3 or todo.what == "give up"


def begin(run: str, who: str = "systemd", at: float = 0.0, boot: str = "b") -> dict[str, Any]:
    return {"event": "begin", "run": run, "who": who, "why": "decode0 died", "ts": "T", "boot_id": boot, "boot": at}


def act(event: str, run: str, instance: str) -> dict[str, Any]:
    return {"event": event, "run": run, "instance": instance, "invocation": f"i-{instance}"}


def test_recoveries_count_since_the_last_transaction_in_this_boot_and_within_the_window() -> None:
    entries = [begin("0", at=990), begin("ada", who="ada@desk"), begin("1", at=100), begin("2", at=900), begin("3", at=999, boot="a")]
    assert [e["run"] for e in unattended.since_last_transaction(entries)] == ["1", "2", "3"]
    assert unattended.recent(entries, "b", 1000.0, 500.0) == 1
    assert unattended.recent([*entries, begin("bob", who="bob")], "b", 1000.0, 500.0) == 0


def test_what_a_recovery_stopped_and_nobody_started() -> None:
    entries = [begin("1"), act("stop", "1", "router0"), act("stop", "1", "prefill0"), act("start", "1", "prefill0")]
    assert unattended.closed(entries) == {"router0"}
    assert unattended.started(entries) == {"i-prefill0"}
    assert unattended.closed([begin("ada", who="ada"), act("stop", "ada", "router0")]) == frozenset()


def test_only_a_recovery_is_gone_on_with() -> None:
    assert unattended.cut_off([begin("ada", who="ada")]) is None
    assert unattended.cut_off([begin("1"), {"event": "end", "run": "1"}]) is None
    found = unattended.cut_off([begin("1")])
    assert found is not None
    assert found["run"] == "1"

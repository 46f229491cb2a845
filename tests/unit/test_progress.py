"""Is a start still getting on? Loading and compiling are, also for an hour; silence is not (report 121)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import gates
from pd.gates import Baseline, Effort, Verdict

from tests.unit.test_gates import BASE, UNIT

LAST = Effort(at=1000.0, lines=40, cursor="c1", cpu=30.0, read=5_000_000, reached="alive")
COMPILES = replace(LAST, compilers=("cicc",), compiling=3.0)


def after(seconds: float, since: Effort = LAST, **changes: Any) -> Effort:
    return replace(since, at=since.at + seconds, cursor="c2", **changes)


@pytest.mark.parametrize(
    ("now", "last", "listens", "expected"),
    [
        pytest.param(after(60), LAST, False, False, id="nothing at all"),
        pytest.param(after(60, lines=41), LAST, False, True, id="a line"),
        pytest.param(after(60, lines=41), LAST, True, True, id="a line, listening"),
        pytest.param(after(60, reached="listening"), LAST, True, True, id="a rung"),
        pytest.param(after(60, cpu=33.1), LAST, False, True, id="3.1 s of a core in 60 s: more than one that polls"),
        pytest.param(after(60, cpu=32.9), LAST, False, False, id="2.9 s in 60 s: it polls a lock (report 121)"),
        pytest.param(after(60, cpu=90.0), LAST, True, False, id="a PD scheduler spins when idle (lab-facts)"),
        pytest.param(after(60, read=5_000_000 + 61 * (1 << 18)), LAST, False, True, id="weights from a slow disk"),
        pytest.param(after(60, read=5_000_000 + 59 * (1 << 18)), LAST, False, False, id="sockets that are polled"),
        pytest.param(after(60, read=1 << 40), LAST, True, False, id="reading, listening"),
        pytest.param(after(60, COMPILES, compiling=3.01), COMPILES, True, True, id="a compiler works, listening: a JIT at the first request"),
        pytest.param(after(60, COMPILES), COMPILES, False, False, id="a compiler that waits for a stale lock"),
        pytest.param(after(60, compilers=("ninja",)), LAST, False, True, id="a compiler came"),
        pytest.param(after(60, COMPILES, compilers=(), compiling=0.0), COMPILES, False, False, id="a compiler went, and nothing followed"),
    ],
)
def test_what_counts_as_progress(now: Effort, last: Effort, listens: bool, expected: bool) -> None:
    assert gates.moved(now, last, listens=listens) is expected
    carried = gates.progress(now, last, listens=listens)
    assert carried == (now if expected else replace(last, cursor="c2")), "the journal is read on in either case"


def test_a_process_that_ended_leaves_no_debt_to_the_others() -> None:
    """One that had read all the weights is gone: what the rest reads counts from there."""
    mark = gates.progress(after(60, cpu=1.0, read=0), LAST, listens=False)
    assert (mark.at, mark.cpu, mark.read) == (LAST.at, 1.0, 0)
    assert gates.moved(after(90, cpu=1.0, read=91 * (1 << 18)), mark, listens=False)


def test_the_first_look_is_where_it_begins() -> None:
    assert gates.progress(LAST, None, listens=True) is LAST


WAITS = Verdict("WAIT", "listening", "/ready: refused")


@pytest.mark.parametrize(("seconds", "limit", "state"), [(599, 600, "WAIT"), (600, 600, "DEAD"), (9000, 0, "WAIT"), (0, 600, "WAIT")])
def test_silence_ends_at_the_limit(seconds: float, limit: float, state: str) -> None:
    verdict = gates.stalled(WAITS, after(seconds), LAST, "loading weights", limit)
    assert (verdict.state, verdict.rung) == (state, "listening")
    assert verdict.evidence["quiet_for"] == seconds


def test_it_says_what_was_looked_at() -> None:
    verdict = gates.stalled(WAITS, after(600, cpu=36.0, read=LAST.read + (3 << 20)), LAST, "loading weights", 600)
    seen = "no line in its journal, 0.01 cores busy, 3 MiB read, nothing compiles"
    assert verdict.why == f"no progress for 10 min 00 s: {seen}; it was loading weights; /ready: refused"
    stuck = gates.stalled(WAITS, after(600, COMPILES), COMPILES, "compiling", 600)
    assert "cicc runs without getting on" in stuck.why


@given(st.lists(st.tuples(st.floats(0.1, 30), st.booleans()), min_size=1, max_size=40), st.booleans())
def test_dead_exactly_when_no_look_saw_anything_for_that_long(looks: list[tuple[float, bool]], listens: bool) -> None:
    """However the looks fall: the silence is counted from the last line, over all the calls."""
    mark, now, silent_since = LAST, LAST, LAST.at
    for seconds, speaks in looks:
        now = after(seconds, now, lines=now.lines + speaks)
        mark = gates.progress(now, mark, listens=listens)
        silent_since = now.at if speaks else silent_since
        verdict = gates.stalled(WAITS, now, mark, "", 60)
        assert (verdict.state == "DEAD") == (now.at - silent_since >= 60)


def entry(event: str, instance: str, pid: int = 1, state: str = "READY", run: str = "r1") -> dict[str, Any]:
    return {"event": event, "instance": instance, "run": run, "state": state, "main_pid": pid, "n_restarts": 0, "invocation": f"i{pid}"}


@pytest.mark.parametrize(
    ("entries", "pids"),
    [
        pytest.param([entry("gate", "a", 1), entry("gate", "b", 2)], {"a": 1, "b": 2}, id="both were READY"),
        pytest.param([entry("gate", "a", 1), entry("gate", "b", 2, "DEAD")], {"a": 1}, id="one was not"),
        pytest.param([entry("gate", "a", 1, run="r0")], {}, id="an earlier run's"),
        pytest.param([entry("gate", "a", 1), entry("stop", "a", 1)], {}, id="stopped since"),
        pytest.param([entry("gate", "a", 1), entry("start", "a", 2)], {}, id="started since, as in a roll-back"),
        pytest.param([entry("gate", "a", 1), entry("start", "a", 2), entry("gate", "a", 2)], {"a": 2}, id="the newer gate"),
        pytest.param([{"event": "begin", "run": "r1"}, {"event": "drained", "run": "r1", "instances": ["a"]}], {}, id="no gate"),
    ],
)
def test_whose_process_is_watched(entries: list[dict[str, Any]], pids: dict[str, int]) -> None:
    assert {name: since.main_pid for name, since in gates.ready_processes(entries, "r1").items()} == pids


@pytest.mark.parametrize(
    ("changes", "state", "why"),
    [
        pytest.param({}, "READY", "decode0: the same processes", id="the same"),
        pytest.param(
            {"main_pid": 200, "invocation": "b" * 32, "n_restarts": 1}, "DEAD", "decode0 was READY, then was replaced", id="replaced"
        ),
        pytest.param({"active_state": "failed", "exit_status": "killed by signal 11"}, "DEAD", "then died", id="dead"),
        pytest.param({"active_state": "activating", "sub_state": "auto-restart"}, "DEAD", "then died", id="systemd is about to hide it"),
        pytest.param({"active_state": "deactivating"}, "DEAD", "then was stopped", id="somebody stops it"),
    ],
)
def test_reports_002_and_020_the_settle_window(changes: dict[str, Any], state: str, why: str) -> None:
    verdict = gates.settled({"decode0": BASE}, {"decode0": replace(UNIT, **changes)})
    assert verdict.state == state
    assert why in verdict.why
    assert verdict.evidence == ({"instance": "decode0"} if state == "DEAD" else {})


def test_one_of_two_is_enough() -> None:
    other = Baseline(5, 0, "d" * 32)
    verdict = gates.settled({"prefill0": BASE, "decode0": other}, {"prefill0": UNIT, "decode0": UNIT})
    assert verdict.evidence == {"instance": "decode0"}

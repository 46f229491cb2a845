"""What verify says about the time since somebody last looked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pd import truth_unattended
from pd.truth_unattended import Story

from tests.unit.test_gates import UNIT
from tests.unit.test_unattended import ANEW, BY_ITSELF, DECODE, FINE, OURS, PREFILL, ROUTER, STOPPED, act, begin, unit

AT_REST = replace(UNIT, active_state="inactive")
START = {"event": "start", "instance": "decode0", "run": "ada", "invocation": OURS}


def told(
    *entries: dict[str, Any], prefill: dict[str, Any] = FINE, decode: dict[str, Any] = FINE, holder: str = "", recoverer: str = "inactive"
) -> list[tuple[str, str, bool]]:
    engines = {"prefill0": unit(PREFILL, prefill), "decode0": unit(DECODE, decode)}
    story = Story([START, *entries], holder, [AT_REST, replace(AT_REST, active_state=recoverer)])
    found = truth_unattended.findings(engines, {"router0": ROUTER}, story)
    return [(one["instance"], one["text"], one["fails"]) for one in found]


def end(run: str, outcome: str, **more: Any) -> dict[str, Any]:
    return {"event": "end", "run": run, "outcome": outcome, "ts": "T2", **more}


def test_nothing_happened() -> None:
    assert told() == []
    assert told(begin("ada", who="ada"), end("ada", "done")) == []


@pytest.mark.parametrize(
    ("entries", "text", "fails"),
    [
        pytest.param(
            [begin("1"), end("1", "done", seconds=40.2)],
            "1 recovery since the last transaction, the last one at T: decode0 died; served again after 40 s. Nobody asked for that",
            False,
            id="one",
        ),
        pytest.param(
            [begin("1"), end("1", "failed"), begin("2"), end("2", "done", seconds=1)], "2 recoveries since the last transaction", False, id="two"
        ),
        pytest.param(
            [begin("1"), end("1", "gave up", why="decode0 died; 3 recoveries in 30 min did not help")],
            "recovery gave up at T2: decode0 died; 3 recoveries in 30 min did not help. What could not be held up was stopped; mend the cause, then:",
            True,
            id="gave up",
        ),
        pytest.param([begin("1"), end("1", "failed", why="x hung")], "the last recovery failed at T2: x hung", True, id="failed"),
        pytest.param([begin("1")], "a recovery of T was cut off (decode0 died): `systemctl start", True, id="cut off"),
    ],
)
def test_recoveries(entries: list[dict[str, Any]], text: str, fails: bool) -> None:
    ((instance, said, failed),) = told(*entries)
    assert (instance, failed) == ("", fails)
    assert said.startswith(text)


def test_one_that_is_at_work_is_said_and_what_it_is_about_to_change_is_not() -> None:
    assert told(begin("1"), decode=BY_ITSELF, prefill=ANEW, holder="held by systemd since T (decode0 died)") == [
        ("", "a co-restart is at work now, held by systemd since T (decode0 died)", False)
    ]


def test_start_order_against_a_restart_by_hand() -> None:
    found = told(decode=ANEW)
    assert [(name, text.partition(",")[0]) for name, text, _ in found] == [
        ("prefill0", "is older than decode0"),
        ("router0", "is older than decode0"),
    ]
    assert told(decode={**ANEW, "invocation": OURS}) == [], "a transaction restarts decode after prefill, with the router stopped"


def test_stopped_by_hand_or_by_a_run() -> None:
    ((name, text, fails),) = told(decode=STOPPED)
    assert (name, fails) == ("decode0", False)
    assert "was stopped by hand" in text
    assert told(act("stop", "ada", "decode0"), decode=STOPPED) == []
    assert told(decode=BY_ITSELF) == [], "the rung it does not reach says how it died"


@pytest.mark.parametrize(("state", "text"), [("absent", "is not installed: site.yml"), ("failed", "has failed: journalctl -t")])
def test_nobody_would_recover_the_set(state: str, text: str) -> None:
    ((_, said, fails),) = told(recoverer=state)
    assert text in said
    assert not fails

"""How a failed run ends: what is a verdict, when it goes back, and its last words."""

from __future__ import annotations

from typing import Any

import pytest
from pd import outcome
from pd.outcome import Failed

DEAD = {"failed": True, "msg": "decode0 did not\nmore", "gated": "decode0", "verdict": {"state": "DEAD", "rung": "working"}, "stack": ["s", "t"]}


@pytest.mark.parametrize(
    ("result", "what"),
    [
        pytest.param({"results": [{"msg": "fine"}, DEAD], "msg": "One or more"}, Failed(str(DEAD["msg"]), "decode0", "working", "s\nt"), id="loop"),
        pytest.param({"failed": True, "msg": "disk full"}, Failed("disk full"), id="a task"),
        pytest.param(
            {"msg": "m", "gated": "router0", "verdict": {"rung": "settled", "evidence": {"instance": "prefill0"}}},
            Failed("m", "prefill0", "settled"),
            id="the instance that did it",
        ),
        pytest.param({"failed": True}, Failed("it failed without a message"), id="nothing said"),
        pytest.param({"results": [{**DEAD, "verdict": None}]}, Failed("decode0 did not\nmore", "decode0", "", "s\nt"), id="no verdict"),
    ],
)
def test_what_failed(result: dict[str, Any], what: Failed) -> None:
    assert outcome.failed(result) == what


@pytest.mark.parametrize(
    ("rung", "verdict"),
    [
        *((rung, True) for rung in ("alive", "listening", "working", "serving", "settled")),
        *((rung, False) for rung in ("stopped", "drained", "started", "?", "")),
    ],
)
def test_only_a_gate_speaks_of_a_generation(rung: str, verdict: bool) -> None:
    assert Failed("m", "x", rung).is_verdict is verdict


GATE, STOP = Failed("m", "x", "working"), Failed("m", "x", "stopped")


@pytest.mark.parametrize(
    ("what", "seen", "why"),
    [
        pytest.param(GATE, {}, "", id="back"),
        pytest.param(GATE, {"holder": "held by bob"}, "the lock is not this run's", id="the lock was lost"),
        pytest.param(STOP, {}, "no verdict about generation X", id="a stop that does not end"),
        pytest.param(GATE, {"wanted": False}, "pd_rollback_on_failure is false", id="not wanted"),
        pytest.param(GATE, {"good": None}, "no other generation was ever marked good", id="the first one ever"),
        pytest.param(GATE, {"obstacle": "release pruned"}, "release pruned", id="its release is gone"),
    ],
)
def test_when_it_goes_back(what: Failed, seen: dict[str, Any], why: str) -> None:
    told = outcome.why_not_back(what, "X", **{"wanted": True, "holder": None, "good": "g", "obstacle": "", **seen})
    assert (why in told) if why else told == ""


FIRST: dict[str, Any] = {
    **{"begun": True, "message": "a\nb", "first": "a", "generation": "X", "causes": ["c"], "path": "/runs/1/evidence", "bad": True},
    **{"back": {"id": "G"}, "why_not": "", "routers": {"router0": "inactive: no request is taken"}, "unwritten": ""},
}


def test_rolled_back() -> None:
    told = outcome.message(FIRST, None, {"at": "T"}).splitlines()
    assert told[:4] == ["a", "  c", "Rolled back: generation G serves again since T.", "group_vars ask for generation X, the machine runs G."]
    assert "X is marked bad" in told[4] and "-e pd_retry=true" in told[4]
    assert told[-1] == "/runs/1/evidence"


def test_the_way_back_failed_too() -> None:
    told = outcome.message(FIRST, {**FIRST, "first": "z", "causes": ["d"]}, None)
    assert "The rollback to G failed too: z" in told
    assert "the machine is set to G. NOT proven to serve: router0 is inactive: no request is taken." in told
    assert "serves again" not in told


def test_not_rolled_back() -> None:
    told = outcome.message({**FIRST, "back": None, "bad": False, "why_not": "no gate spoke", "routers": {}}, None, None)
    assert "Not rolled back: no gate spoke." in told
    assert "Whether it serves could not be seen." in told
    assert "pd_retry" not in told, "what was not marked bad needs no retry"


def test_nothing_was_begun() -> None:
    assert outcome.message({**FIRST, "begun": False}, None, None) == "a\nb"


def test_evidence_that_could_not_be_written_is_told() -> None:
    told = outcome.message({**FIRST, "path": None, "unwritten": "disk full"}, None, None)
    assert told.splitlines()[-1] == "the evidence could not be written: disk full"

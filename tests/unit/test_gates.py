"""Rungs 1 to 3: verdicts over tables of observations. Rung 4 is in test_gates_serving.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import gates
from pd.gates import Baseline, Http, Verdict
from pd.observe import Rank, Unit

UNIT = Unit(
    name="sglang-engine@decode0.service",
    active_state="active",
    sub_state="running",
    result="success",
    main_pid=100,
    n_restarts=0,
    invocation="a" * 32,
    control_group="/system.slice/x",
    need_reload=False,
    exit_status="",
    since="",
    started_at=1.0,
    drop_ins=(),
    enabled=True,
)
BASE = gates.baseline(UNIT)
AGAIN = {"main_pid": 200, "invocation": "b" * 32}


def said(verdict: Verdict) -> tuple[str, str]:
    return verdict.state, verdict.why


@pytest.mark.parametrize(
    ("changes", "since", "state", "why"),
    [
        pytest.param({}, BASE, "READY", "MainPID 100, NRestarts 0", id="the process it was opened for"),
        pytest.param({}, None, "READY", "MainPID 100", id="whatever runs"),
        pytest.param({"active_state": "activating", "sub_state": "start", "main_pid": 0}, None, "WAIT", "activating", id="starting"),
        pytest.param({"main_pid": 0}, BASE, "WAIT", "active (running)", id="no process yet"),
        pytest.param({"active_state": "deactivating", "sub_state": "stop"}, None, "WAIT", "deactivating", id="stopping"),
        pytest.param(
            {"active_state": "failed", "exit_status": "killed by signal 9"}, BASE, "DEAD", "killed by signal 9", id="a corpse"
        ),
        pytest.param({"active_state": "failed", "result": "start-limit-hit"}, BASE, "DEAD", "start-limit-hit", id="a crash loop's end"),
        pytest.param({"active_state": "inactive"}, None, "DEAD", "is inactive", id="stopped"),
        pytest.param({"active_state": "absent"}, None, "DEAD", "is absent", id="no such unit"),
        pytest.param(
            {"active_state": "activating", "sub_state": "auto-restart", "exit_status": "exit status 1"},
            BASE,
            "DEAD",
            "exit status 1",
            id="report 081: between death and systemd's next try",
        ),
        pytest.param(
            {"active_state": "activating", "sub_state": "auto-restart"}, None, "WAIT", "auto-restart", id="not ours to judge"
        ),
        pytest.param({**AGAIN, "n_restarts": 1}, BASE, "DEAD", "MainPID 100 -> 200, NRestarts 0 -> 1", id="report 002, 020: it died"),
        pytest.param({"n_restarts": 1}, BASE, "DEAD", "NRestarts 0 -> 1", id="systemd counted one more"),
        pytest.param(AGAIN, BASE, "DEAD", "MainPID 100 -> 200", id="restarted by hand behind the gate"),
        pytest.param(AGAIN, Baseline(0, 0, ""), "READY", "MainPID 200", id="there was no process when the gate opened"),
    ],
)
def test_alive(changes: dict[str, Any], since: Baseline | None, state: str, why: str) -> None:
    verdict = gates.alive(replace(UNIT, **changes), since)
    assert verdict.state == state
    assert verdict.rung == "alive"
    assert why in verdict.why


OK = Http(200)
REFUSED = Http(0, error="http://127.0.0.1:30000/ready refused the connection")


@pytest.mark.parametrize(
    ("role", "ready", "route", "state", "why"),
    [
        ("decode", OK, None, "READY", "answers 200"),
        ("router", OK, None, "READY", "answers 200"),
        ("prefill", OK, OK, "READY", "answers 200"),
        ("prefill", OK, Http(404), "WAIT", "bootstrap /route: HTTP 404 (the ranks have not all registered)"),
        ("prefill", OK, None, "WAIT", "bootstrap /route"),
        ("decode", Http(503), None, "WAIT", "/ready: HTTP 503"),
        ("router", Http(503), None, "WAIT", "/liveness: HTTP 503"),
        ("decode", REFUSED, None, "WAIT", "refused the connection"),
        ("prefill", REFUSED, OK, "WAIT", "refused the connection"),
    ],
)
def test_listening(role: str, ready: Http, route: Http | None, state: str, why: str) -> None:
    verdict = gates.listening(role, ready, route)
    assert verdict.state == state
    assert why in verdict.why


GEN = "0f3c5a9be210"
KNOBS = {"K": "512"}
RANKS = (Rank(100, "python", GEN, KNOBS), Rank(101, "sglang::scheduler_TP0", GEN, KNOBS))
NOW = 1_700_000_000.0
FRESH = Http(200, {"loads": [{"timestamp": NOW - 5}, {"timestamp": NOW - 59}]})
ONE_TOKEN = Http(200, {"text": " 2", "meta_info": {"completion_tokens": 1}})


@pytest.mark.parametrize(
    ("local", "ranks", "loads", "state", "why"),
    [
        pytest.param(ONE_TOKEN, RANKS, FRESH, "READY", "generated 1 token(s), 2 processes carry 0f3c5a9be210", id="works"),
        pytest.param(None, RANKS, FRESH, "WAIT", "has not answered yet", id="reports 021, 025: health is green, the POST blocks"),
        pytest.param(Http(200, {"text": ""}), RANKS, FRESH, "WAIT", "0 tokens", id="report 021: 200 that generates nothing"),
        pytest.param(Http(503, "busy"), RANKS, FRESH, "WAIT", "HTTP 503, 0 tokens", id="report 022: one 503 is not a death"),
        pytest.param(Http(0, error="connected, no answer in 25 s"), RANKS, FRESH, "WAIT", "no answer in 25 s", id="timeout"),
        pytest.param(ONE_TOKEN, (), FRESH, "WAIT", "none of its processes can be seen", id="nothing seen is nothing proven"),
        pytest.param(
            ONE_TOKEN, (RANKS[0], Rank(101, "scheduler", "old000000000", KNOBS)), FRESH, "DEAD", "carries old000000000", id="stale rank"
        ),
        pytest.param(
            ONE_TOKEN, (RANKS[0], Rank(101, "scheduler", None, {})), FRESH, "WAIT", "(scheduler) shows no PD_GENERATION", id="overwritten"
        ),
        pytest.param(ONE_TOKEN, (Rank(100, "m", GEN, {"K": "511"}),), FRESH, "DEAD", "{'K': '511'}", id="another value"),
        pytest.param(ONE_TOKEN, (Rank(100, "m", GEN, {}),), FRESH, "DEAD", "{'K': None}", id="no value"),
        pytest.param(
            ONE_TOKEN, RANKS, Http(200, {"loads": [{"timestamp": NOW - 61}]}), "WAIT", "61 s old, the scheduler may hang", id="hung"
        ),
        pytest.param(
            ONE_TOKEN,
            RANKS,
            Http(200, {"loads": [{"timestamp": NOW}, {"timestamp": NOW - 90}]}),
            "WAIT",
            "90 s old",
            id="one of two ranks hung",
        ),
        pytest.param(ONE_TOKEN, RANKS, Http(401), "WAIT", "/v1/loads: HTTP 401", id="loads refused"),
        pytest.param(ONE_TOKEN, RANKS, Http(200, "not a report"), "WAIT", "/v1/loads", id="loads unreadable"),
        pytest.param(ONE_TOKEN, RANKS, None, "WAIT", "/v1/loads: None", id="loads not asked"),
    ],
)
def test_working(local: Http | None, ranks: tuple[Rank, ...], loads: Http | None, state: str, why: str) -> None:
    verdict = gates.working(local, ranks, GEN, KNOBS, loads=loads, now=NOW)
    assert verdict.state == state
    assert why in verdict.why


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"meta_info": {"completion_tokens": 3}}, 3),
        ([{"meta_info": {"completion_tokens": 3}}], 3),
        ({"usage": {"completion_tokens": 4}}, 4),
        ({"usage": {"completion_tokens": 0}}, 0),
        ({"usage": {}}, 0),
        ({"usage": None, "choices": [{"finish_reason": "error"}]}, 0),
        ({"meta_info": {"completion_tokens": None}}, 0),
        ({"meta_info": "x", "usage": {"completion_tokens": "7"}}, 0),
        ({}, 0),
        ([], 0),
        ("<html>", 0),
        (None, 0),
    ],
)
def test_report_005_a_missing_key_is_no_token_and_never_an_exception(body: Any, tokens: int) -> None:
    assert gates.completion_tokens(body) == tokens


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["meta_info", "usage", "completion_tokens", "loads", "timestamp"]), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON, st.sampled_from([0, 200, 500]))
def test_whatever_comes_back_is_judged_and_only_tokens_pass(local: Any, loads: Any, status: int) -> None:
    verdict = gates.working(Http(status, local), RANKS, GEN, KNOBS, loads=Http(status, loads), now=NOW)
    assert verdict.state in ("READY", "WAIT")
    if verdict.state == "READY":
        assert status == 200
        assert gates.completion_tokens(local) >= 1

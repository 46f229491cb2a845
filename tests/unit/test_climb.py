"""The climb over real sockets: an engine of a few lines, whose answers a test sets, behind the real HTTP client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pd import climb, gates, node, observe, outstanding
from pd.node import Placed
from pd.observe import Rank

from tests.unit.test_gates import GEN, UNIT
from tests.unit.test_http import server


class Engine:
    """Answers by path, and what /proc and systemd are made to say of it."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {"/ready": (200, b""), "/generate": (200, b'{"meta_info": {"completion_tokens": 1}}')}
        self.stamp = time.time()
        self.unit = UNIT
        self.ranks: tuple[Rank, ...] = (Rank(100, "main", GEN, {}),)

    def __call__(self, request: BaseHTTPRequestHandler, _body: Any) -> tuple[int, bytes]:
        path = request.path.partition("?")[0]
        if path == "/v1/loads":
            return 200, f'{{"loads": [{{"timestamp": {self.stamp}}}]}}'.encode()
        return self.answers[path]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Engine, Placed]]:
    engine = Engine()
    monkeypatch.setattr(node, "api_key", lambda _generation, _name: None)
    monkeypatch.setattr(observe, "unit", lambda _name: engine.unit)
    monkeypatch.setattr(observe, "cgroup_pids", lambda _group: (100,))
    monkeypatch.setattr(observe, "ranks", lambda _pids, _names: engine.ranks)
    ask = outstanding.ask
    monkeypatch.setattr(outstanding, "ask", lambda key, work, wait: ask(key, work, wait, tmp_path))
    with server(engine) as url:
        yield engine, Placed("decode0", "decode", UNIT.name, url, None, None, {}, {}, GEN)


def look(member: Placed, until: str = "working", seconds: float = 0.0) -> tuple[str, str, str]:
    climber = climb.Climber(member, until, gates.baseline(UNIT), 5.0)
    verdict = climb.wait(climber, seconds)
    return verdict.state, climber.reached, verdict.why


def test_up_to_the_rung_that_was_asked_for(engine: tuple[Engine, Placed]) -> None:
    _, member = engine
    assert look(member, "alive")[:2] == ("READY", "alive")
    assert look(member, "listening")[:2] == ("READY", "listening")
    assert look(member, "working", 2.0)[:2] == ("READY", "working")


def test_a_lower_rung_that_fails_ends_the_climb(engine: tuple[Engine, Placed]) -> None:
    double, member = engine
    double.answers["/ready"] = (503, b"Starting")
    assert look(member) == ("WAIT", "alive", "/ready: HTTP 503")
    double.unit = observe.parse_show("u", "LoadState=loaded\nActiveState=failed\nExecMainCode=2\nExecMainStatus=9\n")
    state, reached, why = look(member)
    assert (state, reached) == ("DEAD", "none")
    assert "killed by signal 9" in why


def test_report_025_green_health_is_not_a_token(engine: tuple[Engine, Placed]) -> None:
    double, member = engine
    double.answers["/generate"] = (200, b'{"text": "", "meta_info": {"completion_tokens": 0}}')
    state, reached, why = look(member, seconds=0.4)
    assert (state, reached) == ("WAIT", "listening")
    assert "200 without a token proves nothing" in why


def test_a_scheduler_that_hangs_is_seen_by_its_load_report(engine: tuple[Engine, Placed]) -> None:
    double, member = engine
    double.stamp = time.time() - 300
    assert "the scheduler may hang" in look(member, seconds=0.4)[2]


def test_a_wait_looks_again_until_it_is_ready(engine: tuple[Engine, Placed]) -> None:
    double, member = engine
    double.answers["/ready"] = (503, b"")
    times = iter([0.0, 0.1, 0.2, 0.3, 99.0])

    def clock() -> float:
        moment = next(times)
        if moment == 0.2:
            double.answers["/ready"] = (200, b"")
        return moment

    climber = climb.Climber(member, "listening", None, 5.0)
    assert climb.wait(climber, 50.0, clock).state == "READY"


def test_at_the_end_the_last_answer_is_told_and_not_that_the_next_is_out(
    engine: tuple[Engine, Placed], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, member = engine
    answers = iter([{"status": 200, "body": {"text": ""}, "error": ""}, None, None])
    monkeypatch.setattr(outstanding, "ask", lambda *_: next(answers))
    climber = climb.Climber(member, "working", None, 5.0)
    moments = iter([0.0, 1.0, 2.0, 3.0, 99.0])
    verdict = climb.wait(climber, 50.0, lambda: next(moments))
    assert climber.is_out
    assert "200 without a token proves nothing" in verdict.why
    moments = iter([0.0, 1.0, 99.0])
    assert climb.wait(climber, 50.0, lambda: next(moments)).why == "its own generation has not answered yet"


def test_a_prefill_is_asked_for_its_registered_ranks(engine: tuple[Engine, Placed]) -> None:
    double, member = engine
    port = int(member.url.rpartition(":")[2])
    prefill = Placed("prefill0", "prefill", UNIT.name, member.url, port, None, {}, {}, GEN)
    double.answers["/route"] = (404, b"")
    assert look(prefill, "listening")[2].startswith("bootstrap /route: HTTP 404")
    double.answers["/route"] = (200, b"{}")
    assert look(prefill, "listening")[0] == "READY"


@pytest.mark.parametrize(
    ("text", "left", "state", "why"),
    [
        ("LoadState=loaded\nActiveState=inactive\n", (), "READY", "u is inactive"),
        ("LoadState=loaded\nActiveState=failed\n", (), "READY", "u is failed"),
        ("LoadState=not-found\n", (), "READY", "u is absent"),
        ("LoadState=loaded\nActiveState=deactivating\n", (5, 6), "WAIT", "u is deactivating, 2 processes left"),
        ("LoadState=loaded\nActiveState=inactive\n", (5,), "WAIT", "u is inactive, 1 processes left"),
    ],
)
def test_report_071_stopped_is_when_the_last_process_is_gone(
    monkeypatch: pytest.MonkeyPatch, text: str, left: tuple[int, ...], state: str, why: str
) -> None:
    monkeypatch.setattr(observe, "unit", lambda name: observe.parse_show(name, text))
    monkeypatch.setattr(observe, "cgroup_pids", lambda _group: left)
    verdict, _, _ = climb.wait_stopped("u", 0.0)
    assert (verdict.state, verdict.why) == (state, why)

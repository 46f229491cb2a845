"""The climb over real sockets: an engine of a few lines, whose answers a test sets, behind the real HTTP client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pd import climb, gates, node, observe, outstanding, serving
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


def test_what_it_has_done_is_counted_without_what_our_probes_left(
    engine: tuple[Engine, Placed], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, member = engine
    probe, own = 'INFO: 127.0.0.1:1 - "GET /ready HTTP/1.1" 503 Service Unavailable', "Load weight begin"
    answers = {"": ((own, probe, own), "c1"), "c1": ((probe, ""), "c2")}
    monkeypatch.setattr(observe, "journal_after", lambda _invocation, cursor: answers[cursor])
    used = (observe.Work("python", 2.5, 7), observe.Work("cicc", 1.0, 5), observe.Work("ptxas", 0.25, 0), observe.Work("cicc", 0.5, 0))
    monkeypatch.setattr(observe, "work", lambda _pids: used)
    climber = climb.Climber(member, "working", None, 5.0)
    first = climber.effort(None)
    assert (first.lines, first.cursor, first.cpu, first.read) == (2, "c1", 4.25, 12)
    assert (first.compilers, first.compiling, first.reached) == (("cicc", "ptxas"), 1.75, "none")
    second = climber.effort(first)
    assert (second.lines, second.cursor) == (2, "c2"), "only the new lines are read, and a probe's is none"


def test_whether_it_listens_is_told_from_any_answer(engine: tuple[Engine, Placed]) -> None:
    double, member = engine
    climber = climb.Climber(member, "working", None, 5.0)
    double.answers["/ready"] = (503, b"Starting")
    climber.climb(0.0)
    assert climber.listens
    refused = climb.Climber(replace(member, url="http://127.0.0.1:9"), "working", None, 5.0)
    refused.climb(0.0)
    assert not refused.listens


def test_the_stack_is_that_of_main_and_of_a_scheduler_and_shows_no_secret(
    engine: tuple[Engine, Placed], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, member = engine
    asked: list[tuple[list[int], Path]] = []

    def stack(pids: list[int], py_spy: Path) -> tuple[str, ...]:
        asked.append((pids, py_spy))
        return ("serve (x.py:1)", "key = s3cret")

    titles = {100: "python -m sglang.launch_server", 101: "sglang::scheduler_TP0", 102: "sglang::scheduler_TP1", 103: "sglang::detokenizer"}
    monkeypatch.setattr(observe, "cgroup_pids", lambda _group: tuple(titles))
    monkeypatch.setattr(observe, "cmdline", lambda pid: titles[pid])
    monkeypatch.setattr(observe, "environ", lambda _pid: {"PD_PYTHON": "/opt/r/engine/bin/python"})
    monkeypatch.setattr(observe, "stack", stack)
    monkeypatch.setattr(node, "api_key", lambda _generation, _name: "s3cret")
    said = climb.Climber(member, "working", None, 5.0).stack()
    assert asked == [([100, 101], Path("/opt/r/engine/bin/py-spy"))]
    assert said == ["serve (x.py:1)", "key = <secret>"]


def test_a_router_does_not_serve_with_an_engine_that_was_replaced(
    engine: tuple[Engine, Placed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports 002, 020: the rung is DEAD before a single request is made."""
    double, member = engine
    double.answers |= {"/liveness": (200, b"")}
    router = replace(member, name="router0", role="router")
    monkeypatch.setattr(node, "everyone", lambda _generation: (member, router))
    monkeypatch.setattr(serving, "look", lambda *_: pytest.fail("nothing is asked of it"))
    gone = gates.Baseline(99, 0, "c" * 32)
    verdict = climb.wait(climb.Climber(router, "serving", None, 5.0, {"decode0": gone}), 0.0)
    assert verdict.state == "DEAD"
    assert "decode0 was READY, then was replaced" in verdict.why

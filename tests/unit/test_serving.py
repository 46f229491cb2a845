"""Rung 4 over real sockets: a router and two engines of a few lines, all behind one port, asked by the real client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from pd import gates_serving, serving
from pd.gates_serving import Serving
from pd.node import Placed

from tests.unit.test_gates import GEN
from tests.unit.test_http import server


class Trio:
    """What each of the three answers; a test changes it. `asked` are the bodies of the requests for completions."""

    def __init__(self) -> None:
        self.base = ""
        self.ready, self.circuit, self.key = 200, 0, "Bearer s3cret"
        self.tokens = {"prefill0": 1000, "decode0": 500}
        self.step = {"prefill0": 40, "decode0": 20}
        self.unread: set[str] = set()
        self.instead: tuple[int, bytes] | None = None
        self.asked: list[dict[str, Any]] = []

    def __call__(self, request: BaseHTTPRequestHandler, body: Any) -> tuple[int, bytes]:
        who, _, path = request.path.strip("/").partition("/")
        if path == "readiness":
            return self.ready, b"{}"
        if path == "metrics" and who == "router0":
            urls = [f"{self.base}/{name}" for name in self.tokens]
            return 200, "".join(f'smg_worker_cb_state{{worker="{url}"}} {self.circuit}\n' for url in urls).encode()
        if path == "metrics":
            name = serving.COUNTER["prefill" if who == "prefill0" else "decode"]
            return (500, b"") if who in self.unread else (200, f"# TYPE {name} counter\n{name} {self.tokens[who]}\n".encode())
        if request.headers.get("Authorization") != self.key:
            return 401, b"{}"
        if path == "workers":
            return 200, json.dumps({"workers": [{"url": f"{self.base}/{n}", "is_healthy": True} for n in self.tokens]}).encode()
        return self.complete(body)

    def complete(self, body: dict[str, Any]) -> tuple[int, bytes]:
        self.asked.append(body)
        self.tokens = {name: count + self.step[name] for name, count in self.tokens.items()}
        self.unread = set()
        if self.instead is not None:
            return self.instead
        choice = {"finish_reason": "length", "message": {"content": "Yes"}, "delta": {"content": "One"}}
        answer = json.dumps({"choices": [choice], "usage": {"completion_tokens": 4}}).encode()
        return 200, b"data: " + answer + b"\n\ndata: [DONE]\n\n" if body["stream"] else answer


@pytest.fixture
def trio() -> Iterator[Trio]:
    trio = Trio()
    with server(trio) as trio.base:
        yield trio


def placed(trio: Trio, name: str, role: str) -> Placed:
    url = f"{trio.base}/{name}"
    config = {"served-model-name": "m", "chunked-prefill-size": 64} if role == "prefill" else {}
    return Placed(name, role, f"{name}.service", url, None, url if role == "router" else None, {}, config, GEN)


def look(trio: Trio, key: str | None = "s3cret") -> tuple[Serving, str]:
    engines = [placed(trio, "prefill0", "prefill"), placed(trio, "decode0", "decode")]
    seen = serving.look(placed(trio, "router0", "router"), engines, key, 5.0)
    return seen, gates_serving.judge(seen, 2).why


def test_two_requests_that_both_engines_answered(trio: Trio) -> None:
    seen, why = look(trio)
    assert gates_serving.judge(seen, 2).state == "READY", why
    assert seen.moved == {"prefill0": 80.0, "decode0": 40.0}
    small, large = trio.asked
    assert (small["stream"], large["stream"], large["stream_options"]) == (False, True, {"include_usage": True})
    assert {small["model"], large["model"]} == {"m"}


def test_no_cache_can_answer_them(trio: Trio) -> None:
    """Each carries a nonce at its beginning, and the large one is longer than a prefill's chunk."""
    look(trio)
    look(trio)
    prompts = [body["messages"][0]["content"] for body in trio.asked]
    nonces = [prompt.split()[0] for prompt in prompts]
    assert (nonces[0], nonces[2]) == (nonces[1], nonces[3])
    assert nonces[0] != nonces[2]
    assert len(prompts[1].split()) > 64


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"ready": 503}, "router /readiness: HTTP 503"), ({"circuit": 1}, "circuit open"), ({"key": "another"}, "the router has 0 of 2 workers")],
)
def test_where_the_router_cannot_serve_no_request_is_made(trio: Trio, changes: dict[str, Any], why: str) -> None:
    """A request that fails opens circuits (facts 5.3.4): a probe must not be what breaks the set."""
    vars(trio).update(changes)
    assert why in look(trio)[1]
    assert trio.asked == []


@pytest.mark.parametrize("name", ["prefill0", "decode0"])
def test_report_033_an_engine_whose_counter_stood_still_did_not_answer(trio: Trio, name: str) -> None:
    trio.step[name] = 0
    assert look(trio)[1] == f"{name} did not move its token counter: the answer came from elsewhere"


def test_a_counter_that_was_not_read_before_proves_nothing(trio: Trio) -> None:
    """Else its whole life's count would seem to have come from this request."""
    trio.unread = {"decode0"}
    seen, why = look(trio)
    assert seen.moved["decode0"] == 0.0
    assert "decode0 did not move" in why


def test_an_engine_that_restarted_in_between_did_not_move_backwards(trio: Trio) -> None:
    trio.step["decode0"] = -400
    assert look(trio)[0].moved["decode0"] == 0.0


def test_after_a_small_request_that_failed_no_large_one_is_made(trio: Trio) -> None:
    trio.instead = (503, b'{"error": "circuits open"}')
    _, why = look(trio)
    assert "circuits open" in why
    assert len(trio.asked) == 1


@pytest.mark.parametrize("answer", [b"<html>", b""])
def test_an_answer_that_is_no_json_is_told(trio: Trio, answer: bytes) -> None:
    trio.instead = (200, answer)
    assert "JSONDecodeError" in look(trio)[1]

"""Rung 4: HTTP 200 alone proves nothing. What the router says, what the replies carry, and what the counters did."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import pytest
from pd import gates_serving, serving
from pd.gates import Http
from pd.gates_serving import Reply, Serving

WHOLE = Reply(200, "Yes", "length", 4, None, "", 0.4)
STREAMED = Reply(200, "One two", "length", 16, True, "", 1.25)
URLS = ("http://127.0.0.1:30000", "http://127.0.0.1:30001")
GOOD = Serving(
    readiness=Http(200),
    workers=tuple({"url": url, "is_healthy": True} for url in URLS),
    circuits=dict.fromkeys(URLS, 0.0),
    replies=(WHOLE, STREAMED),
    moved={"prefill0": 40.0, "decode0": 20.0},
)


def broken(reply: Reply) -> dict[str, Any]:
    return {"replies": (WHOLE, reply)}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"readiness": Http(503)}, "router /readiness: HTTP 503", id="report 039: not ready"),
        pytest.param({"workers": ()}, "the router has 0 of 2 workers", id="report 040: it gave up on its workers"),
        pytest.param({"workers": GOOD.workers[:1]}, "the router has 1 of 2 workers", id="one worker was dropped"),
        pytest.param(
            {"workers": (GOOD.workers[0], {"url": URLS[1], "is_healthy": False})},
            f"holds {URLS[1]} for unhealthy",
            id="report 036: a worker that never rejoined",
        ),
        pytest.param({"workers": ({}, {})}, "unhealthy", id="a worker that does not say that it is healthy"),
        pytest.param(
            {"circuits": {URLS[0]: 0.0, URLS[1]: 1.0}}, f"circuit open: {URLS[1]}", id="report 041: ready, healthy, circuit open"
        ),
        pytest.param({"circuits": {}}, f"circuit of {URLS[0]}, {URLS[1]} cannot be read", id="what cannot be read is not closed"),
        pytest.param({"circuits": {URLS[0]: 2.0, URLS[1]: 0.0}}, f"circuit open: {URLS[0]}", id="report 033: half open for ever"),
        pytest.param(
            broken(Reply(200, None, "error", 0)), "200 with no token (finish_reason error)", id="report 005: an error with status 200"
        ),
        pytest.param(broken(Reply(200, None, "stop", 3)), "200 without a content", id="report 005: no content key"),
        pytest.param(broken(Reply(200, "x", "error", 3)), "finish_reason error", id="tokens, then an error"),
        pytest.param(broken(Reply(200, "x", "abort", 3)), "finish_reason abort", id="aborted"),
        pytest.param(broken(Reply(200, "x", None, 3)), "finish_reason None", id="no end"),
        pytest.param(broken(replace(STREAMED, done=False)), "without [DONE]", id="a stream that was cut"),
        pytest.param(broken(Reply(503, error="circuits open", seconds=0.1)), "circuits open (after 0.1 s)", id="503 from the router"),
        pytest.param(broken(Reply(500)), "HTTP 500", id="500 without a word"),
        pytest.param(broken(Reply(0, error="no answer in 60 s")), "no answer in 60 s", id="lab-facts: the wedge, every request hangs"),
        pytest.param({"replies": (WHOLE,)}, "only one request was made", id="one request"),
        pytest.param({"replies": ()}, "only one request was made", id="none"),
        pytest.param({"moved": {"prefill0": 40.0, "decode0": 0.0}}, "decode0 did not move", id="answered by a stranger"),
        pytest.param({"moved": {"prefill0": 0.0, "decode0": 0.0}}, "prefill0, decode0 did not move", id="report 033: prefill got nothing"),
        pytest.param({"moved": {"decode0": 20.0}}, "only 1 of 2 token counters were read", id="a counter was not read"),
        pytest.param({"moved": {}}, "only 0 of 2 token counters", id="no counter was read"),
    ],
)
def test_what_does_not_pass(changes: dict[str, Any], why: str) -> None:
    verdict = gates_serving.judge(replace(GOOD, **changes), 2)
    assert verdict.state == "WAIT"
    assert why in verdict.why


def test_what_passes() -> None:
    verdict = gates_serving.judge(GOOD, 2)
    assert (verdict.state, verdict.why) == ("READY", "answered in 0.4 s, 1.2 s; tokens prefill0 +40, decode0 +20")


def test_a_probe_that_is_out_is_waited_for() -> None:
    assert gates_serving.judge(None, 2).state == "WAIT"


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_normal_ends(reason: str) -> None:
    assert replace(WHOLE, finish_reason=reason).trouble() is None


def test_the_observation_survives_its_file() -> None:
    assert gates_serving.from_json(json.loads(json.dumps(serving.as_json(GOOD)))) == GOOD


def choice(message: Any, finish: str | None = "stop", tokens: int | None = 2) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": finish}], "usage": {"completion_tokens": tokens}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (choice({"content": "Yes"}), Reply(200, "Yes", "stop", 2)),
        (choice({"content": ""}), Reply(200, "", "stop", 2)),
        (choice({"content": None, "reasoning_content": "hm"}), Reply(200, "hm", "stop", 2)),
        (choice({"role": "assistant"}, "error", 0), Reply(200, None, "error", 0)),
        (choice(None, None, None), Reply(200, None, None, 0)),
        ({}, Reply(200)),
        ({"choices": []}, Reply(200)),
        ({"choices": [None], "usage": "none"}, Reply(200)),
        ([], Reply(200)),
        ("text", Reply(200)),
        (None, Reply(200)),
    ],
)
def test_report_005_a_reply_in_one_piece(body: Any, expected: Reply) -> None:
    assert serving._whole(body) == expected


def chunk(delta: Any = None, finish: str | None = None, **rest: Any) -> str:
    return "data: " + json.dumps({"choices": [{"delta": delta, "finish_reason": finish}], **rest})


USAGE = "data: " + json.dumps({"choices": [], "usage": {"completion_tokens": 2}})


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            [chunk({"role": "assistant"}), "", chunk({"content": "O"}), chunk({"content": "ne"}, "length"), USAGE, "data: [DONE]"],
            Reply(200, "One", "length", 2, True),
            id="whole",
        ),
        pytest.param([chunk({"content": "O"}, "length"), USAGE], Reply(200, "O", "length", 2, False), id="cut before [DONE]"),
        pytest.param([], Reply(200, None, None, 0, False), id="nothing"),
        pytest.param([": ping", "data:[DONE]"], Reply(200, None, None, 0, True), id="only [DONE]"),
        pytest.param([chunk({"reasoning_content": "hm"}), "data: [DONE]"], Reply(200, "hm", None, 0, True), id="reasoning"),
        pytest.param(['data: {"error": {"message": "x"}}', "data: [DONE]"], Reply(200, None, None, 0, True), id="an error event"),
        pytest.param(["data: null", chunk(None), "data: [DONE]"], Reply(200, None, None, 0, True), id="odd events"),
    ],
)
def test_a_streamed_reply(lines: Iterable[str], expected: Reply) -> None:
    assert asdict(serving._streamed(lines)) == asdict(expected)

"""What the real engine and router answered (tests/samples) is read as it was meant: the tables of the other tests are made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pd import gates, loads, metrics, serving
from pd.gates import Http
from pd.gates_serving import Serving

SAMPLES = Path(__file__).resolve().parents[1] / "samples"


def text(name: str) -> str:
    return (SAMPLES / name).read_text()


def body(name: str) -> Any:
    return json.loads(text(name))


def test_a_chat_answer() -> None:
    reply = serving._whole(body("router-chat.json"))
    assert (reply.content, reply.finish_reason, reply.tokens) == ("The capital of France is Paris.", "stop", 8)
    assert reply.trouble() is None


def test_a_streamed_chat_answer() -> None:
    reply = serving._streamed(text("router-chat-stream.txt").splitlines())
    assert (reply.content, reply.finish_reason, reply.tokens, reply.done) == ("The capital of France is Paris.", "stop", 8, True)


@pytest.mark.parametrize("name", ["prefill-generate-local.json", "decode-generate-local.json"])
def test_an_engine_that_generates_alone(name: str) -> None:
    """Facts 2.3: with the warm-up's own address, prefill and decode both serve without their peer."""
    assert gates.completion_tokens(body(name)) >= 1


@pytest.mark.parametrize("name", ["decode-generate-noroom.json", "router-503-no-decode.json"])
def test_an_error_has_no_token(name: str) -> None:
    assert gates.completion_tokens(body(name)) == 0


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_the_load_report_of_an_idle_engine(role: str) -> None:
    told = body(f"{role}-loads.json")
    assert loads.told(loads.summary(told)) == "idle"
    assert set(loads.summary(told)) == {"running", "waiting", *loads.PD_QUEUES}
    (stamp,) = loads.stamps(told)
    assert gates.loads_age(Http(200, told), stamp + 12.5) == 12.5


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_the_counters_that_prove_who_answered(role: str) -> None:
    before, after = (metrics.total(text(f"{role}-metrics-{when}.txt"), serving.COUNTER[role]) for when in ("before", "after"))
    assert after > before > 0


def test_the_workers_and_circuits_of_the_router() -> None:
    workers = serving._workers(body("router-workers.json"))
    circuits = metrics.by_label(text("router-metrics-before.txt"), "smg_worker_cb_state", "worker")
    seen = Serving(Http(200, body("router-readiness.json")), workers, circuits, (), {})
    assert seen.router_trouble(2) is None
    assert seen.router_trouble(3) == "the router has 2 of 3 workers"


def test_a_prefill_whose_ranks_have_not_registered_is_not_listening() -> None:
    told = gates.listening("prefill", Http(200), Http(503, text("bootstrap-route-503.txt")))
    assert (told.state, "bootstrap /route: HTTP 503" in told.why) == ("WAIT", True)
    assert gates.listening("prefill", Http(200), Http(200, body("bootstrap-route.json"))).state == "READY"


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_the_wedge_of_lab_facts_looks_busy_and_fresh(role: str) -> None:
    """Its bootstrap thread is dead and nothing will ever be answered: only a request through the router can tell."""
    told = body(f"{role}-loads-wedged.json")
    assert loads.told(loads.summary(told)) not in ("idle", "unknown")

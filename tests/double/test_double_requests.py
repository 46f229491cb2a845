"""A request, alone and handed over from prefill to decode, and the scripted answers to it (sglang-facts 2.3, 6)."""

import concurrent.futures
import functools

import httpx
import pytest

from tests.double.asking import ADMIN, FAST_HEALTH, LOCAL, Doubles, both, chat, events, idle
from tests.fakes.doubles import until


def test_direct_request_needs_a_room_or_the_fake_host(engines: Doubles) -> None:
    refused = engines.prefill.client.post("/generate", json={"text": "hi"})
    assert refused.status_code == 400
    assert "without bootstrap room id" in refused.json()["error"]["message"]
    body = {"text": "repeat: x y z", "sampling_params": {"max_new_tokens": 2}, **LOCAL}
    served = engines.decode.client.post("/generate", json=body).json()
    assert served["text"] == "x y"
    assert served["meta_info"]["completion_tokens"] == 2
    assert served["meta_info"]["finish_reason"] == {"type": "length", "length": 2}
    local = engines.prefill.client.post("/generate", json=body).json()
    assert local["text"] == "x", "a prefill computes one token, of a local request too"
    assert local["meta_info"]["finish_reason"] == {"type": "length", "length": 0}


def test_hand_over(engines: Doubles) -> None:
    before = [e.counter("num_requests_total") for e in (engines.prefill, engines.decode)]
    first, answer = both(engines, 101, chat("Please repeat: nonce-7 and more"))
    assert first.json()["usage"]["completion_tokens"] == 1
    choice = answer.json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("nonce-7 and more", "stop")
    assert answer.json()["usage"] == {**answer.json()["usage"], "prompt_tokens": 5, "completion_tokens": 3}
    after = [e.counter("num_requests_total") for e in (engines.prefill, engines.decode)]
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1]
    assert engines.prefill.counter("prompt_tokens_total") > 0
    assert engines.prefill.counter("kv_transfer_latency_ms_count") > 0


def test_hand_over_streams(engines: Doubles) -> None:
    body = chat("repeat: one two", stream=True, stream_options={"include_usage": True})
    got = events(both(engines, 102, body)[1])
    assert got[-1] == "[DONE]"
    assert got[-2]["usage"]["completion_tokens"] == 2
    deltas = [e["choices"][0] for e in got[:-2]]
    assert deltas[0]["delta"]["role"] == "assistant"
    assert "".join(d["delta"].get("content", "") for d in deltas) == "one two"
    assert deltas[-1]["finish_reason"] == "stop"


def test_decode_hangs_without_its_prefill_leg_until_aborted(engines: Doubles) -> None:
    decode, body = engines.decode, chat("hi", bootstrap_host="127.0.0.1", bootstrap_room=103)
    body["bootstrap_port"] = engines.prefill.bootstrap_port
    with concurrent.futures.ThreadPoolExecutor() as pool:
        leg = pool.submit(decode.client.post, "/v1/chat/completions", json=body)
        until("the transfer queue", lambda: decode.loads()["disaggregation"]["decode_transfer_queue_reqs"] == 1)
        assert decode.counter("num_decode_transfer_queue_reqs") == 1
        decode.client.post("/abort_request", json={"abort_all": True}, headers=ADMIN)
        assert leg.result().json()["choices"][0]["finish_reason"] == "abort"


def test_dead_bootstrap_thread_hangs_the_pair_while_it_looks_healthy(engines: Doubles) -> None:
    body = chat("hi", bootstrap_host="127.0.0.1", bootstrap_room=104, bootstrap_port=engines.prefill.bootstrap_port)
    with engines.prefill.faulty(bootstrap_thread_dead=True):
        for engine in (engines.prefill, engines.decode):
            with pytest.raises(httpx.ReadTimeout):
                engine.client.post("/v1/chat/completions", json=body, timeout=0.3)
        assert "bootstrap_thread" in engines.prefill.output()
        assert engines.prefill.status("/ready") == engines.decode.status("/ready") == 200
    for engine in (engines.prefill, engines.decode):
        until("an idle engine after its client left", functools.partial(idle, engine))


def test_generates_nothing(engines: Doubles) -> None:
    with engines.prefill.faulty(generates_nothing=True, **FAST_HEALTH):
        answer = engines.prefill.client.post("/v1/chat/completions", json=chat("hi", **LOCAL))
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 0
        assert engines.prefill.status("/health") == 200


def test_finish_reason_error_has_no_content(engines: Doubles) -> None:
    with engines.prefill.faulty(finish_reason_error=True):
        answer = engines.prefill.client.post("/v1/chat/completions", json=chat("hi", **LOCAL))
    assert answer.json() == {
        "choices": [{"index": 0, "finish_reason": "error", "message": {"role": "assistant"}}],
        "usage": {"completion_tokens": 0},
    }


def test_stream_cut_has_no_end(engines: Doubles) -> None:
    with engines.decode.faulty(stream_cut_after=1):
        body, got = chat("repeat: a b c", stream=True, **LOCAL), b""
        with (
            pytest.raises(httpx.RemoteProtocolError),
            engines.decode.client.stream("POST", "/v1/chat/completions", json=body) as stream,
        ):
            for piece in stream.iter_bytes():
                got += piece
    assert b'"content": "a"' in got
    assert b"[DONE]" not in got


def test_transfer_error_fails_both_legs(engines: Doubles) -> None:
    with engines.prefill.faulty(transfer_error=True):
        legs = both(engines, 105, chat("hi"))
    assert [leg.status_code for leg in legs] == [500, 500]
    for engine in (engines.prefill, engines.decode):
        assert "KVTransferError(bootstrap_room=105)" in engine.output()
        assert engine.counter("num_transfer_failed_reqs_total") == 1


def test_answer_status_and_route_503(engines: Doubles) -> None:
    with engines.prefill.faulty(answer_status=503, route_503=True):
        assert engines.prefill.client.post("/v1/completions", json={"prompt": "x", **LOCAL}).status_code == 503
        assert engines.prefill.route() == 503
    assert engines.prefill.route() == 200


def test_load_can_be_faked(engines: Doubles) -> None:
    with engines.prefill.faulty(loads={"num_running_reqs": 53}):
        assert engines.prefill.loads()["num_running_reqs"] == 53
        assert engines.prefill.counter("num_running_reqs") == 53
    assert engines.prefill.loads()["num_running_reqs"] == 0

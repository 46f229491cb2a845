"""Slow by nature: the real heartbeat interval is at least 2 s, and the real router has timers of its own.

The router in front is the real one (sglang-facts 5.3).
"""

import concurrent.futures
import os
import signal
from pathlib import Path

import httpx
import pytest

from tests.double.asking import alive, chat, children, events, idle
from tests.fakes import doubles
from tests.fakes.doubles import PLAIN, until


@pytest.mark.host
def test_a_request_without_its_kv_fails_by_timeout_or_by_heartbeat(tmp_path: Path) -> None:
    prefill = doubles.make_double(tmp_path, "prefill", "prefill")
    hasty = {"SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "1"}
    watchful = {"SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL": "2"}
    decodes = [
        doubles.make_double(tmp_path, name, "decode", environ=environ)
        for name, environ in (("hasty", hasty), ("watchful", watchful))
    ]
    body = chat("hi", bootstrap_host="127.0.0.1", bootstrap_port=prefill.bootstrap_port, bootstrap_room=1)
    everyone = [prefill, *decodes]
    try:
        for engine in everyone:
            engine.start()
        for engine in everyone:
            engine.wait_ready()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            legs = [pool.submit(e.client.post, "/v1/chat/completions", json=body) for e in decodes]
            until("the transfer queue", lambda: not idle(decodes[1]))
            assert "KVPoll.WaitingForInput" in legs[0].result().json()["message"]
            orphans = [pid for title, pid in children(prefill).items() if title.startswith("sglang::")]
            for pid in orphans:
                os.kill(pid, signal.SIGSTOP)  # it cannot even see that its pipe is closed
            os.kill(prefill.pid, signal.SIGKILL)
            until("the children dead with their parent", lambda: not any(alive(pid) for pid in orphans))
            lost = legs[1].result()
        assert lost.status_code == 500
        assert "Lost connection with prefill instance" in lost.json()["message"]
        assert decodes[1].status("/ready") == 200, "and decode's own health does not show it"
    finally:
        for engine in everyone:
            engine.stop()


@pytest.mark.host
def test_the_real_router_accepts_the_pair(tmp_path: Path) -> None:
    prefill = doubles.make_double(tmp_path, "prefill", "prefill")
    decode = doubles.make_double(tmp_path, "decode", "decode")
    router, client, metrics = doubles.make_router(tmp_path, prefill, decode)
    everyone = [prefill, decode, router]

    def ready() -> bool:
        try:
            return client.get("/readiness").status_code == 200
        except httpx.ConnectError:
            return False

    def breakers() -> set[str]:
        text = PLAIN.get(f"http://127.0.0.1:{metrics}/metrics").text
        return {line.rsplit(" ", 1)[1] for line in text.splitlines() if line.startswith("smg_worker_cb_state{")}

    try:
        for process in everyone:
            process.start()
        until("router /readiness", ready, 60)
        warm_ups = [e.counter("num_requests_total") for e in (prefill, decode)]
        answer = client.post("/v1/chat/completions", json=chat("repeat: through the router")).raise_for_status()
        assert answer.json()["choices"][0]["message"]["content"] == "through the router"
        got = events(client.post("/v1/chat/completions", json=chat("repeat: a b", stream=True)))
        assert got[-1] == "[DONE]"
        assert [e.counter("num_requests_total") - 2 for e in (prefill, decode)] == warm_ups
        for engine in (prefill, decode):
            engine.fault(answer_status=500)
        for _ in range(2):
            assert client.post("/v1/chat/completions", json=chat("x")).status_code == 500
        until("open circuits", lambda: breakers() == {"1"} or breakers() == {"1.0"})
        refused = client.post("/v1/chat/completions", json=chat("x"))
        assert refused.status_code == 503
        assert client.get("/readiness").status_code == 200, "the trap: ready with every circuit open"
    finally:
        for process in everyone:
            process.stop()

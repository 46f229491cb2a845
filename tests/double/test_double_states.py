"""The table of sglang-facts 2.2, a row a test, and how an engine ends (2.5).

A test that scripts a fault into the shared pair takes it back.
"""

import concurrent.futures
import os
import signal
import time
from pathlib import Path

from tests.double.asking import FAST_HEALTH, LOCAL, Doubles, alive, chat, children
from tests.fakes.doubles import PLAIN, until


def test_loading_refuses_the_port_while_the_bootstrap_server_answers(engines: Doubles) -> None:
    engine = engines.loading
    until("bootstrap /health", lambda: engine.route() != 0)
    assert PLAIN.get(f"http://127.0.0.1:{engine.bootstrap_port}/health").text == "OK"
    assert engine.route() == 503
    assert engine.status("/ready") == 0
    until("a progress line", lambda: "Loading safetensors checkpoint shards" in engine.output())


def test_death_while_loading_is_the_real_one(engines: Doubles) -> None:
    engine = engines.loading
    until("the load", lambda: "Load weight begin" in engine.output())
    engine.fault(never_ready="load", die_at={"phase": "load", "message": "RuntimeError: out of memory"})
    assert engine.wait() == -signal.SIGKILL
    assert "Scheduler hit an exception" in engine.output()
    assert "out of memory" in engine.output()


def test_warm_up_then_serving_then_draining(engines: Doubles) -> None:
    engine = engines.warming
    until("the port", lambda: engine.status("/ping") != 0)
    assert [engine.status(p) for p in ("/ready", "/health", "/ping", "/v1/loads")] == [503, 503, 503, 200]
    assert "fired up" not in engine.output()
    engine.fault(drain_poll_s=0.05, token_seconds=0.1)
    engine.wait_ready()
    assert "The server is fired up and ready to roll!" in engine.output()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        body = chat("repeat: a b c d", **LOCAL)
        running = pool.submit(engine.client.post, "/v1/chat/completions", json=body)
        until("a running request", lambda: engine.loads()["num_running_reqs"] == 1)
        os.kill(engine.pid, signal.SIGTERM)
        until("the drain", lambda: engine.status("/ready") == 503)
        assert [engine.status(p) for p in ("/health", "/ping", "/v1/loads")] == [503, 503, 200]
        engine.fault(drain_poll_s=0.05)
        late = engine.client.post("/v1/chat/completions", json=chat("repeat: late", **LOCAL))
        assert late.json()["choices"][0]["message"]["content"] == "late", "a draining engine still admits"
        assert running.result().json()["choices"][0]["message"]["content"] == "a b c d"
    assert engine.wait() == 0
    assert "Gracefully exiting... Remaining number of requests 1" in engine.output()


def test_serving(engines: Doubles) -> None:
    began = time.monotonic()
    assert engines.prefill.status("/health") == 200
    assert time.monotonic() - began >= 1.0, "the real /health takes at least a second"
    for role, engine in (("prefill", engines.prefill), ("decode", engines.decode)):
        assert [engine.status(p) for p in ("/ready", "/ping", "/v1/loads")] == [200] * 3
        assert engine.loads()["disaggregation"]["mode"] == role
        assert time.time() - engine.loads()["timestamp"] < 1.5


def test_scheduler_hung(engines: Doubles) -> None:
    engine = engines.prefill
    with engine.faulty(hang_scheduler=True, **FAST_HEALTH):
        assert engine.status("/ready") == 200
        until("/health 503", lambda: engine.status("/health") == 503)
        assert [engine.status(p) for p in ("/ready", "/ping", "/v1/loads")] == [503, 503, 200]
        stale = engine.loads()["timestamp"]
        until("a second status", lambda: engine.status("/health") == 503)
        assert engine.loads()["timestamp"] == stale
    until("/health 200", lambda: engine.status("/health") == 200)
    assert engine.status("/ready") == 200


def test_paused(engines: Doubles) -> None:
    engine = engines.prefill
    engine.fault(**FAST_HEALTH)
    assert engine.client.post("/pause_generation", json={"mode": "in_place"}).json()["status"] == "ok"
    assert [engine.status(p) for p in ("/ready", "/ping", "/v1/loads")] == [503, 200, 200]
    assert engine.status("/health") == 503, "and it poisons the status"
    assert engine.status("/ping") == 503
    engine.client.post("/continue_generation", json={})
    assert engine.status("/health") == 200
    assert engine.status("/ready") == 200
    engine.fault()


def test_titles_and_environments_of_the_children(engines: Doubles) -> None:
    assert {"sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"} <= set(children(engines.decode))
    until("the title", lambda: "sglang::scheduler" in children(engines.wide))
    hidden = Path(f"/proc/{children(engines.wide)['sglang::scheduler']}/environ").read_bytes()
    shown = Path(f"/proc/{children(engines.decode)['sglang::scheduler_TP1']}/environ").read_bytes()
    assert b"KNOB=1" not in hidden
    assert b"SPT_NOENV=1" in shown
    assert b"KNOB=1" in Path(f"/proc/{engines.wide.pid}/environ").read_bytes()


def test_a_killed_scheduler_takes_the_engine_down(engines: Doubles) -> None:
    engine = engines.wide
    engine.wait_ready()
    orphans = children(engine)
    os.kill(orphans["sglang::scheduler"], signal.SIGKILL)
    assert engine.wait() == -signal.SIGKILL
    assert "SIGQUIT received" in engine.output()
    until("no child left", lambda: not any(alive(pid) for pid in orphans.values()))

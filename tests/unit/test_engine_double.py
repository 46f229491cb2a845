"""The engine double speaks as the real engine does (sglang-facts 2, 3, 5.3, 6), and each scripted fault is one.

Real sockets, real processes. The doubles are started once, all at the same time; a test that scripts a fault into
the shared pair takes it back.
"""

import concurrent.futures
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes import doubles
from tests.fakes.double.sglang.faults import FaultError, parse
from tests.fakes.doubles import PLAIN, Double, until

LOCAL = {"bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
KEY = "s3cret-api-key"
FAST_HEALTH = {"health_poll_s": 0.05, "health_timeout_s": 0.3}


@dataclass
class Doubles:
    """The session's engines: a healthy pair, and one held in each state."""

    prefill: Double
    decode: Double
    loading: Double
    warming: Double
    wide: Double


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doubles]:
    home = tmp_path_factory.mktemp("doubles")
    expose = {"SGLANG_EXPOSE_OWN_ENV_VARS": "1"}
    knobs = {**expose, "SGLANG_WARMUP_TIMEOUT": "600", "SGLANG_HOST_IP": "127.0.0.1", "SPT_NOENV": "1"}
    made = Doubles(
        prefill=doubles.make_double(home, "prefill", "prefill", environ=expose),
        decode=doubles.make_double(
            home, "decode", "decode", environ=knobs, api_key=KEY, admin_api_key="s3cret-admin", tp_size=2
        ),
        loading=doubles.make_double(
            home, "loading", "prefill", script={"never_ready": "load", "load_lines_every_s": 0.1}
        ),
        warming=doubles.make_double(home, "warming", "decode", script={"never_ready": "warmup", "drain_poll_s": 0.05}),
        wide=doubles.make_double(home, "wide", "decode", environ={"KNOB": "1"}),
    )
    every = list(vars(made).values())
    try:
        for engine in every:
            engine.start()
        for engine in (made.prefill, made.decode):
            engine.wait_ready()
        yield made
    finally:
        for engine in every:
            engine.stop()


def chat(content: str, **more: Any) -> dict[str, Any]:
    return {"model": "double", "messages": [{"role": "user", "content": content}], **more}


def events(response: httpx.Response) -> list[Any]:
    """The data of a server-sent stream, `[DONE]` as a string."""
    datas = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]


def both(engines: Doubles, room: int, body: dict[str, Any]) -> tuple[httpx.Response, httpx.Response]:
    """What the router does: one request to both engines, with the prefill's bootstrap address and one room."""
    body = {
        **body,
        "bootstrap_host": "127.0.0.1",
        "bootstrap_port": engines.prefill.bootstrap_port,
        "bootstrap_room": room,
    }
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        legs = [
            pool.submit(e.client.post, "/v1/chat/completions", json=body) for e in (engines.prefill, engines.decode)
        ]
        return legs[0].result(), legs[1].result()


# The table of sglang-facts 2.2, a row a test.


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


# Requests.


def test_direct_request_needs_a_room_or_the_fake_host(engines: Doubles) -> None:
    refused = engines.prefill.client.post("/generate", json={"text": "hi"})
    assert refused.status_code == 400
    assert "without bootstrap room id" in refused.json()["error"]["message"]
    body = {"text": "repeat: x y z", "sampling_params": {"max_new_tokens": 2}, **LOCAL}
    served = engines.prefill.client.post("/generate", json=body).json()
    assert served["text"] == "x y"
    assert served["meta_info"]["completion_tokens"] == 2
    assert served["meta_info"]["finish_reason"]["type"] == "length"


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
        admin = {"Authorization": "Bearer s3cret-admin"}
        decode.client.post("/abort_request", json={"abort_all": True}, headers=admin)
        assert leg.result().json()["choices"][0]["finish_reason"] == "abort"


def idle(engine: Double) -> bool:
    return bool(engine.loads()["num_used_tokens"] == 0)


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


# Scripted answers.


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
    with engines.prefill.faulty(stream_cut_after=1):
        body, got = chat("repeat: a b c", stream=True, **LOCAL), b""
        with (
            pytest.raises(httpx.RemoteProtocolError),
            engines.prefill.client.stream("POST", "/v1/chat/completions", json=body) as stream,
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


# What it says about itself.


def test_server_info_shows_registered_variables_and_leaks_the_key(engines: Doubles) -> None:
    info = engines.decode.client.get("/server_info").json()
    assert info["api_key"] == KEY
    assert (info["disaggregation_mode"], info["tp_size"], info["version"]) == ("decode", 2, "0.5.23")
    shown = info["internal_states"][0]["env_vars"]
    assert shown["SGLANG_WARMUP_TIMEOUT"] == "600"
    assert "SGLANG_HOST_IP" not in shown, "read by os.getenv only, so not registered"
    with engines.decode.faulty(env_shown={"SGLANG_WARMUP_TIMEOUT": None}):
        state = engines.decode.client.get("/server_info").json()["internal_states"][0]
        assert "SGLANG_WARMUP_TIMEOUT" not in state["env_vars"]


def test_authentication(engines: Doubles) -> None:
    url = f"http://127.0.0.1:{engines.decode.port}"
    admin = {"Authorization": "Bearer s3cret-admin"}
    assert [PLAIN.get(f"{url}{p}").status_code for p in ("/ready", "/metrics", "/ping", "/v1/loads")] == [
        *(200, 200, 401, 401)
    ]
    assert PLAIN.get(f"{url}/server_info", headers=admin).status_code == 401
    assert engines.decode.client.post("/flush_cache").status_code == 401
    assert PLAIN.post(f"{url}/flush_cache", headers=admin).status_code == 200


def children(engine: Double) -> dict[str, int]:
    """Process title -> pid of the engine's children."""
    pids = Path(f"/proc/{engine.pid}/task/{engine.pid}/children").read_text().split()
    return {Path(f"/proc/{p}/cmdline").read_text().rstrip("\0").split("\0")[0]: int(p) for p in pids}


def alive(pid: int) -> bool:
    """Neither gone nor a zombie that its new parent has not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


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


# Start-up that fails.


def test_refused_at_the_start(tmp_path: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    starts = {
        "fault": doubles.make_double(tmp_path, "fault", "decode", script={"lod_seconds": 1}),
        "flag": doubles.make_double(tmp_path, "flag", "decode", disagregation_mode="decode"),
        "port": doubles.make_double(tmp_path, "port", "decode", port=taken.getsockname()[1]),
        "death": doubles.make_double(
            tmp_path, "death", "prefill", script={"die_at": {"phase": "bootstrap", "exit": 7}}
        ),
    }
    try:
        for engine in starts.values():
            engine.start()
        assert {name: engine.wait() for name, engine in starts.items()} == {
            "fault": 2,
            "flag": 2,
            "port": 3,
            "death": 7,
        }
    finally:
        taken.close()
        for engine in starts.values():
            engine.stop()
    assert "unknown fault 'lod_seconds'" in starts["fault"].output()
    assert "unrecognized arguments: --disagregation-mode decode" in starts["flag"].output()
    assert "address already in use" in starts["port"].output()


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ('{"load_seconds": "2"}', "load_seconds"),
        ('{"hang_scheduler": 1}', "hang_scheduler"),
        ('{"never_ready": "ever"}', "never_ready"),
        ('{"loads": {"running": 53}}', "loads.running"),
        ('{"env_shown": {"A": 1}}', "env_shown.A"),
        ('{"die_at": {"phase": "lod"}}', "die_at"),
        ('{"die_at": {"phase": "load", "signal": "KILL"}}', "die_at.signal"),
        ("[]", "list"),
        ("{", "not JSON"),
    ],
)
def test_a_script_is_checked(script: str, named: str) -> None:
    with pytest.raises(FaultError, match=named):
        parse(script, "PD_DOUBLE")


def test_installs_beside_its_lock_as_sglang(tmp_path: Path) -> None:
    install = ["uv", "pip", "install", "-q", "--no-deps", "-p", sys.executable, "--target", str(tmp_path)]
    subprocess.run([*install, str(doubles.DOUBLE)], check=True)
    code = "from importlib.metadata import version; print(version('sglang'), version('pdstack-engine-double'))"
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0.5.23+double", "0.1.0"]
    assert (tmp_path / "sglang" / "flags.json").exists()


# Slow by nature: the real heartbeat interval is at least 2 s, and the real router has timers of its own.


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
            orphans = children(prefill).values()
            os.kill(prefill.pid, signal.SIGKILL)
            until("the children dead with their parent", lambda: not any(alive(pid) for pid in orphans))
            lost = legs[1].result()
        assert lost.status_code == 500
        assert "Lost connection with prefill instance" in lost.json()["message"]
        assert decodes[1].status("/ready") == 200, "and decode's own health does not show it"
    finally:
        for engine in everyone:
            engine.stop()


# The real router in front (sglang-facts 5.3).


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

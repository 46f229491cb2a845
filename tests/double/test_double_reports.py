"""What the double says about itself has the names of the real engine (tests/samples; sglang-facts 2.6, 2.7, 3)."""

import json
import re
from typing import Any

import pytest

from tests.double.asking import ADMIN, KEY, LOCAL, Doubles, both, chat
from tests.fakes import doubles
from tests.fakes.doubles import PLAIN, Double


def keys(value: Any, prefix: str = "") -> set[str]:
    """The paths of every key; the entries of a list count as one."""
    if isinstance(value, list):
        return set().union(*(keys(entry, f"{prefix}[]") for entry in value))
    if not isinstance(value, dict):
        return set()
    return set().union(*({f"{prefix}.{name}"} | keys(entry, f"{prefix}.{name}") for name, entry in value.items()))


def real(name: str) -> Any:
    return json.loads((doubles.ROOT / "tests" / "samples" / name).read_text())


def test_field_names_are_those_of_the_real_engine(engines: Doubles) -> None:
    decode, prefill = engines.decode.client, engines.prefill.client
    assert keys(decode.get("/v1/loads?include=all").json()) == keys(real("decode-loads.json"))
    assert keys(prefill.get("/v1/loads?include=all").json()) == keys(real("prefill-loads.json"))
    model = {key for key in keys(real("decode-model_info.json")) if not key.startswith(".embedding")}
    assert keys(decode.get("/model_info").json()) == model
    topology = "prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
    route = PLAIN.get(f"http://127.0.0.1:{engines.prefill.bootstrap_port}/route?{topology}")
    assert keys(route.json()) == keys(real("bootstrap-route.json"))
    answered = decode.post("/v1/chat/completions", json=chat("hi", **LOCAL)).json()
    assert keys(answered) == keys(real("router-chat.json"))
    served = decode.post("/generate", json={"text": "hi", **LOCAL}).json()
    assert keys(served) - keys(real("decode-generate-local.json")) == {".meta_info.finish_reason.matched"}
    refused = decode.post("/generate", json={"text": "hi"}).json()
    assert keys(refused) == keys(real("decode-generate-noroom.json"))


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_metric_names_and_labels_are_those_of_the_real_engine(engines: Doubles, role: str) -> None:
    def series(text: str) -> set[str]:
        lines = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line.startswith("sglang:")]
        lines = [line for line in lines if "_bucket{" not in line]
        return {re.sub(r'="[^"]*"', "", line) for line in lines}

    both(engines, 106, chat("hi"))
    engine: Double = getattr(engines, role)
    sample = (doubles.ROOT / "tests" / "samples" / f"{role}-metrics-after.txt").read_text()
    failures = ("num_aborted_requests_total", "num_transfer_failed_reqs_total", "num_bootstrap_failed_reqs_total")
    ours = {s for s in series(engine.client.get("/metrics").text) if not any(name in s for name in failures)}
    assert ours <= series(sample)


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
    assert [PLAIN.get(f"{url}{p}").status_code for p in ("/ready", "/metrics", "/ping", "/v1/loads")] == [
        *(200, 200, 401, 401)
    ]
    assert PLAIN.get(f"{url}/server_info", headers=ADMIN).status_code == 401
    assert engines.decode.client.post("/flush_cache").status_code == 401
    assert PLAIN.post(f"{url}/flush_cache", headers=ADMIN).status_code == 200

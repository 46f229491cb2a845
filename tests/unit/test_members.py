"""From the inventory's instances to what their processes start from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from pd import members
from pd.generation import Member
from pd.spec import Spec

from tests.unit.specs import VARS, spec, valid_specs

RELEASE = "0123456789"


def made(given_spec: Spec) -> dict[str, Member]:
    return {member.name: member for member in members.members(given_spec, RELEASE)}


def test_members_are_in_start_order() -> None:
    assert list(made(spec())) == ["prefill0", "decode0", "router0"]


def test_a_prefill() -> None:
    prefill = made(spec())["prefill0"]
    assert prefill.config == {
        "model-path": "/models/M",
        "served-model-name": "m",
        "host": "127.0.0.1",
        "port": 30000,
        "device": "cuda",
        "disaggregation-mode": "prefill",
        "disaggregation-bootstrap-port": 8998,
        "disaggregation-transfer-backend": "nixl",
        "enable-metrics": True,
        "tp-size": 4,
    }
    assert prefill.env == {
        "PATH": "/opt/sglang-pd/releases/0123456789/engine/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/var/cache/sglang-pd",
        "SPT_NOENV": "1",
        "SGLANG_EXPOSE_OWN_ENV_VARS": "1",
        "SGLANG_CACHE_DIR": "/var/cache/sglang-pd/jit/0123456789/device",
        "SGLANG_HOST_IP": "127.0.0.1",
        "SGLANG_TIMEOUT_KEEP_ALIVE": "75",
        "CUDA_VISIBLE_DEVICES": "0,1,2,3",
    }
    assert (prefill.url, prefill.bootstrap_port) == ("http://127.0.0.1:30000", 8998)
    assert prefill.python == "/opt/sglang-pd/releases/0123456789/engine/bin/python"


def test_a_decode_has_its_own_gpus_and_knobs_and_no_bootstrap_port() -> None:
    decode = made(spec())["decode0"]
    assert decode.config["disaggregation-mode"] == "decode"
    assert "disaggregation-bootstrap-port" not in decode.config
    assert decode.bootstrap_port is None
    assert decode.env["CUDA_VISIBLE_DEVICES"] == "4,5,6,7"
    assert decode.env["SGLANG_SM120_MMA_TARGET_CTAS"] == "512"


def test_the_router_knows_both_engines() -> None:
    router = made(spec())["router0"]
    assert router.config == {
        "pd-disaggregation": True,
        "host": "127.0.0.1",
        "port": 30002,
        "prometheus-host": "127.0.0.1",
        "prometheus-port": 29000,
        "prefill": [["http://127.0.0.1:30000", 8998]],
        "decode": [["http://127.0.0.1:30001"]],
        "health-check-timeout-secs": 25,
    }
    assert router.env == {
        "PATH": "/opt/sglang-pd/releases/0123456789/router/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": "/var/cache/sglang-pd",
        "SPT_NOENV": "1",
    }
    assert router.metrics_url == "http://127.0.0.1:29000"


def test_kernels_are_named_to_the_engine_that_wants_them_and_to_no_other() -> None:
    found = made(spec(decode0={"engine_kernels": ["guards", "sparse_decode"]}))
    assert found["decode0"].env["PD_KERNELS"] == "guards,sparse_decode"
    assert found["decode0"].env["PD_KERNELS_REPORT"] == "/var/cache/sglang-pd/kernels/decode0"
    assert not [name for other in ("prefill0", "router0") for name in found[other].env if name.startswith("PD_KERNELS")]


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:30001"), ("0.0.0.0", "http://127.0.0.1:30001"), ("10.0.0.5", "http://10.0.0.5:30001")],
)
def test_an_engine_is_asked_where_it_listens(host: str, url: str) -> None:
    assert made(spec(decode0={"engine_host": host}))["decode0"].url == url


@pytest.mark.parametrize(
    ("changes", "visible"),
    [
        ({"engine_gpus": ["GPU-aa", "GPU-bb"]}, "GPU-aa,GPU-bb"),
        ({"engine_device": "cpu", "engine_gpus": []}, None),
        ({"engine_device": "cpu", "engine_gpus": [0]}, None),
    ],
)
def test_only_the_gpus_it_was_given_are_visible(changes: dict[str, Any], visible: str | None) -> None:
    assert made(spec(decode0=changes))["decode0"].env.get("CUDA_VISIBLE_DEVICES") == visible


def test_one_key_for_the_router_and_both_engines() -> None:
    """The router sends its own key to the workers (facts 5.2)."""
    with_key = made(spec(**{name: {"pd_api_key": "s3cret"} for name in VARS}))
    assert {member.config["api-key"] for member in with_key.values()} == {"s3cret"}
    without = made(spec(**{name: {"pd_api_key": ""} for name in VARS}))
    assert not [member for member in without.values() if "api-key" in member.config]


@settings(deadline=None, max_examples=25)
@given(valid_specs())
def test_what_holds_of_every_set(given_spec: Spec) -> None:
    found = made(given_spec)
    assert set(found) == {instance.name for instance in given_spec.instances}
    roles = [member.role for member in found.values()]
    assert roles == sorted(roles, key=["prefill", "decode", "router"].index)
    (router,) = [m for m in found.values() if m.role == "router"]
    asked = {url for urls in (*router.config["prefill"], *router.config["decode"]) for url in urls[:1]}
    assert asked == {m.url for m in found.values() if m.role != "router"}
    for member in found.values():
        assert member.env["SPT_NOENV"] == "1", "else no rank could be proven (facts 2.7)"
        assert all(isinstance(value, str) for value in member.env.values())

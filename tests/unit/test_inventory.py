"""Bad input, each refused by file and key before anything is stopped; good input, never."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pd import inventory
from pd.problem import report
from pd.spec import Spec

from tests.unit.specs import ENGINE, spec, valid_specs

GOOD = spec()
COMMON = ENGINE["engine_common_args"]
UUIDS = [f"GPU-{n:08x}-0000-0000-0000-000000000000" for n in range(4)]


def env(**knobs: Any) -> dict[str, Any]:
    return {"engine_env": knobs}


def args(**flags: Any) -> dict[str, Any]:
    return {"engine_args": {name.replace("_", "-"): value for name, value in flags.items()}}


def router(**flags: Any) -> dict[str, Any]:
    return {
        "router_args": {"health-check-timeout-secs": 25}
        | {name.replace("_", "-"): value for name, value in flags.items()}
    }


# what is changed in the good spec; the key that is named; words of what was found; words of what to write instead
BAD: list[tuple[dict[str, dict[str, Any]], str, str, str]] = [
    # GPUs
    (
        {"decode0": {"engine_gpus": [3, 4, 5, 6]}},
        "engine_gpus",
        "3 of decode0, which prefill0 has too",
        "no other instance",
    ),
    (
        {"decode0": {"engine_gpus": [4, 5]}},
        "engine_gpus",
        "2 GPUs (4, 5); decode0 needs 4",
        "list of 4 GPUs, or tp-size: 2",
    ),
    ({"decode0": {"engine_gpus": [4, 5, 6, 6]}}, "engine_gpus", "one of them twice", "each GPU once"),
    ({"decode0": {"engine_gpus": []}}, "engine_gpus", "0 GPUs", "list of 4 GPUs"),
    ({"decode0": {"engine_gpus": UUIDS}}, "engine_gpus", "an overlap could not be seen", "all as UUIDs"),
    ({"decode0": {"engine_gpus": "4,5,6,7"}}, "engine_gpus", "4,5,6,7", "a list of numbers"),
    ({"decode0": {"engine_gpus": [4, 5, 6, True]}}, "engine_gpus", "True", "a list of numbers"),
    ({"decode0": {"engine_gpus": ["4", "5", "6", "7"]}}, "engine_gpus", "4", "a list of numbers"),
    ({"decode0": {"engine_device": "gpu"}}, "engine_device", "gpu", "cuda or cpu"),
    ({"decode0": {"engine_device": "cpu"}}, "engine_device", "cpu for decode0, cuda for prefill0", "the same for both"),
    ({"decode0": args(pp_size=2)}, "engine_gpus", "needs 8", "8 GPUs"),
    ({"decode0": args(dp_size=2)}, "engine_gpus", "needs 8", "8 GPUs"),
    ({"decode0": args(tp_size="four")}, "tp-size", "four", "whole number"),
    # ports and addresses
    ({"decode0": {"engine_port": 30000}}, "decode0.engine_port", "which prefill0 engine_port has", "another port"),
    (
        {"router0": {"router_metrics_port": 8998}},
        "router0.router_metrics_port",
        "prefill0 engine_bootstrap_port",
        "another port",
    ),
    ({"decode0": args(nccl_port=30002)}, "router0.router_port", "decode0 nccl-port", "another port"),
    ({"decode0": {"engine_port": None}}, "engine_port", "nothing", "engine_port: a number"),
    ({"decode0": {"engine_port": "http"}}, "engine_port", "http", "engine_port: a number"),
    ({"prefill0": {"engine_bootstrap_port": 80}}, "engine_bootstrap_port", "80", "from 1024"),
    ({"router0": {"router_port": 70000}}, "router_port", "70000", "to 65535"),
    ({"decode0": {"engine_host": "localhost"}}, "engine_host", "localhost", "0.0.0.0 for every interface"),
    ({"decode0": {"engine_host": None}}, "engine_host", "None", "an IP address"),
    # names and values
    ({"decode0": env(**{"SGLANG-X": "1"})}, "engine_env.SGLANG-X", "systemd drops it", "ASCII letters"),
    ({"decode0": env(SGLANG_X="1\u00a0")}, "engine_env.SGLANG_X", "U+00A0 NO-BREAK SPACE at position 1", "typed anew"),
    ({"decode0": env(SGLANG_X="1\n")}, "engine_env.SGLANG_X", "newline at the end", "|-"),
    ({"decode0": env(SGLANG_X=True)}, "engine_env.SGLANG_X", "the boolean true", 'SGLANG_X: "1"'),
    ({"decode0": env(SGLANG_X=None)}, "engine_env.SGLANG_X", "null", "delete the SGLANG_X line"),
    ({"decode0": env(SGLANG_X=[1])}, "engine_env.SGLANG_X", "list", 'SGLANG_X: "1"'),
    ({"decode0": env(SGLANG_X="None")}, "engine_env.SGLANG_X", "None", "delete the SGLANG_X line"),
    ({"decode0": env(SGLANG_X="__omit_place_holder__af")}, "engine_env.SGLANG_X", "omit", "delete the SGLANG_X line"),
    ({"decode0": args(page_size=None)}, "engine_args.page-size", "null", "delete the page-size line"),
    (
        {"decode0": {"engine_args": {"--page-size": 1}}},
        "engine_args.--page-size",
        "no leading dashes",
        "page-size: ...",
    ),
    (
        {"decode0": {"engine_args": {"tp_size": 4, "tp-size": 4}}},
        "engine_args.tp-size",
        "under 2 names: tp_size, tp-size",
        "tp-size once",
    ),
    (
        {"decode0": {"engine_args": {"tp-size": 4, "tensor-parallel-size": 4}}},
        "engine_args.tensor-parallel-size",
        "under 2 names",
        "tp-size once",
    ),
    ({"decode0": {"engine_env": ["A=1"]}}, "engine_env", "a list", "engine_env: {}"),
    ({"decode0": {"engine_args": "--tp-size 4"}}, "engine_args", "a str", "engine_args: {}"),
    # what the product sets itself
    ({"decode0": args(model_path="/m")}, "engine_args.model-path", "set from elsewhere", "engine_model_path"),
    ({"decode0": args(model="/m")}, "engine_args.model", "set from elsewhere", "engine_model_path"),
    (
        {"decode0": {"engine_common_args": COMMON | {"host": "0.0.0.0"}}},
        "engine_common_args.host",
        "set from elsewhere",
        "engine_host",
    ),
    ({"decode0": args(port=1)}, "engine_args.port", "set from elsewhere", "engine_port"),
    (
        {"decode0": args(disaggregation_mode="decode")},
        "engine_args.disaggregation-mode",
        "elsewhere",
        "the group prefill or decode",
    ),
    ({"decode0": args(base_gpu_id=4)}, "engine_args.base-gpu-id", "set from elsewhere", "engine_gpus"),
    ({"decode0": args(api_key="sentinel")}, "engine_args.api-key", "set from elsewhere", "pd_api_key"),
    ({"decode0": args(config="x")}, "engine_args.config", "set from elsewhere", "engine_args"),
    ({"decode0": env(CUDA_VISIBLE_DEVICES="4,5")}, "engine_env.CUDA_VISIBLE_DEVICES", "elsewhere", "engine_gpus"),
    ({"decode0": env(PD_GENERATION="x")}, "engine_env.PD_GENERATION", "elsewhere", "which is computed"),
    ({"decode0": env(SPT_NOENV="1")}, "engine_env.SPT_NOENV", "elsewhere", "always set"),
    ({"router0": router(port=1)}, "router_args.port", "elsewhere", "router_port"),
    ({"router0": router(prometheus_port=1)}, "router_args.prometheus-port", "elsewhere", "router_metrics_port"),
    ({"router0": router(mini_lb=True)}, "router_args.mini-lb", "elsewhere", "debugging"),
    ({"router0": {"router_env": {"SPT_NOENV": "0"}}}, "router_env.SPT_NOENV", "elsewhere", "always set"),
    # what breaks silently
    ({"decode0": env(SGL_ENABLE_X="1")}, "engine_env.SGL_ENABLE_X", "an old name", "SGLANG_ENABLE_X"),
    ({"decode0": env(SGL_FORCE_SHUTDOWN="1")}, "engine_env.SGL_FORCE_SHUTDOWN", "skip the drain", "drain first"),
    (
        {"decode0": env(PROMETHEUS_MULTIPROC_DIR="/x")},
        "engine_env.PROMETHEUS_MULTIPROC_DIR",
        "counters survive",
        "of its own",
    ),
    ({"decode0": env(SGLANG_PLUGINS="pd")}, "engine_env.SGLANG_PLUGINS", "silently", "installed plugins are loaded"),
    (
        {"decode0": env(CUDA_DEVICE_MAX_CONNECTIONS="1")},
        "engine_env.CUDA_DEVICE_MAX_CONNECTIONS",
        "overwrites",
        "no effect",
    ),
    # the pair
    (
        {"decode0": {"engine_gpus": [4, 5], **args(tp_size=2)}},
        "tp-size",
        "2 for decode0, 4 for prefill0",
        "pd_allow_mismatch: [tp-size]",
    ),
    ({"decode0": args(page_size=64)}, "page-size", "64 for decode0, the default for prefill0", "[page-size]"),
    (
        {"prefill0": args(kv_cache_dtype="bf16")},
        "kv-cache-dtype",
        "the default for decode0, bf16 for prefill0",
        "[kv-cache-dtype]",
    ),
    (
        {"decode0": {"engine_model_path": "/models/N"}},
        "engine_model_path",
        "/models/N for decode0",
        "[engine_model_path]",
    ),
    ({"decode0": env(SGLANG_DSV4_KV_LAYOUT="v41")}, "SGLANG_DSV4_KV_LAYOUT", "v41 for decode0", "the same for both"),
    (
        {"decode0": args(disaggregation_transfer_backend="mooncake")},
        "disaggregation-transfer-backend",
        "mooncake, which",
        "nixl",
    ),
    ({"router0": {"pd_allow_mismatch": ["tp-sise"]}}, "pd_allow_mismatch", "tp-sise", "tp-size"),
    ({"decode0": {"engine_model_path": "models/M"}}, "engine_model_path", "models/M", "absolute path"),
    ({"decode0": {"engine_model_path": ""}}, "engine_model_path", "nothing", "absolute path"),
    (
        {"prefill0": args(chunked_prefill_size=1000, page_size=256)},
        "chunked-prefill-size",
        "no multiple of page-size 256",
        ": 768",
    ),
    # timeouts
    (
        {"decode0": env(SGLANG_TIMEOUT_KEEP_ALIVE=7200)},
        "SGLANG_TIMEOUT_KEEP_ALIVE",
        "7200 s",
        "SGLANG_TIMEOUT_KEEP_ALIVE: 75",
    ),
    (
        {"decode0": env(SGLANG_TIMEOUT_KEEP_ALIVE=5)},
        "SGLANG_TIMEOUT_KEEP_ALIVE",
        "5 s",
        "SGLANG_TIMEOUT_KEEP_ALIVE: 75",
    ),
    (
        {"decode0": env(SGLANG_TIMEOUT_KEEP_ALIVE="1m")},
        "SGLANG_TIMEOUT_KEEP_ALIVE",
        "1m s",
        "SGLANG_TIMEOUT_KEEP_ALIVE: 75",
    ),
    ({"router0": {"router_args": {}}}, "router_args.health-check-timeout-secs", "5 s", "health-check-timeout-secs: 25"),
    (
        {"router0": router(health_check_timeout_secs=20)},
        "router_args.health-check-timeout-secs",
        "may take 20 s",
        ": 25",
    ),
    (
        {"decode0": env(SGLANG_HEALTH_CHECK_TIMEOUT=60)},
        "router_args.health-check-timeout-secs",
        "may take 60 s",
        ": 65",
    ),
    # the lab's stand-ins on a real GPU
    (
        {"decode0": {"runtime_packages": ["lab/standins"]}},
        "runtime_packages",
        "lab/standins with engine_device cuda",
        "without them",
    ),
]


@pytest.mark.parametrize(("changes", "key", "found", "fix"), BAD, ids=[f"{at}-{row[1]}" for at, row in enumerate(BAD)])
def test_a_mistake_is_named(changes: dict[str, dict[str, Any]], key: str, found: str, fix: str) -> None:
    problems = inventory.check(spec(**changes))
    assert [p for p in problems if p.key == key and found in p.found and fix in p.fix], report(problems)
    assert all(p.where and p.key and p.found and p.fix for p in problems)
    assert "sentinel" not in report(problems)


OK: list[dict[str, dict[str, Any]]] = [
    {},
    {"decode0": {"engine_gpus": UUIDS}, "prefill0": {"engine_gpus": [u.replace("GPU-", "GPU-f") for u in UUIDS]}},
    {"decode0": args(attn_dp_size=4, dp_size=4)},
    {"decode0": {"engine_host": "0.0.0.0"}},
    {"decode0": {**args(tp_size=2), "engine_gpus": [4, 5], "pd_allow_mismatch": ["tp-size"]}},
    {"decode0": args(tp_size="4")},
    {"decode0": {"engine_args": {"tensor_parallel_size": 4}}},
    {"decode0": {"engine_common_args": {"tp_size": 2, "disaggregation-transfer-backend": "nixl"}, **args(tp_size=4)}},
    {"decode0": env(SGLANG_X='{"a": "$b %c"}', SGLANG_Y="two\nlines")},
    {"router0": router(disable_retries=True)},
    {"router0": {"router_env": {"PYTHONUNBUFFERED": "1"}}},
    {"prefill0": args(chunked_prefill_size=-1, page_size=256), "decode0": args(page_size=256)},
    {"decode0": {"engine_env": None}},
    {name: {"engine_device": "cpu", "runtime_packages": ["lab/standins"]} for name in ("prefill0", "decode0")},
]


@pytest.mark.parametrize("changes", OK)
def test_what_is_right_passes(changes: dict[str, dict[str, Any]]) -> None:
    assert inventory.check(spec(**changes)) == []


@settings(max_examples=60, deadline=None)
@given(valid_specs())
def test_any_valid_spec_has_no_problem(valid: Spec) -> None:
    assert inventory.check(valid) == []


LOCAL = [row for row in BAD if ("_env." in row[1] or "_args." in row[1]) and "health" not in row[1]]
"""Mistakes in one knob, which no other mistake can undo."""


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(LOCAL), min_size=2, max_size=2, unique_by=lambda row: tuple(row[0])))
def test_all_problems_are_told_and_not_only_the_first(
    rows: list[tuple[dict[str, dict[str, Any]], str, str, str]],
) -> None:
    """Two mistakes in two instances: each is named as if it were alone."""
    both = inventory.check(spec(**rows[0][0], **rows[1][0]))
    for _, key, found, _ in rows:
        assert [p for p in both if p.key == key and found in p.found]


def test_no_retries_need_a_long_keep_alive() -> None:
    short = {"engine_common_env": {"SGLANG_TIMEOUT_KEEP_ALIVE": 60}}
    (problem,) = inventory.check(spec(router0=router(disable_retries=True), decode0=short))
    assert "60 s, while router0 has disable-retries" in problem.found
    unset: dict[str, Any] = {"engine_common_env": {}}
    (problem,) = inventory.check(spec(router0=router(disable_retries=True), prefill0=unset))
    assert "5 s, the default" in problem.found
    assert inventory.check(spec(decode0=short, prefill0=unset)) == []


def test_a_router_elsewhere_cannot_reach_loopback() -> None:
    away = replace(GOOD.instances[2], machine="node1")
    problems = inventory.check(replace(GOOD, instances=(*GOOD.instances[:2], away), nodes={"node0": {}, "node1": {}}))
    assert {(p.key, "another machine (node1)" in p.found) for p in problems} == {("engine_host", True)}


def test_stand_ins_of_the_machine_count_too() -> None:
    problems = inventory.check(replace(GOOD, nodes={"node0": {"runtime_packages": ["lab/stand-ins"]}}))
    assert {p.key for p in problems} == {"runtime_packages"}

"""Valid specs for tests: the real 8-GPU host in short, and a generator of many others."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from hypothesis import strategies as st
from pd.spec import GROUP_OF_ROLE, Instance, Spec

ENGINE: dict[str, Any] = {
    "engine_host": "127.0.0.1",
    "engine_device": "cuda",
    "engine_model_path": "/models/M",
    "engine_served_model_name": "m",
    "engine_common_args": {"tp-size": 4, "disaggregation-transfer-backend": "nixl", "enable-metrics": True},
    "engine_common_env": {"SGLANG_HOST_IP": "127.0.0.1", "SGLANG_TIMEOUT_KEEP_ALIVE": 75},
    "engine_args": {},
    "engine_env": {},
}
VARS: dict[str, dict[str, Any]] = {
    "prefill0": {**ENGINE, "engine_port": 30000, "engine_bootstrap_port": 8998, "engine_gpus": [0, 1, 2, 3]},
    "decode0": {
        **ENGINE,
        "engine_port": 30001,
        "engine_gpus": [4, 5, 6, 7],
        "engine_env": {"SGLANG_SM120_MMA_TARGET_CTAS": 512},
    },
    "router0": {
        "router_host": "127.0.0.1",
        "router_port": 30002,
        "router_metrics_host": "127.0.0.1",
        "router_metrics_port": 29000,
        "router_args": {"health-check-timeout-secs": 25},
        "router_env": {},
    },
}
ROLE = {"prefill0": "prefill", "decode0": "decode", "router0": "router"}


def spec(**changes: dict[str, Any]) -> Spec:
    """The good spec with variables of some instances changed: `spec(decode0={"engine_port": 1})`."""
    instances = []
    for name, role in ROLE.items():
        told = copy.deepcopy(VARS[name]) | changes.get(name, {})
        instances.append(Instance(name, (role,), "node0", told, ("all", GROUP_OF_ROLE[role])))
    return Spec(tuple(instances), {"node0": {}})


@st.composite
def valid_specs(draw: st.DrawFn) -> Spec:
    """Sets with several engines of one shape over one to three machines, on the CPU or on GPUs by number or UUID."""
    device = draw(st.sampled_from(["cuda", "cpu"]))
    tp, pp = draw(st.integers(1, 4)), draw(st.integers(1, 2))
    machines = [f"node{n}" for n in range(draw(st.integers(1, 3)))]
    by_uuid, size = draw(st.booleans()), tp * pp if device == "cuda" else 0
    numbers = itertools.count(draw(st.integers(1024, 30000)), draw(st.integers(1, 99)))
    used = dict.fromkeys(machines, 0)
    knobs = draw(
        st.dictionaries(
            st.from_regex(r"SGLANG_[A-Z]{3,8}Q", fullmatch=True),
            st.integers(0, 9999) | st.sampled_from(["a b", "$x%", '"']),
            max_size=3,
        )
    )
    instances = []
    for name, role in [(f"prefill{n}", "prefill") for n in range(draw(st.integers(1, 2)))] + [
        (f"decode{n}", "decode") for n in range(draw(st.integers(1, 2)))
    ]:
        machine = draw(st.sampled_from(machines))
        first = used[machine]
        used[machine] += size
        gpus: list[int | str] = [f"GPU-{n:08x}" if by_uuid else n for n in range(first, first + size)]
        told = {
            **copy.deepcopy(ENGINE),
            "engine_host": "0.0.0.0",
            "engine_device": device,
            "engine_gpus": gpus,
            "engine_port": next(numbers),
        }
        told |= {"engine_bootstrap_port": next(numbers), "engine_env": knobs if role == "decode" else {}}
        told["engine_common_args"] |= {
            "tp-size": tp,
            draw(st.sampled_from(["pp_size", "pp-size", "pipeline-parallel-size"])): pp,
        }
        instances.append(Instance(name, (role,), machine, told, ("all", role)))
    router = {**copy.deepcopy(VARS["router0"]), "router_port": next(numbers), "router_metrics_port": next(numbers)}
    instances.append(Instance("router0", ("router",), draw(st.sampled_from(machines)), router, ("all", "routers")))
    return Spec(tuple(draw(st.permutations(instances))), {machine: {} for machine in machines})

"""From an inventory's instances to the members of a generation: the user's knobs plus what the product itself must set. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from . import kernels
from .generation import Member, in_order
from .spec import ROUTER, Instance, Spec, instance_args, instance_env

RELEASES = "/opt/sglang-pd/releases"
HOME = "/var/cache/sglang-pd"
JIT = f"{HOME}/jit"
"""What is compiled at run time, by release; below it `device` is a link to the caches of this GPU and driver, made by launch_engine.py.
SGLang puts all of them there: Triton, Inductor, TileLang, FlashInfer, CUDA (srt/environ.py:2307)."""
ENGINE_ENV: Mapping[str, str] = {
    # without it schedulers, detokenizer and router overwrite their environ with their title: no rank could be proven (facts 2.7)
    "SPT_NOENV": "1",
    "SGLANG_EXPOSE_OWN_ENV_VARS": "1",
}
ROUTER_ENV: Mapping[str, str] = {"SPT_NOENV": "1"}


def members(spec: Spec, release: str) -> tuple[Member, ...]:
    """Every instance of the set, in start order. The spec has passed `inventory.check`."""
    engines = [_engine(instance, release) for instance in spec.engines]
    routers = [_router(instance, release, engines) for instance in spec.of(ROUTER)]
    return in_order([*engines, *routers])


def _engine(instance: Instance, release: str) -> Member:
    told = instance.vars
    python = f"{RELEASES}/{release}/engine/bin/python"
    config: dict[str, Any] = {
        "model-path": told["engine_model_path"],
        "served-model-name": told["engine_served_model_name"],
        "host": told["engine_host"],
        "port": told["engine_port"],
        "device": told["engine_device"],
        "disaggregation-mode": instance.role,
        **_key(told),
        **instance_args(instance),
    }
    port = told.get("engine_bootstrap_port") if instance.role == "prefill" else None
    if port is not None:
        config["disaggregation-bootstrap-port"] = port
    env = {**_place(python), **ENGINE_ENV, "SGLANG_CACHE_DIR": f"{JIT}/{release}/device", **instance_env(instance), **kernels.env(instance, HOME)}
    if told["engine_device"] == "cuda" and told["engine_gpus"]:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, told["engine_gpus"]))
    url = f"http://{_reachable(told['engine_host'])}:{told['engine_port']}"
    return Member(instance.name, instance.role, instance.machine, url, python, env, config, bootstrap_port=port)


def _router(instance: Instance, release: str, engines: Sequence[Member]) -> Member:
    told = instance.vars
    python = f"{RELEASES}/{release}/router/bin/python"
    config: dict[str, Any] = {
        "pd-disaggregation": True,
        "host": told["router_host"],
        "port": told["router_port"],
        "prometheus-host": told["router_metrics_host"],
        "prometheus-port": told["router_metrics_port"],
        "prefill": [[e.url, e.bootstrap_port] for e in engines if e.role == "prefill"],
        "decode": [[e.url] for e in engines if e.role == "decode"],
        **_key(told),
        **instance_args(instance),
    }
    return Member(
        name=instance.name,
        role=instance.role,
        machine=instance.machine,
        url=f"http://{_reachable(told['router_host'])}:{told['router_port']}",
        python=python,
        env={**_place(python), **ROUTER_ENV, **instance_env(instance)},
        config=config,
        metrics_url=f"http://{_reachable(told['router_metrics_host'])}:{told['router_metrics_port']}",
    )


def _place(python: str) -> dict[str, str]:
    """What a login shell would have set and a service has not: ninja of the venv is found by PATH (field report 075).

    FlashInfer takes nvcc of CUDA_HOME, PATH or /usr/local/cuda, in that order (its jit/cpp_ext.py:48): the machine's own.
    """
    return {"PATH": f"{PurePosixPath(python).parent}:/usr/local/bin:/usr/bin:/bin", "HOME": HOME}


def _key(told: Mapping[str, Any]) -> dict[str, str]:
    """One key for router and engines: the router sends its own to the workers (facts 5.2). The admin key too, or /server_info is open."""
    return {"api-key": told["pd_api_key"]} if told.get("pd_api_key") else {}


def _reachable(host: str) -> str:
    """Where a process that binds every address is asked from its own machine."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host

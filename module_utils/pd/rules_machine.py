"""Rules on what instances share of a machine: GPUs, ports, addresses, packages."""

from __future__ import annotations

import ipaddress
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from . import ports
from .problem import Problem
from .spec import ROUTER, Instance, Spec, instance_args, number

_GPU_UUID = re.compile(r"(GPU|MIG)-[0-9a-fA-F-]+")
_STAND_IN = re.compile(r"stand[-_]?in", re.IGNORECASE)
DEVICES = ("cuda", "cpu")


def gpus(spec: Spec) -> Iterator[Problem]:
    """The device, the form of engine_gpus, and as many of them as the parallelism needs."""
    for instance in spec.engines:
        device, given = instance.vars.get("engine_device", "cuda"), instance.vars.get("engine_gpus", [])
        where = spec.where(instance, "engine_gpus")
        if device not in DEVICES:
            yield Problem(spec.where(instance, "engine_device"), "engine_device", str(device), " or ".join(DEVICES))
        elif not isinstance(given, (list, tuple)) or not all(_is_gpu(gpu) for gpu in given):
            yield Problem(
                where, "engine_gpus", str(given), "a list of numbers, [0, 1, 2, 3], or of UUIDs from `nvidia-smi -L`"
            )
        elif device == "cuda":
            yield from _gpu_count(spec, instance, list(given))


def _gpu_count(spec: Spec, instance: Instance, given: list[Any]) -> Iterator[Problem]:
    args, where = instance_args(instance), spec.where(instance, "engine_gpus")
    sizes = {name: number(args.get(name, 1)) for name in ("tp-size", "pp-size", "dp-size")}
    for name, size in sizes.items():
        if size is None or size < 1:
            yield Problem(spec.where_arg(instance, name), name, str(args[name]), f"{name}: a whole number from 1")
            return
    # Attention-DP splits the tensor-parallel group; without it each replica has GPUs of its own (fields/parallel.py).
    replicas = 1 if ports.attention_dp(instance) else sizes["dp-size"] or 1
    needed = (sizes["tp-size"] or 1) * (sizes["pp-size"] or 1) * replicas
    if len(set(map(str, given))) != len(given):
        yield Problem(where, "engine_gpus", f"{_listed(given)}: one of them twice", "each GPU once")
    elif len(given) != needed:
        found = f"{len(given)} GPUs ({_listed(given)}); {instance.name} needs {needed} (tp-size x pp-size x replicas)"
        yield Problem(where, "engine_gpus", found, f"a list of {needed} GPUs, or tp-size: {len(given) or 1}")


def gpu_overlap(spec: Spec) -> Iterator[Problem]:
    """A GPU in two instances of one machine; numbers and UUIDs side by side, where that cannot be seen."""
    users = [(engine, [str(gpu) for gpu in _gpu_list(engine)]) for engine in spec.engines]
    for (one, mine), (other, theirs) in combinations(users, 2):
        if one.machine != other.machine or not mine or not theirs:
            continue
        where, both = spec.where(other, "engine_gpus"), [gpu for gpu in theirs if gpu in mine]
        if both:
            found = f"{_listed(both)} of {other.name}, which {one.name} has too ({spec.where(one, 'engine_gpus')})"
            yield Problem(where, "engine_gpus", found, "GPUs that no other instance of the machine has")
        elif any(gpu.isdigit() for gpu in mine) != any(gpu.isdigit() for gpu in theirs):
            found = (
                f"{_listed(theirs)} of {other.name} beside {_listed(mine)} of {one.name}: an overlap could not be seen"
            )
            yield Problem(where, "engine_gpus", found, "all GPUs of a machine as numbers, or all as UUIDs")


def port_numbers(spec: Spec) -> Iterator[Problem]:
    for instance in spec.instances:
        for name in ports.required(instance):
            value = instance.vars.get(name)
            port = number(value)
            if port is None or not ports.FIRST_UNPRIVILEGED <= port <= 65535:
                found = "nothing" if value is None else str(value)
                fix = f"{name}: a number from {ports.FIRST_UNPRIVILEGED} to 65535 (the services run unprivileged)"
                yield Problem(spec.where(instance, name), name, found, fix)


def port_overlap(spec: Spec) -> Iterator[Problem]:
    by_machine: dict[str, list[ports.Port]] = defaultdict(list)
    for instance in spec.instances:
        by_machine[instance.machine] += located_ports(spec, instance)
    for here in by_machine.values():
        yield from ports.duplicates(here)


def located_ports(spec: Spec, instance: Instance) -> list[ports.Port]:
    """The ports of an instance with the file and line that give each: what the node-side check is handed."""
    return [replace(port, where=_port_where(spec, instance, port.name)) for port in ports.ports_of(instance)]


def _port_where(spec: Spec, instance: Instance, name: str) -> str:
    if name in ports.required(instance):
        return spec.where(instance, name)
    return spec.where(instance, "engine_port") if name.startswith("attention-DP") else spec.where_arg(instance, name)


def hosts(spec: Spec) -> Iterator[Problem]:
    """Addresses to listen on: an IP, loopback unless asked; reachable from the router when it is on another machine."""
    routers_at = {router.machine for router in spec.of(ROUTER)}
    for instance in spec.instances:
        for name in ("router_host", "router_metrics_host") if instance.role == ROUTER else ("engine_host",):
            given = instance.vars.get(name, "127.0.0.1")
            address = _address(given)
            if address is None:
                yield Problem(
                    spec.where(instance, name),
                    name,
                    str(given),
                    f"{name}: an IP address such as 127.0.0.1 (0.0.0.0 for every interface)",
                )
            elif instance.is_engine and address.is_loopback and routers_at - {instance.machine}:
                elsewhere = ", ".join(sorted(routers_at - {instance.machine}))
                found = f"{given}, but a router runs on another machine ({elsewhere})"
                yield Problem(
                    spec.where(instance, name),
                    name,
                    found,
                    f"{name}: an address of {instance.machine} that the router reaches",
                )


def stand_ins(spec: Spec) -> Iterator[Problem]:
    """The lab's CPU stand-ins answer for CUDA kernels: on a GPU they would be silently wrong."""
    for instance in spec.engines:
        packages = (
            instance.vars.get("runtime_packages") or spec.nodes.get(instance.machine, {}).get("runtime_packages") or []
        )
        wanted = [
            str(package)
            for package in ([packages] if isinstance(packages, str) else packages)
            if _STAND_IN.search(str(package))
        ]
        if wanted and instance.vars.get("engine_device", "cuda") == "cuda":
            where = spec.where(instance, "runtime_packages")
            yield Problem(
                where,
                "runtime_packages",
                f"{', '.join(wanted)} with engine_device cuda ({instance.name})",
                "the list without them",
            )


def _gpu_list(instance: Instance) -> list[Any]:
    given = instance.vars.get("engine_gpus")
    return list(given) if isinstance(given, (list, tuple)) else []


def _is_gpu(gpu: object) -> bool:
    return (isinstance(gpu, int) and not isinstance(gpu, bool) and gpu >= 0) or (
        isinstance(gpu, str) and bool(_GPU_UUID.fullmatch(gpu))
    )


def _listed(given: object) -> str:
    return ", ".join(map(str, given)) if isinstance(given, (list, tuple)) else str(given)


def _address(text: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(str(text))
    except ValueError:
        return None

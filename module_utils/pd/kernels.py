"""Which kernels an engine is asked for, whether that can be, and whether each of its processes has them. Pure.

The kernels themselves are kernels/pd_kernels, an SGLang plugin. It fails closed in the engine; what is wrong is found here before a stop.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .problem import Problem, shown
from .spec import Instance, Spec, instance_args, instance_env, number

if TYPE_CHECKING:
    from .observe import Rank

PACKAGE = "kernels"
"""The package in `runtime_packages`; where engines want kernels, the release must have it."""
WANTED, REPORTS = "PD_KERNELS", "PD_KERNELS_REPORT"
GPU_KERNELS = ("index_bf16", "sparse_decode")
BUILT = "index_bf16"
"""The kernel that is compiled when the release is made."""
NAMES = ("guards", *GPU_KERNELS)
LONGEST = 86400
"""A day, in seconds."""


def whole(lowest: int, highest: int | None = None) -> Callable[[str], bool]:
    """Whether a text is a whole number in digits only, from `lowest` to `highest`."""
    return lambda text: text.isascii() and text.isdigit() and lowest <= int(text) and (highest is None or int(text) <= highest)


KNOBS: Mapping[str, Mapping[str, tuple[Callable[[str], bool], str]]] = {
    "guards": {"PD_INFLIGHT_TIMEOUT": (whole(1, LONGEST), f"whole seconds from 1 to {LONGEST}")},
    "sparse_decode": {
        "SGLANG_SM120_MMA_TARGET_CTAS": (whole(0), "a whole number, 0 for the device's own"),
        "SGLANG_SM120_MMA_MAX_ROWS": (whole(1, 256), "a whole number from 1 to 256"),
    },
}
"""Knobs of each kernel: what an operator may write. The plugin refuses the rest when the engine starts; tests hold the two together."""


def wanted(instance: Instance) -> list[str]:
    """The names in `engine_kernels`; none where it is no list (`problems` says so)."""
    value = instance.vars.get("engine_kernels")
    return [str(name) for name in value] if isinstance(value, list | tuple) else []


def env(instance: Instance, home: str) -> dict[str, str]:
    """What tells an engine's processes which kernels they have, and where to report them; nothing where it wants none."""
    names = wanted(instance)
    return {WANTED: ",".join(names), REPORTS: f"{home}/kernels/{instance.name}"} if names else {}


def problems(spec: Spec) -> Iterator[Problem]:
    """Names no kernel has, kernels where they cannot be, and knobs that they would refuse."""
    for instance in spec.engines:
        value, where = instance.vars.get("engine_kernels", []), spec.where(instance, "engine_kernels")
        if value is not None and not isinstance(value, list | tuple):
            yield Problem(where, "engine_kernels", shown("engine_kernels", value), f"a list of names, such as [{NAMES[0]}], or []")
        names = wanted(instance)
        for name in dict.fromkeys(names):
            yield from _name(name, names, where)
        yield from _place(spec, instance, [name for name in names if name in NAMES], where)
        yield from _knobs(spec, instance, names)
    having = [instance for instance in spec.engines if BUILT in wanted(instance)]
    lacking = [instance.name for instance in spec.engines if instance not in having]
    for instance in having if lacking else ():
        found = f"{BUILT} here and not in {', '.join(lacking)}: they would refuse each other's cache"
        yield Problem(spec.where(instance, "engine_kernels"), "engine_kernels", found, "it in engine_kernels of both roles, or of none")


def _name(name: str, names: Sequence[str], where: str) -> Iterator[Problem]:
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, 1)
        yield Problem(where, "engine_kernels", f"{name}: there is no such kernel", near[0] if near else f"one of {', '.join(NAMES)}")
    elif names.count(name) > 1:
        yield Problem(where, "engine_kernels", f"{name} twice", f"{name} once")


def _place(spec: Spec, instance: Instance, names: Sequence[str], where: str) -> Iterator[Problem]:
    packages = spec.nodes.get(instance.machine, {}).get("runtime_packages") or []
    if names and PACKAGE not in packages:
        found = f"{', '.join(names)}, but the release is made without the package {PACKAGE}"
        yield Problem(where, "engine_kernels", found, f"{PACKAGE} in runtime_packages (group_vars/nodes.yml), or []")
    if BUILT in names and not spec.nodes.get(instance.machine, {}).get("runtime_nvcc_lock"):
        found = f"{BUILT}, but the release is made without a compiler for it (runtime_nvcc_lock is empty)"
        yield Problem(where, "engine_kernels", found, "runtime_nvcc_lock: nvcc.lock (group_vars/nodes.yml), or the list without it")
    for name in names:
        if name in GPU_KERNELS and instance.vars.get("engine_device", "cuda") != "cuda":
            yield Problem(where, "engine_kernels", f"{name} on {instance.vars['engine_device']}: it is a kernel for GPUs", "the list without it")
    stages = number(instance_args(instance).get("pp-size", 1))
    if "guards" in names and stages is not None and stages > 1:
        found = f"guards with pp-size {stages}: they watch the loops of one pipeline stage, and would watch nothing"
        yield Problem(where, "engine_kernels", found, "the list without guards, or pp-size 1")


def _knobs(spec: Spec, instance: Instance, names: Sequence[str]) -> Iterator[Problem]:
    told = instance_env(instance)
    for kernel in names:
        for name, (allowed, words) in KNOBS.get(kernel, {}).items():
            if name in told and not allowed(told[name]):
                yield Problem(spec.where_env(instance, name), name, f"{shown(name, told[name])} ({kernel} would refuse to start)", words)


def against(ranks: Sequence[Rank], told: Mapping[str, str]) -> str:
    """What speaks against every process having the kernels that the knobs `told` ask for; empty when nothing does.

    SGLang loads plugins in its main process, its schedulers and its detokenizer; what else runs in the unit (Python's resource tracker, a
    compiler) computes nothing. A scheduler must also have every hook of a kernel in place.
    """
    names = [name for name in told.get(WANTED, "").split(",") if name]
    engine = [rank for rank in ranks if _loads_plugins(rank.title)]
    for rank in engine if names else ():
        who = f"process {rank.pid} ({rank.title})"
        if rank.kernels is None:
            return f"{who} reports no kernels: the plugin pd_kernels was not loaded there"
        for name in names:
            why = _lacks(rank.kernels.get(name), _is_scheduler(rank.title))
            if why:
                return f"{who} {why} {name}"
    if names and not any(_is_scheduler(rank.title) for rank in engine):
        return f"no scheduler can be seen, so {', '.join(names)} are not proven"
    return ""


def said(told: Mapping[str, str]) -> str:
    """` with guards, ...` for a verdict that says what is proven; empty where no kernel is wanted."""
    return f" with {told[WANTED].replace(',', ', ')}" if told.get(WANTED) else ""


def _lacks(kernel: Any, scheduler: bool) -> str:
    if not isinstance(kernel, Mapping):
        return "lacks"
    hooks = kernel.get("hooks")
    placed = isinstance(hooks, Mapping) and bool(hooks) and all(value is True for value in hooks.values())
    return "has not put in" if scheduler and not placed else ""


def _loads_plugins(title: str) -> bool:
    return title.startswith("sglang::") or "sglang.launch_server" in title


def _is_scheduler(title: str) -> bool:
    return title.startswith("sglang::scheduler")

"""The entry point: SGLang calls `register` in the main process, in every scheduler and in the detokenizer (sglang-facts 7.1).

It fails closed. SGLang logs what a plugin raises and serves with its own code (7.2); only SystemExit ends the process, so everything
that is wrong with a wanted kernel becomes one. What cannot be known before SGLang has put the hooks in is looked at right after.
"""

from __future__ import annotations

import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import devices, registry, report
from .kernel import Context, Hook, Kernel, Refused

SCHEDULER = "sglang.srt.managers.scheduler"
"""Imported in a scheduler before its plugins are loaded, and in no other process by then: only a scheduler has weights and KV cache."""
STATE = "sglang.srt.managers.scheduler_components.internal_state.SchedulerInternalStateController.get_internal_state"


def register() -> None:
    """Put in what `PD_KERNELS` names; nothing at all where it names nothing.

    Raises SystemExit with one line for the journal when a wanted kernel is unknown, is not for this device, has a malformed knob, or
    when a place that it goes into is not there in this SGLang.
    """
    try:
        _register(os.environ)
    except Refused as refused:
        raise SystemExit(f"pd_kernels: {refused}") from refused
    except Exception as error:
        asked = os.environ.get(registry.VARIABLE)
        raise SystemExit(f"pd_kernels: {registry.VARIABLE}={asked} could not be put in: {type(error).__name__}: {error}") from error


def _register(environ: Mapping[str, str]) -> None:
    wanted = registry.wanted(environ)
    if not wanted:
        return
    told = {kernel.name: registry.knobs(kernel, environ) for kernel in wanted}
    if any(kernel.architectures for kernel in wanted):
        here = devices.architectures(environ)
        for kernel in wanted:
            registry.fits(kernel, here)
    directory = environ.get(report.VARIABLE)
    paper = report.Report(Path(directory) if directory else None)
    hooks = {kernel.name: _hooks(kernel, told[kernel.name], paper) if SCHEDULER in sys.modules else [] for kernel in wanted}
    _install(hooks, told, paper)


def _hooks(kernel: Kernel, knobs: Mapping[str, Any], paper: report.Report) -> list[Hook]:
    for name in kernel.needs:
        resolved(name, kernel.name)
    return list(kernel.hooks(Context(knobs, lambda what: paper.count(kernel.name, what))))


def _install(hooks: Mapping[str, list[Hook]], knobs: Mapping[str, Mapping[str, Any]], paper: report.Report) -> None:
    """Hand the hooks to SGLang, and look at every target once it has applied them: a failure in there is only logged."""
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType  # noqa: PLC0415  tests need no SGLang

    before = {hook.target: resolved(hook.target, name) for name, some in hooks.items() for hook in some}
    for some in hooks.values():
        for hook in some:
            HookRegistry.register(hook.target, hook.function, HookType(hook.kind))
    if before:
        HookRegistry.register(STATE, shown_in(paper), HookType.AFTER)
        before[STATE] = resolved(STATE, "the report")
    apply = vars(HookRegistry)["apply_hooks"]

    def apply_then_look() -> None:
        HookRegistry.apply_hooks = apply
        HookRegistry.apply_hooks()
        for target, original in before.items():
            if resolved(target, "SGLang") is original:
                raise SystemExit(f"pd_kernels: SGLang did not put a hook on {target} in; its log says why")
        for name, some in hooks.items():
            paper.add(name, knobs[name], {hook.target: True for hook in some})
        paper.publish()

    HookRegistry.apply_hooks = staticmethod(apply_then_look)


def resolved(target: str, user: str) -> Any:
    """The function at `module.function` or `module.Class.method`, without binding it. Raises Refused when there is none."""
    owner, _, name = target.rpartition(".")
    try:
        found = inspect.getattr_static(pkgutil.resolve_name(owner), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise Refused(f"{user} needs {target}, which this SGLang does not have ({error}): it was moved or renamed") from error
    if isinstance(found, type) or not callable(getattr(found, "__func__", found)):
        raise Refused(f"{user} needs {target}, which is no function in this SGLang")
    return found


def shown_in(paper: report.Report) -> Callable[..., Any]:
    """The AFTER hook that adds the report to `/server_info`'s internal_states[i] (sglang-facts 7.3)."""

    def add(result: Any, *_args: Any, **_kwargs: Any) -> Any:
        result.internal_state["pd_kernels"] = paper.told()
        return result

    return add

"""The kernels there are, and which of them this process is asked for. Pure but for importing the op that is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import guards
from .kernel import Context, Hook, Kernel, Refused

VARIABLE = "PD_KERNELS"
SM_120 = frozenset({"sm_120"})
"""RTX PRO 6000 Blackwell: what SGLang's sm_120 path, and so these kernels, are for (sglang-facts 8)."""


def rows(text: str) -> int:
    """SGLANG_SM120_MMA_MAX_ROWS: rows up to which sparse_decode takes a call. Raises ValueError unless from 1 to 256, the op's own limit."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 256:
        raise ValueError("it must be a whole number from 1 to 256")
    return int(text)


def target_ctas(text: str) -> int:
    """SGLANG_SM120_MMA_TARGET_CTAS, as the op itself reads it. Raises ValueError."""
    parsed: int = importlib.import_module("pd_kernels.sparse_decode.splits").parse_target(text)
    return parsed


def _sparse_decode(context: Context) -> Sequence[Hook]:
    made: Sequence[Hook] = importlib.import_module("pd_kernels.sparse_decode.hooks").hooks(context)
    return made


def _index_bf16(context: Context) -> Sequence[Hook]:
    """The op's own hooks, each counted at its target."""
    made: Sequence[Hook] = importlib.import_module("pd_kernels.index_bf16").hooks()
    return [Hook(hook.target, hook.kind, _counted(hook, context)) for hook in made]


def _counted(hook: Hook, context: Context) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        context.count(hook.target)
        return hook.function(*args, **kwargs)

    return call


KERNELS: Mapping[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel("guards", guards.hooks, knobs=guards.KNOBS, needs=guards.NEEDS),
        Kernel("index_bf16", _index_bf16, SM_120),
        Kernel(
            "sparse_decode",
            _sparse_decode,
            SM_120,
            {"SGLANG_SM120_MMA_TARGET_CTAS": target_ctas, "SGLANG_SM120_MMA_MAX_ROWS": rows},
        ),
    )
}


def wanted(environ: Mapping[str, str]) -> tuple[Kernel, ...]:
    """The kernels that `PD_KERNELS` names, in its order; none where it is unset or empty.

    Raises Refused for a name that no kernel has, and for one that is there twice: both are a mistake somewhere.
    """
    text = environ.get(VARIABLE, "")
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    for name in names:
        if name not in KERNELS:
            raise Refused(f"{VARIABLE}={text}: there is no kernel {name!r}. There are: {', '.join(KERNELS)}")
        if names.count(name) > 1:
            raise Refused(f"{VARIABLE}={text}: {name} is there twice")
    return tuple(KERNELS[name] for name in names)


def knobs(kernel: Kernel, environ: Mapping[str, str]) -> dict[str, Any]:
    """The values of a kernel's knobs that are set. Raises Refused for one that does not parse: its default would be a silent other knob."""
    found = {}
    for name, parse in kernel.knobs.items():
        if name not in environ:
            continue
        try:
            found[name] = parse(environ[name])
        except ValueError as error:
            raise Refused(f"{name}={environ[name]!r} (a knob of {kernel.name}): {error}") from error
    return found


def fits(kernel: Kernel, devices: Sequence[str]) -> None:
    """Raises Refused when a device of this process is none that the kernel is for; `devices` as `sm_120`, or `cpu`."""
    strange = sorted(set(devices) - kernel.architectures)
    if kernel.architectures and (strange or not devices):
        has = ", ".join(strange) if strange else "no device"
        raise Refused(f"{kernel.name} is for {', '.join(sorted(kernel.architectures))}, this engine computes on {has}")

"""What a kernel is to the plugin: a name, where it runs, its knobs, and the places in SGLang where it is put in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["before", "after", "around", "replace"]
"""SGLang's hook types (sglang-facts 7.1): before(*a, **k), after(result, *a, **k), around(original, *a, **k), replace(*a, **k)."""
Parse = Callable[[str], Any]
"""From a knob's text to its value. Raises ValueError that says what is allowed."""


class Refused(Exception):  # noqa: N818  not an error of this program: an engine that must not start
    """Why this process must not serve: a kernel that is wanted cannot be put in. The message is one line for the journal."""


@dataclass(frozen=True)
class Hook:
    """One function of ours at one place of SGLang's: `target` is `module.function` or `module.Class.method`."""

    target: str
    kind: Kind
    function: Callable[..., Any]


@dataclass(frozen=True)
class Context:
    """What a kernel's hooks are made from: its knobs, parsed (a knob that is unset is not in there), and a counter for the report."""

    knobs: Mapping[str, Any]
    count: Callable[[str], None]


@dataclass(frozen=True)
class Kernel:
    """One name of `PD_KERNELS`.

    `architectures`: the GPUs it is for, as `sm_120`; empty where it does not compute on one (guards, a CPU engine has them too).
    `knobs`: environment name -> parser. `hooks`: made in schedulers only, so that imports of torch and triton stay there.
    `needs`: further names of SGLang's that the hooks use, and that must be there.
    """

    name: str
    hooks: Callable[[Context], Sequence[Hook]]
    architectures: frozenset[str] = frozenset()
    knobs: Mapping[str, Parse] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

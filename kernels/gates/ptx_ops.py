"""Instructions of PTX for all threads of a CTA at once: what `ptx.Kernel` does not do itself, because it needs no memory and no other warp."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch

Lanes = np.ndarray[Any, Any]
KINDS = {"8": np.uint8, "16": np.uint16, "32": np.uint32, "64": np.uint64}
TYPES = {"pred": np.bool_, "f32": np.float32, "f16": np.float16, **{f"{sign}{bits}": np.dtype(f"{kind}{int(bits) // 8}").type
         for sign, kind in (("b", "u"), ("u", "u"), ("s", "i")) for bits in KINDS}}  # fmt: skip
E4M3 = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).to(torch.float16).numpy()
COMPARE = {name: getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")}


def bf16(values: Lanes) -> Lanes:
    """fp32 to the bits of bf16, nearest even."""
    bits = values.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def wide(halves: Lanes) -> Lanes:
    """Bits of bf16 to fp32."""
    return (halves.astype(np.uint32) << 16).view(np.float32)


class Machine(Protocol):
    """What instructions see of the kernel that runs: registers by name, read and written as a PTX type."""

    threads: int
    registers: dict[str, Lanes]

    def read(self, operand: Any, kind: str) -> Lanes: ...

    def write(self, name: Any, value: Lanes) -> None: ...


def _mov(kernel: Machine, name: list[str], args: list[Any]) -> None:
    kernel.write(args[0], kernel.read(args[1], name[-1]))


def multiplied(kernel: Machine, name: list[str], args: list[Any]) -> None:
    if name[1] != "wide":
        values = [kernel.read(arg, name[-1]) for arg in args[1:]]
        return kernel.write(
            args[0], values[0] * values[1] + (values[2] if len(values) > 2 else values[0].dtype.type(0))
        )
    double = f"{name[-1][0]}64"
    factors = [kernel.read(arg, name[-1]).astype(TYPES[double]) for arg in args[1:3]]
    more = kernel.read(args[3], double) if len(args) > 3 else factors[0].dtype.type(0)
    return kernel.write(args[0], factors[0] * factors[1] + more)


def _setp(kernel: Machine, name: list[str], args: list[Any]) -> None:
    kernel.write(
        args[0], COMPARE[name[1].removesuffix("u")](kernel.read(args[1], name[-1]), kernel.read(args[2], name[-1]))
    )


def _selp(kernel: Machine, name: list[str], args: list[Any]) -> None:
    kernel.write(
        args[0], np.where(kernel.registers[args[3]], kernel.read(args[1], name[-1]), kernel.read(args[2], name[-1]))
    )


def _shift(kernel: Machine, name: list[str], args: list[Any]) -> None:
    value, by = kernel.read(args[1], name[-1]), kernel.read(args[2], "u32").astype(np.uint64)
    by = by.astype(value.dtype)
    kernel.write(args[0], value << by if name[0] == "shl" else value >> by)


def _bfe(kernel: Machine, name: list[str], args: list[Any]) -> None:
    start, length = int(args[2]), int(args[3])
    value = kernel.read(args[1], "u32") << np.uint32(32 - start - length)
    kernel.write(args[0], value.view(TYPES[name[1]]) >> TYPES[name[1]](32 - length))


def _cvt(kernel: Machine, name: list[str], args: list[Any]) -> None:
    to, source = name[-2], name[-1]
    if source == "e4m3x2":
        halves = E4M3[kernel.read(args[1], "b16").view(np.uint8).reshape(-1, 2)]
        return kernel.write(args[0], np.ascontiguousarray(halves).view(np.uint32)[:, 0])
    if to in ("bf16", "bf16x2"):
        halves = [bf16(kernel.read(arg, "f32")).astype(np.uint32) for arg in args[1:]]
        return kernel.write(args[0], halves[0].astype(np.uint16) if to == "bf16" else halves[0] << 16 | halves[1])
    return kernel.write(args[0], kernel.read(args[1], source).astype(TYPES[to]))


def _shfl(kernel: Machine, name: list[str], args: list[Any]) -> None:
    lane = np.arange(kernel.threads)
    by = kernel.read(args[2], "u32").astype(np.int64)
    source = lane ^ by if name[2] == "bfly" else lane // 32 * 32 + by % 32
    kernel.write(args[0], kernel.read(args[1], "b32")[source])


def _prmt(kernel: Machine, _name: list[str], args: list[Any]) -> None:
    picked = np.stack([kernel.read(arg, "b32") for arg in args[1:3]], axis=1).view(np.uint8)
    which = kernel.read(args[3], "b32")
    value = [picked[np.arange(kernel.threads), which >> np.uint32(4 * n) & np.uint32(7)] for n in range(4)]
    kernel.write(args[0], np.ascontiguousarray(np.stack(value, axis=1)).view(np.uint32)[:, 0])


SPECIAL: dict[str, Callable[[Machine, list[str], list[Any]], None]] = {
    "mov": _mov, "mad": multiplied, "setp": _setp, "selp": _selp, "shl": _shift, "shr": _shift,
    "bfe": _bfe, "cvt": _cvt, "shfl": _shfl, "prmt": _prmt,
}  # fmt: skip
PLAIN: dict[str, Callable[..., Lanes]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "not": operator.invert, "min": lambda *v: functools.reduce(np.fmin, v), "max": lambda *v: functools.reduce(np.fmax, v),
    "fma": lambda a, b, c: a.astype(np.float64) * b + c,
    "ex2": np.exp2, "lg2": np.log2, "rcp": lambda a: 1 / a, "neg": operator.neg,
    "div": lambda a, b: a / b if a.dtype.kind == "f" else (a / b).astype(a.dtype),
}  # fmt: skip

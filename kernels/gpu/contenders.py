"""What is compared: the op with each target, SGLang's Triton kernel, FlashInfer as SGLang calls it. One that cannot run says why."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from gpu.problems import Problem, in_pages_of

from pd_kernels.sparse_decode.op import sparse_decode

TARGETS = (0, 188, 376, 512, 752)
"""CTAs; 0 is the device's own number."""
DRY_TARGETS = (2, 512)
DIRECT_PAGE = 64
FLASHINFER, DIRECT, TRITON = "flashinfer", "flashinfer, DIRECT_SWA_KV", "sglang triton"


@dataclass(frozen=True)
class Contender:
    """A name and a function from a problem to the call that is timed."""

    name: str
    prepare: Callable[[Problem], Callable[[], Any]]


def ours(target: int) -> Contender:
    """K1 with a target of CTAs."""

    def prepare(given: Problem) -> Callable[[], Any]:
        arguments = positional(given)
        return lambda: sparse_decode(*arguments, target_ctas=target)

    return Contender(f"target {target}" if target else "target unset", prepare)


def positional(given: Problem) -> list[Any]:
    """A problem's arguments in the order that the op and SGLang's Triton kernel have them."""
    names = ("q", "k_cache", "indices", "topk_length", "attn_sink", "head_dim_v", "softmax_scale")
    extra = ("extra_k_cache", "extra_indices_in_kvcache", "extra_topk_length")
    return [given.arguments.get(name) for name in names + extra]


def _triton(given: Problem) -> Callable[[], Any]:
    from sglang.kernels.ops.attention.flash_mla_sm120_triton import flash_mla_sparse_decode_triton  # noqa: PLC0415  where it runs only

    arguments = positional(given)
    return lambda: flash_mla_sparse_decode_triton(*arguments)


def _flashinfer(given: Problem) -> Callable[[], Any]:
    from sglang.kernels.ops.attention.flash_mla_sm120 import flash_mla_with_kvcache_sm120  # noqa: PLC0415  it reads the backend here

    return lambda: flash_mla_with_kvcache_sm120(**given.arguments)


def direct(given: Problem) -> Problem:
    """The same problem as SGLang has it with SGLANG_OPT_SM120_DIRECT_SWA_KV=1: the window's pages are of 64 tokens."""
    return replace(given, arguments={**given.arguments, "k_cache": in_pages_of(given.arguments["k_cache"], DIRECT_PAGE)})


def baselines(capability: tuple[int, int] | None) -> Iterator[Contender | tuple[str, str]]:
    """SGLang's own kernels: contenders, or (name, why it cannot run here). `capability` is None without a GPU."""
    os.environ["SGLANG_SM120_FLASHMLA_BACKEND"] = "flashinfer"
    if capability is None:
        yield TRITON, "no GPU"
    else:
        yield Contender(TRITON, _triton)
    why = None
    if capability is None or capability[0] != 12:
        why = "FlashInfer's kernel is for sm_12x"
    elif importlib.util.find_spec("flashinfer") is None:
        why = "flashinfer is not installed"
    for name, prepare in ((FLASHINFER, _flashinfer), (DIRECT, lambda given: _flashinfer(direct(given)))):
        yield (name, why) if why else Contender(name, prepare)


def first(result: Any) -> torch.Tensor:
    """The output [T, H, 512] of any of them, on the CPU in float64."""
    out: torch.Tensor = result[0]
    return out.reshape(out.shape[0], -1, out.shape[-1]).cpu().double()

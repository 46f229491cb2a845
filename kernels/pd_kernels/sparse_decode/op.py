"""Launching the op: what it takes, how it is split, and the two kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from . import shapes, splits
from .kernel import merge_kernel, split_kernel

HOST = bool(triton.knobs.runtime.interpret)
"""The kernels run in Triton's interpreter, on CPU tensors (TRITON_INTERPRET=1 when this module was imported)."""


@dataclass(frozen=True)
class Keys:
    """One list of keys: a pool [pages, P, 1, 584] bytes, flat slots [T, 1, W] or [T, W] int32 (-1: none), how many of W count [T] int32."""

    pool: Tensor
    indices: Tensor
    length: Tensor

    @property
    def width(self) -> int:
        return int(self.indices.shape[-1])

    def takes(self, rows: int, device: torch.device) -> bool:
        pool, indices, length = self.pool, self.indices, self.length
        if pool.ndim != 4 or pool.dtype not in (torch.uint8, torch.float8_e4m3fn):
            return False
        pages, tokens = pool.shape[:2]
        return (
            pool.shape[2:] == (1, shapes.TOKEN_BYTES)
            and tokens & (tokens - 1) == 0
            and pool.stride(1) == shapes.TOKEN_BYTES
            and pool.stride(3) == 1
            and pool.stride(0) >= tokens * shapes.TOKEN_BYTES
            and pool.stride(0) % 16 == 0
            and pool.data_ptr() % 16 == 0
            and 0 < pages * tokens < 2**31
            and (indices.ndim == 2 or (indices.ndim == 3 and indices.shape[1] == 1))
            and indices.shape[0] == rows
            and indices.dtype == torch.int32
            and self.width > 0
            and indices.stride(-1) == 1
            and length.shape == (rows,)
            and length.dtype == torch.int32
            and length.is_contiguous()
            and all(tensor.device == device for tensor in (pool, indices, length))
        )

    def arguments(self) -> tuple[Any, ...]:
        pool = self.pool.view(torch.uint8)
        pages, tokens = pool.shape[:2]
        return (
            pool,
            pool.stride(0) // 16,
            tokens.bit_length() - 1,
            pages * tokens,
            self.indices,
            self.indices.stride(0),
            self.length,
            self.width,
        )


def _lists(
    k_cache: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    extra: tuple[Tensor | None, Tensor | None, Tensor | None],
) -> list[Keys] | None:
    """The one or two lists; None where a length is missing or the second list is not whole."""
    if topk_length is None:
        return None
    pool, more, length = extra
    if pool is None and more is None:
        return [Keys(k_cache, indices, topk_length)]
    if pool is None or more is None or length is None:
        return None
    return [Keys(k_cache, indices, topk_length), Keys(pool, more, length)]


def takes(  # noqa: PLR0917  SGLang's own order
    q: Tensor,
    k_cache: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    attn_sink: Tensor | None,
    head_dim_v: int,
    softmax_scale: float | None,
    extra_k_cache: Tensor | None = None,
    extra_indices: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
) -> bool:
    """Whether `sparse_decode` computes this call; from shapes, strides and types alone, so the answer is the same at capture and replay."""
    del softmax_scale
    if (
        q.ndim != 4
        or q.shape[1] != 1
        or q.shape[3] != shapes.DIM
        or q.dtype != torch.bfloat16
        or head_dim_v != shapes.DIM
    ):
        return False
    rows, _, heads, _ = q.shape
    lists = _lists(k_cache, indices, topk_length, (extra_k_cache, extra_indices, extra_topk_length))
    sink = attn_sink
    return (
        1 <= rows <= shapes.MAX_ROWS
        and 1 <= heads <= shapes.MAX_HEADS
        and (q.is_cuda or HOST)
        and q.stride(3) == 1
        and q.stride(0) % 8 == 0
        and q.stride(2) % 8 == 0
        and rows * abs(q.stride(0)) < 2**31
        and q.data_ptr() % 16 == 0
        and (
            sink is None
            or (
                sink.shape == (heads,)
                and sink.dtype == torch.float32
                and sink.is_contiguous()
                and sink.device == q.device
            )
        )
        and lists is not None
        and all(keys.takes(rows, q.device) for keys in lists)
    )


def sparse_decode(  # noqa: PLR0917  SGLang's own order
    q: Tensor,
    k_cache: Tensor,
    indices: Tensor,
    topk_length: Tensor | None,
    attn_sink: Tensor | None,
    head_dim_v: int,
    softmax_scale: float | None,
    extra_k_cache: Tensor | None = None,
    extra_indices: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
    *,
    target_ctas: int,
) -> tuple[Tensor, Tensor]:
    """Attention of `q` [T, 1, H, 512] bf16 over its listed keys: (out [T, 1, H, 512] bf16, natural-log LSE [T, H, 1] fp32).

    `target_ctas`: CTAs of the launch, 0 for what the device holds at once. The sink is in `out`'s denominator only; the LSE is of the
    keys alone (as SGLang's torch decode has it). A row with no key that counts gives 0 and -inf. Call only where `takes` said yes.
    """
    del head_dim_v
    lists = _lists(k_cache, indices, topk_length, (extra_k_cache, extra_indices, extra_topk_length))
    if lists is None:
        raise ValueError(
            "sparse_decode: topk_length, and extra_topk_length with an extra list, are needed; ask takes() first"
        )
    scale = shapes.DIM**-0.5 if softmax_scale is None else softmax_scale
    widths = [keys.width for keys in lists]
    count = splits.choose_kv_splits(
        q.shape[0],
        q.shape[2],
        widths[0],
        target_ctas or _device_target(q, lists, scale),
        extra_topk=sum(widths[1:]),
        block_h=shapes.block_heads(q.shape[2]),
    )
    return attend(q, lists, attn_sink, scale, count)


def attend(q: Tensor, lists: list[Keys], sink: Tensor | None, scale: float, count: int) -> tuple[Tensor, Tensor]:
    """The op with a given number of splits: `count` fp32 partials of each row and head, then their merge."""
    rows, _, heads, _ = q.shape
    out = torch.empty(rows, 1, heads, shapes.DIM, dtype=torch.bfloat16, device=q.device)
    lse = torch.empty(rows, heads, 1, dtype=torch.float32, device=q.device)
    part = torch.empty(rows, heads, count, shapes.DIM, dtype=torch.float32, device=q.device)
    part_lse = torch.empty(rows, heads, count, dtype=torch.float32, device=q.device)
    _split(q, lists, scale, part, part_lse)
    merge_kernel[(shapes.DIM // shapes.MERGE_DIMS, heads, rows)](
        part,
        part_lse,
        part_lse if sink is None else sink,
        out,
        lse,
        heads,
        count,
        HAS_SINK=sink is not None,
        BLOCK_S=shapes.merge_block(count),
        BLOCK_D=shapes.MERGE_DIMS,
        HOST=HOST,
        num_warps=shapes.WARPS,
    )
    return out, lse


def _split(q: Tensor, lists: list[Keys], scale: float, part: Tensor, part_lse: Tensor, *, warmup: bool = False) -> Any:
    """Launches the split kernel, or with `warmup` only compiles it; gives the compiled kernel."""
    rows, _, heads, _ = q.shape
    block_h, count = shapes.block_heads(heads), part.shape[2]
    return split_kernel.run(
        q,
        q.stride(0) // 8,
        q.stride(2) // 8,
        *lists[0].arguments(),
        *lists[-1].arguments(),
        part,
        part_lse,
        scale,
        heads,
        count,
        HAS_EXTRA=len(lists) == 2,
        BLOCK_H=block_h,
        BLOCK_N=shapes.BLOCK_N,
        HOST=HOST,
        grid=(-(-heads // block_h), rows, count),
        warmup=warmup,
        **shapes.compile_options(block_h),
    )


_targets: dict[tuple[torch.device, int, bool], int] = {}


def _device_target(q: Tensor, lists: list[Keys], scale: float) -> int:
    """SMs x CTAs/SM of the split kernel, from the device and from the kernel as compiled for it; asked once for each of its forms."""
    key = q.device, shapes.block_heads(q.shape[2]), len(lists) == 2
    if key not in _targets:
        if not q.is_cuda:
            raise ValueError("target_ctas=0 is the device's own number, and there is no device: give a number")
        some = torch.empty(1, 1, 2, shapes.DIM, dtype=torch.float32, device=q.device)
        compiled = _split(q, lists, scale, some, some, warmup=True)
        compiled._init_handles()  # loads it; Triton has no public way to the registers
        device = torch.cuda.get_device_properties(q.device)
        _targets[key] = device_target(device, splits.Footprint(compiled.n_regs, compiled.metadata.shared))
    return _targets[key]


def device_target(device: Any, cta: splits.Footprint) -> int:
    """The default target on a device with the properties that torch reports."""
    sm = splits.Multiprocessor(
        registers=device.regs_per_multiprocessor,
        shared=device.shared_memory_per_multiprocessor,
        threads=device.max_threads_per_multi_processor,
        ctas=splits.SM_120.ctas,
    )
    return splits.default_target(device.multi_processor_count, cta, sm)

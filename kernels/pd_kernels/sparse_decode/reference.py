"""The op in float64, written from the definition: gather, softmax, weigh. Slow, and independent of the kernel's arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import shapes


@dataclass(frozen=True)
class Result:
    """`out` [T, H, 512] and `lse` [T, H] in float64; `weight` [T, H, 512] is sum w |v|: what rounding the weights may move, times a unit."""

    out: Tensor
    lse: Tensor
    weight: Tensor

    @property
    def bound(self) -> Tensor:
        """Largest error of the kernel, element by element: one bf16 rounding (2^-8) of each weight and one of the output.

        Below bf16's normal numbers a rounding is absolute: half of 2^-133 for the keys and half for the output.
        """
        return (self.weight + self.out.abs()) * 2.0**-8 + 2.0**-133


def keys_of(pool: Tensor, slots: Tensor) -> Tensor:
    """Keys [n, 512] in float64 of `slots` [n] of a pool: a view [pages, P, 1, 584] of pages as kernels.md 2 has them."""
    tokens, stride = pool.shape[1], pool.stride(0)
    raw = pool.view(torch.uint8).as_strided((pool.shape[0], stride), (stride, 1))
    page, token = slots // tokens, slots % tokens
    row = raw[page[:, None], token[:, None] * shapes.ROW_BYTES + torch.arange(shapes.ROW_BYTES)]
    exponent = raw[page[:, None], tokens * shapes.ROW_BYTES + token[:, None] * shapes.SCALE_BYTES + torch.arange(7)]
    nope = row[:, : shapes.NOPE].contiguous().view(torch.float8_e4m3fn).double()
    scale = torch.pow(torch.tensor(2.0, dtype=torch.float64), exponent.double() - 127)
    rope = row[:, shapes.NOPE :].contiguous().view(torch.bfloat16).double()
    return torch.cat([nope * scale.repeat_interleave(64, dim=1), rope], dim=1)


def live_slots(pool: Tensor, indices: Tensor, length: int) -> Tensor:
    """Slots of one row's list that count: inside its length, not negative, inside the pool. A slot listed twice counts twice."""
    slots = indices[: max(0, length)].long()
    return slots[(slots >= 0) & (slots < pool.shape[0] * pool.shape[1])]


def sparse_decode(  # noqa: PLR0917  the op's order
    q: Tensor,
    k_cache: Tensor,
    indices: Tensor,
    topk_length: Tensor,
    attn_sink: Tensor | None,
    softmax_scale: float,
    extra_k_cache: Tensor | None = None,
    extra_indices: Tensor | None = None,
    extra_topk_length: Tensor | None = None,
) -> Result:
    """The op's arguments as the op takes them; the sink is in the denominator and not in `lse`."""
    rows, _, heads, _ = q.shape
    out = torch.zeros(rows, heads, shapes.DIM, dtype=torch.float64)
    weight = torch.zeros_like(out)
    lse = torch.full((rows, heads), float("-inf"), dtype=torch.float64)
    for row in range(rows):
        keys = keys_of(k_cache, live_slots(k_cache, indices[row].flatten(), int(topk_length[row])))
        if extra_k_cache is not None and extra_indices is not None and extra_topk_length is not None:
            more = live_slots(extra_k_cache, extra_indices[row].flatten(), int(extra_topk_length[row]))
            keys = torch.cat([keys, keys_of(extra_k_cache, more)])
        if not len(keys):
            continue
        scores = q[row, 0].double() @ keys.T * softmax_scale
        lse[row] = torch.logsumexp(scores, dim=1)
        total = lse[row] if attn_sink is None else torch.logaddexp(lse[row], attn_sink.double())
        share = torch.exp(scores - total[:, None])
        out[row], weight[row] = share @ keys, share @ keys.abs()
    return Result(out, lse, weight)

"""Calls of the op with random contents, for the tests and the GPU script: pools in the native layout, poisoned wherever nobody may read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from . import reference, shapes

POISON = 0xFF  # NaN in e4m3, in bf16 and in UE8M0


@dataclass(frozen=True)
class ListOf:
    """A list of `width` slots a row, of which `live` count (default all), in a pool of `pages` pages of `tokens` tokens.

    `exponents`: UE8M0 bytes that keys are scaled by, one drawn for each 64 dimensions. `holes`: share of the slots that are -1.
    """

    width: int
    tokens: int = 256
    pages: int = 2
    live: int | Sequence[int] | None = None
    holes: float = 0.1
    exponents: tuple[int, ...] = (125, 126, 127, 128)


@dataclass(frozen=True)
class Call:
    """One call of the op, by the op's own argument names."""

    q: Tensor
    k_cache: Tensor
    indices: Tensor
    topk_length: Tensor
    attn_sink: Tensor | None
    softmax_scale: float = 512**-0.5
    extra_k_cache: Tensor | None = None
    extra_indices: Tensor | None = None
    extra_topk_length: Tensor | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(vars(self))

    def to(self, device: torch.device | str) -> Call:
        return replace(
            self, **{name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        )

    def expected(self) -> reference.Result:
        return reference.sparse_decode(**self.arguments)


def pool_of(what: ListOf, random: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """A pool, its slots that hold keys, and its slots that hold poison: half each, and the padding is poison too."""
    raw = torch.full((what.pages, shapes.page_bytes(what.tokens)), POISON, dtype=torch.uint8)
    order = torch.randperm(what.pages * what.tokens, generator=random)
    used, poisoned = order[: (len(order) + 1) // 2], order[(len(order) + 1) // 2 :]
    page, token = (used // what.tokens)[:, None], (used % what.tokens)[:, None]
    nope = torch.randn(len(used), shapes.NOPE, generator=random).to(torch.float8_e4m3fn).view(torch.uint8)
    rope = torch.randn(len(used), 64, generator=random).to(torch.bfloat16).view(torch.uint8)
    raw[page, token * shapes.ROW_BYTES + torch.arange(shapes.ROW_BYTES)] = torch.cat([nope, rope], dim=1)
    drawn = torch.tensor(what.exponents, dtype=torch.uint8)[
        torch.randint(len(what.exponents), (len(used), 7), generator=random)
    ]
    raw[page, what.tokens * shapes.ROW_BYTES + token * shapes.SCALE_BYTES + torch.arange(7)] = drawn
    view = raw[:, : what.tokens * shapes.TOKEN_BYTES].view(what.pages, what.tokens, 1, shapes.TOKEN_BYTES)
    return view, used, poisoned


def slots_of(what: ListOf, rows: int, used: Tensor, poisoned: Tensor, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Slots [T, 1, W] and lengths [T]: keys inside a row's length (with holes, and a key may come twice), poison behind it."""
    live = what.width if what.live is None else what.live
    lengths = torch.tensor([live] * rows if isinstance(live, int) else list(live), dtype=torch.int32)
    slots = used[torch.randint(len(used), (rows, what.width), generator=random)]
    slots[torch.rand(rows, what.width, generator=random) < what.holes] = -1
    behind = torch.arange(what.width) >= lengths[:, None]
    slots[behind] = poisoned[torch.randint(max(1, len(poisoned)), (int(behind.sum()),), generator=random)]
    return slots.int()[:, None, :].contiguous(), lengths


def call(rows: int, heads: int, *lists: ListOf, seed: int = 0, sink: float | None = 0.5, loud: float = 1.0) -> Call:
    """A random call with one or two lists; `sink` is the value for every head, `loud` scales the queries and so the scores."""
    random = torch.Generator().manual_seed(seed)
    q = (torch.randn(rows, 1, heads, shapes.DIM, generator=random) * loud).to(torch.bfloat16)
    parts: list[Any] = []
    for what in lists:
        pool, used, poisoned = pool_of(what, random)
        parts += [pool, *slots_of(what, rows, used, poisoned, random)]
    sinks = None if sink is None else torch.full((heads,), sink)
    names = ("k_cache", "indices", "topk_length", "extra_k_cache", "extra_indices", "extra_topk_length")
    return Call(q=q, attn_sink=sinks, **dict(zip(names, parts, strict=False)))

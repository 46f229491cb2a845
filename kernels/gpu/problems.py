"""Random problems for the bench, in SGLang's own page layouts (kernels.md 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pd_kernels.sparse_decode import shapes

NOPE, TOKEN, WINDOW_PAGE = shapes.NOPE, shapes.TOKEN_BYTES, 256


@dataclass(frozen=True)
class Lists:
    """Widths of the two lists, how much of the second is live, and tokens of a page of its pool (kernels.md 2)."""

    name: str
    topk: int
    extra: int = 0
    extra_live: int = 0
    extra_page: int = 64

    @property
    def live(self) -> int:
        """Keys of a row that count."""
        return self.topk + self.extra_live


LISTS = (Lists("128+0", 128), Lists("128+512", 128, 512, 512), Lists("128+1024 (256 live)", 128, 1024, 256, extra_page=2))
TINY = (Lists("16+0", 16), Lists("16+32 (20 live)", 16, 32, 20))


@dataclass(frozen=True)
class Problem:
    """Arguments of one call of SGLang's `flash_mla_with_kvcache_sm120`, and what of them the bench knows."""

    rows: int
    heads: int
    lists: Lists
    arguments: dict[str, Any]

    @property
    def key_bytes(self) -> int:
        """Bytes of keys that must be read."""
        return self.rows * self.lists.live * TOKEN

    def on_cpu(self) -> Problem:
        """The same with every tensor on the CPU (a page keeps its padding)."""
        moved = {name: _moved(value) for name, value in self.arguments.items()}
        return Problem(self.rows, self.heads, self.lists, moved)


def _moved(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.ndim == 4 and value.dtype == torch.uint8:
        whole = value.as_strided((value.shape[0], value.stride(0)), (value.stride(0), 1))
        return paged(whole.cpu(), value.shape[1])
    return value.cpu()


def paged(raw: torch.Tensor, tokens: int) -> torch.Tensor:
    """The view [pages, tokens, 1, 584] that SGLang passes of pages [pages, bytes]."""
    return raw.as_strided((raw.shape[0], tokens, 1, TOKEN), (raw.stride(0), TOKEN, TOKEN, 1))


def pool(pages: int, tokens: int, make: torch.Generator) -> torch.Tensor:
    """Pages of random finite keys: e4m3 without NaN, scales around 1, bf16 that are normal."""
    count, device = pages * tokens, make.device
    nope = torch.randint(0, 256, (count, NOPE), dtype=torch.uint8, generator=make, device=device)
    nope[(nope & 0x7F) == 0x7F] = 0x38
    rope = torch.randn(count, 64, generator=make, device=device).to(torch.bfloat16).view(torch.uint8).reshape(count, 128)
    scales = torch.randint(118, 122, (count, 8), dtype=torch.uint8, generator=make, device=device)
    raw = torch.zeros(pages, shapes.page_bytes(tokens), dtype=torch.uint8, device=device)
    rows = tokens * shapes.ROW_BYTES
    raw[:, :rows] = torch.cat([nope, rope], 1).reshape(pages, -1)
    raw[:, rows : rows + tokens * 8] = scales.reshape(pages, -1)
    return paged(raw, tokens)


def in_pages_of(cache: torch.Tensor, tokens: int) -> torch.Tensor:
    """The same slots in smaller pages: what `SGLANG_OPT_SM120_DIRECT_SWA_KV=1` stores."""
    pages, was = cache.shape[:2]
    raw = cache.as_strided((pages, cache.stride(0)), (cache.stride(0), 1))
    rows = raw[:, : was * shapes.ROW_BYTES].reshape(-1, tokens * shapes.ROW_BYTES)
    scales = raw[:, was * shapes.ROW_BYTES : was * TOKEN].reshape(-1, tokens * 8)
    made = torch.zeros(len(rows), shapes.page_bytes(tokens), dtype=torch.uint8, device=cache.device)
    made[:, : rows.shape[1]] = rows
    made[:, rows.shape[1] : rows.shape[1] + scales.shape[1]] = scales
    return paged(made, tokens)


def problem(rows: int, heads: int, lists: Lists, *, context: int, device: str = "cpu", seed: int = 0) -> Problem:
    """A window of the last `topk` tokens, over two pages, and `extra_live` keys out of `context`, for every row its own."""
    make = torch.Generator(device).manual_seed(seed)
    each = -(-lists.topk // WINDOW_PAGE) + 1
    start = torch.randint(0, each * WINDOW_PAGE - lists.topk + 1, (rows, 1), generator=make, device=device)
    window = torch.arange(rows, device=device)[:, None] * each * WINDOW_PAGE + start + torch.arange(lists.topk, device=device)
    arguments: dict[str, Any] = {
        "q": torch.randn(rows, 1, heads, shapes.DIM, generator=make, device=device).to(torch.bfloat16),
        "k_cache": pool(rows * each, WINDOW_PAGE, make),
        "indices": window[:, None].to(torch.int32),
        "topk_length": torch.full((rows,), lists.topk, dtype=torch.int32, device=device),
        "attn_sink": torch.randn(heads, generator=make, device=device),
        "head_dim_v": shapes.DIM,
        "softmax_scale": shapes.DIM**-0.5,
    }
    if lists.extra:
        chosen = torch.full((rows, lists.extra), -1, dtype=torch.int32, device=device)
        for row in range(rows):
            chosen[row, : lists.extra_live] = row * context + torch.randperm(context, generator=make, device=device)[: lists.extra_live]
        arguments["extra_k_cache"] = pool(rows * context // lists.extra_page, lists.extra_page, make)
        arguments["extra_indices_in_kvcache"] = chosen[:, None]
        arguments["extra_topk_length"] = torch.full((rows,), lists.extra_live, dtype=torch.int32, device=device)
    return Problem(rows, heads, lists, arguments)

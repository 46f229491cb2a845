"""Sizes of the op: DeepSeek-V4-Flash's KV rows and pages (kernels.md 2), the tiles, and every variant that can be launched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DIM = 512  # of a head: 448 e4m3 + 64 bf16, and keys are values
NOPE = 448
ROW_BYTES = 576
SCALE_BYTES = 8  # seven UE8M0 exponents, one per 64 dimensions, and a pad
TOKEN_BYTES = ROW_BYTES + SCALE_BYTES
PAGE_ALIGN = 576

MAX_ROWS = 256
MAX_HEADS = 128
MAX_SPLITS = 64
BLOCK_N = 16  # keys of a tile: the M of the MMA
WARPS = 4
MERGE_DIMS = 128  # of a CTA of the merge
MERGE_SPLITS = (2, 4, 8, 16, 32, 64)


def page_bytes(tokens: int) -> int:
    """Bytes from page to page for pages of `tokens` tokens: rows, then scales, padded to a multiple of 576."""
    return -(-tokens * TOKEN_BYTES // PAGE_ALIGN) * PAGE_ALIGN


def block_heads(heads: int) -> int:
    """Heads of a CTA: 8 where that is all of them (the N of the MMA, so nothing is padded), else 16."""
    return 8 if heads <= 8 else 16


def compile_options(block_h: int) -> dict[str, Any]:
    """Triton's options of the split kernel.

    `maxnreg`: registers a thread may have, 4 CTAs on an SM for 8 heads and 3 for 16; without a limit ptxas aims lower and spills.
    `ptx_options`: at 128 registers ptxas spills by its own estimate (level 5 of 10), at 168 by the higher one. The gate would show it.
    """
    level = {"ptx_options": "--register-usage-level=10"} if block_h == 8 else {}
    return {"num_warps": WARPS, "num_stages": 1, "maxnreg": 128 if block_h == 8 else 168, **level}


def merge_block(splits: int) -> int:
    """Partials that a CTA of the merge reads at once: the power of two that holds them."""
    return next(block for block in MERGE_SPLITS if splits <= block)


@dataclass(frozen=True)
class Split:
    """A compiled form of the split kernel."""

    block_h: int
    extra: bool  # a compressed list behind the window

    @property
    def name(self) -> str:
        return f"split-h{self.block_h}-{'extra' if self.extra else 'window'}"


@dataclass(frozen=True)
class Merge:
    """A compiled form of the merge kernel."""

    block_s: int
    sink: bool

    @property
    def name(self) -> str:
        return f"merge-s{self.block_s}" + "-sink" * self.sink


SPLITS = tuple(Split(block_h, extra) for block_h in (8, 16) for extra in (False, True))
MERGES = tuple(Merge(block_s, sink) for block_s in MERGE_SPLITS for sink in (False, True))

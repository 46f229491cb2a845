"""What one sparse-decode launch looks like to the device: CTAs, waves, the longest chain of tiles, bytes.

The geometry is exact. The microseconds rest on the assumptions below, none of which was measured on the target GPU:
they rank policies of splitting, and say nothing about tokens per second.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from pd_kernels.sparse_decode import shapes
from pd_kernels.sparse_decode.splits import choose_kv_splits

SMS = 188
"""RTX PRO 6000 Blackwell (sglang-facts 8.3; the header of SGLang's own kernel names it too)."""
CTAS_PER_SM = {8: 4, 16: 3}
"""By heads of a CTA; computed from the compiled kernels by gates/aot_gate.py, whose table a test compares with this."""
FLASHINFER_CTAS_PER_SM = 1
"""91 KB of shared memory each (kernels.md 2)."""
FLASHINFER_CHUNK = 64
"""Keys that FlashInfer's decode kernel takes at a time."""
FLASHINFER_HEADS = 16
"""Heads of one of its CTAs."""
FLASHINFER_DECODE_ROWS = 64
"""Above it SGLang calls the prefill kernel: a CTA per row and 16 heads, never split (kernels.md 2)."""
FLASHINFER_WAVES = 3
"""The most its own choice of chunks per CTA allows."""


@dataclass(frozen=True)
class Assumptions:
    """Times and rates that nobody measured on this GPU; all in microseconds, or bytes per microsecond."""

    tile: float = 1.5
    """One 16-key tile in a CTA, from its gather to its last product (kernels.md 4)."""
    prologue: float = 3.0
    """Launch of a CTA up to its first tile, with its epilogue (kernels.md 4)."""
    merge: float = 2.5
    """One more launch, for the merge (kernels.md 4)."""
    chunk: float = 4.5
    """FlashInfer: one 64-key chunk in a CTA (kernels.md 4)."""
    chunk_prologue: float = 4.0
    """FlashInfer: the same of its prologue (kernels.md 4)."""
    bandwidth: float = 1.79e6
    """Of the memory, from the data sheet: 1.79 TB/s."""
    efficiency: float = 0.85
    """Share of it that a kernel reaches (kernels.md 4)."""
    cached: float = 2.0
    """How much faster partial results move: they are at most 25 MB (752 CTAs of 16 heads) and the L2 has 128 (kernels.md 9.3). Assumed here."""

    def move(self, memory: float, partials: float) -> float:
        """Microseconds to move bytes of keys, queries and results, and of partial results."""
        return (memory + partials / self.cached) / (self.bandwidth * self.efficiency)


@dataclass(frozen=True)
class Launch:
    """One launch: `chain` tiles of `tile_keys` keys in the longest CTA, `floor_us` of pure key bytes at full bandwidth."""

    rows: int
    splits: int
    ctas: int
    slots: int
    chain: int
    tile_keys: int
    floor_us: float
    us: float

    @property
    def waves(self) -> int:
        """Rounds of CTAs, when all of a round end together."""
        return -(-self.ctas // self.slots)

    @property
    def chain_keys(self) -> int:
        """Keys that one CTA walks through, one tile after the other."""
        return self.chain * self.tile_keys

    @property
    def rate(self) -> float:
        """Rows per microsecond of this launch alone."""
        return self.rows / self.us


@dataclass(frozen=True)
class Shape:
    """Heads of a rank, keys of the window and of the compressed list (kernels.md 2)."""

    heads: int = 8
    topk: int = 128
    extra_topk: int = 512

    @property
    def keys(self) -> int:
        """Keys of a row."""
        return self.topk + self.extra_topk

    def key_bytes(self, rows: int) -> int:
        """Bytes of keys that a launch must read at least: every row its own, each key once for all heads."""
        return rows * self.keys * shapes.TOKEN_BYTES

    def vector_bytes(self, rows: int, width: int) -> int:
        """Bytes of one [rows, heads, 512] tensor with `width` bytes an element: queries, results, a split's partials."""
        return rows * self.heads * shapes.DIM * width


def _time(ctas: int, slots: int, chain_us: float, moving_us: float) -> float:
    """Waves one after the other; each takes its chain, or as long as its share of the bytes needs if that is longer."""
    waves = [slots] * (ctas // slots) + ([ctas % slots] if ctas % slots else [])
    return sum(max(chain_us, moving_us * wave / ctas) for wave in waves)


def split_k(rows: int, target: int | None, shape: Shape, given: Assumptions, *, ctas_per_sm: int | None = None) -> Launch:
    """K1 with a target of CTAs; None is the default, as many as run at a time."""
    block_h = shapes.block_heads(shape.heads)
    slots = SMS * (ctas_per_sm or CTAS_PER_SM[block_h])
    splits = choose_kv_splits(rows, shape.heads, shape.topk, target or slots, extra_topk=shape.extra_topk, block_h=block_h)
    tiles = -(-shape.topk // shapes.BLOCK_N) + -(-shape.extra_topk // shapes.BLOCK_N)
    chain, ctas = -(-tiles // splits), rows * -(-shape.heads // block_h) * splits
    query, partial = shape.vector_bytes(rows, 2), splits * shape.vector_bytes(rows, 4)  # one split is merged like many
    us = _time(ctas, slots, given.prologue + chain * given.tile, given.move(shape.key_bytes(rows) + query, partial))
    us += given.merge + given.move(query, partial)
    return Launch(rows, splits, ctas, slots, chain, shapes.BLOCK_N, shape.key_bytes(rows) / given.bandwidth, us)


def chunks_per_cta(base: int, chunks: int) -> int:
    """FlashInfer 0.7.2's choice for `base` CTAs of unsplit work: the last wave as full as it gets, in at most 3 waves.

    Where two are as good it takes the longer chain. 1 where nothing fits.
    """
    best, gap = 1, 2.0
    for candidate in range(1, chunks + 1):
        ctas = base * -(-chunks // candidate)
        waves = -(-ctas // SMS)
        left = waves - ctas / SMS
        if waves <= FLASHINFER_WAVES and left < gap + 1e-6:
            best, gap = candidate, left
    return best


def flashinfer(rows: int, shape: Shape, given: Assumptions) -> Launch:
    """FlashInfer 0.7.2 as SGLang 0.5.23 calls it, without its copy of the window's pages (kernels.md 2)."""
    chunks = -(-shape.topk // FLASHINFER_CHUNK) + -(-shape.extra_topk // FLASHINFER_CHUNK)
    base = rows * -(-shape.heads // FLASHINFER_HEADS)
    each = chunks_per_cta(base, chunks) if rows <= FLASHINFER_DECODE_ROWS else chunks
    splits = -(-chunks // each)
    query = shape.vector_bytes(rows, 2)
    partial = splits * query
    slots = SMS * FLASHINFER_CTAS_PER_SM
    us = _time(base * splits, slots, given.chunk_prologue + each * given.chunk, given.move(shape.key_bytes(rows) + query, partial))
    if rows <= FLASHINFER_DECODE_ROWS:
        us += given.merge + given.move(query, partial)
    return Launch(rows, splits, base * splits, slots, each, FLASHINFER_CHUNK, shape.key_bytes(rows) / given.bandwidth, us)


POLICIES: dict[str, int | None] = {"unset": None, "188": 188, "376": 376, "512": 512, "752": 752}
ROWS = range(1, 129)


def launches(policy: str, shape: Shape, given: Assumptions) -> list[Launch]:
    """All rows under one policy of `POLICIES`, or under `flashinfer`."""
    if policy == "flashinfer":
        return [flashinfer(rows, shape, given) for rows in ROWS]
    return [split_k(rows, POLICIES[policy], shape, given) for rows in ROWS]


def ranked(shape: Shape, given: Assumptions) -> list[tuple[float, str]]:
    """Mean predicted microseconds over all rows, best first."""
    names = (*POLICIES, "flashinfer")
    return sorted((sum(one.us for one in launches(name, shape, given)) / len(ROWS), name) for name in names)


def cliffs(found: list[Launch], share: float = 0.05) -> Iterator[tuple[int, float]]:
    """Rows where one more row costs more than `share` of the predicted rows per microsecond, and how much it costs."""
    for before, after in itertools.pairwise(found):
        loss = 1 - after.rate / before.rate
        if loss > share:
            yield after.rows, loss


REPORTED = {64: 0.128, 80: 0.012, 96: 0.057}
"""Gains that were reported for the knob at these concurrencies, once, on the real host (kernels.md 4)."""


def gain(rows: int, old: int, new: int, shape: Shape, given: Assumptions) -> float:
    """Predicted gain in rows per microsecond of this launch alone, from target `old` to `new`."""
    return split_k(rows, new, shape, given).rate / split_k(rows, old, shape, given).rate - 1


def alike(new: int, heads: tuple[int, ...], given: Assumptions) -> list[tuple[int, int]]:
    """(heads, old target) from which a change to `new` gives gains in the order that was reported, all of them gains."""
    found = []
    for shape in map(Shape, heads):
        for old in range(16, new, 4):
            gains = [gain(rows, old, new, shape, given) for rows in (64, 96, 80)]
            if gains[0] > gains[1] > gains[2] > 0:
                found.append((shape.heads, old))
    return found

"""Shapes of the index keys of DeepSeek-V4 (sglang-facts 8.1, 8.4) and how a launch is divided."""

from __future__ import annotations

DIM = 128
ROPE_DIM = 64
HEADS = 64
PAGE = 64
"""Keys of an index page."""
RATIO = 4
"""Tokens a key stands for: only the C4 indexer has such keys."""
KEY_BYTES = 2 * DIM
FP8_KEY_BYTES = DIM + 4
"""A key of SGLang's pool: 128 e4m3 and one fp32 scale."""
THREADS = 128
"""Of a CTA of either kernel."""
CTAS_PER_SM = 3
"""Of the logits kernel, computed by gates/nvcc_gate.py from its registers and shared memory; the gate compares."""
WAVES = 2
"""CTAs that a launch may have for every one that runs at a time: a row shorter than the others leaves early."""


def choose_chunks(rows: int, columns: int, slots: int) -> int:
    """CTAs for each row of a logits launch: enough to fill the device `WAVES` times, never more than a row has pages.

    `slots` is the number of CTAs that run at a time. From shapes only, so that capture and replay of a CUDA graph
    agree; how many pages each CTA has is decided on the device, from the row's own length.
    """
    pages = -(-columns // PAGE)
    return max(1, min(pages, WAVES * slots // max(1, rows)))

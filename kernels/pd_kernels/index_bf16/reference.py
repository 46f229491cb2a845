"""What the kernels should compute, in float64, and how far from it they may be. One line of arithmetic at a time; slow."""

from __future__ import annotations

import torch

from pd_kernels.index_bf16.shapes import DIM, HEADS, PAGE, ROPE_DIM

FP32 = 2.0**-23
"""One step of fp32. Tensor cores may truncate where they add, so a whole step is granted for each addition."""


def hadamard(size: int = DIM) -> torch.Tensor:
    """The Sylvester matrix [size, size] over sqrt(size), float64."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while matrix.shape[0] < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / size**0.5


def key(kv: torch.Tensor, weight: torch.Tensor, eps: float, freqs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Index keys [n, 128] of `kv` [n, 128] at rotations `freqs` [n, 64], and the elementwise bound of a bf16 result.

    The bound is one bf16 rounding (2^-8 of the value) and 16 fp32 steps of what the sums add up in size.
    """
    x = kv.double()
    x = x / (x.square().mean(1, keepdim=True) + eps).sqrt() * weight.double()
    real, imaginary = x[:, DIM - ROPE_DIM :: 2], x[:, DIM - ROPE_DIM + 1 :: 2]
    cosine, sine = freqs.double()[:, ::2], freqs.double()[:, 1::2]
    turned = torch.stack([real * cosine - imaginary * sine, real * sine + imaginary * cosine], 2).flatten(1)
    size = torch.stack([(real * cosine).abs() + (imaginary * sine).abs(), (real * sine).abs() + (imaginary * cosine).abs()], 2).flatten(1)
    plain, matrix = x[:, : DIM - ROPE_DIM], hadamard()
    exact = torch.cat([plain, turned], 1) @ matrix.T
    return exact, 2.0**-8 * exact.abs() + 16 * FP32 * (torch.cat([plain.abs(), size], 1) @ matrix.abs().T)


def _number(values: torch.Tensor) -> torch.Tensor:
    """NaN counts 0, infinity stays."""
    return values.where(~values.isnan(), 0.0)


def logits(
    q: torch.Tensor, weights: torch.Tensor, pages: torch.Tensor, lengths: torch.Tensor, table: torch.Tensor, *, columns: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """[rows, columns] `sum_h w relu(q . k)` with -inf where a row has no key, and the elementwise bound of an fp32 result.

    A product or a sum that is not a number counts 0. The bound is a step of fp32 for each addition (128 of a product,
    64 of the heads), of the sum of the terms' sizes.
    """
    exact = torch.full((q.shape[0], columns), float("-inf"), dtype=torch.float64)
    bound = torch.zeros_like(exact)
    for row in range(q.shape[0]):
        for position in range(max(0, min(int(lengths[row]), columns, table.shape[1] * PAGE))):
            page = int(table[row, position // PAGE])
            if not 0 <= page < pages.shape[0]:
                continue
            k = pages[page, position % PAGE].double()
            score = _number(q[row].double() @ k).clamp(min=0)
            exact[row, position] = _number((weights[row].double() * score).sum())
            terms = _number(weights[row].double().abs() * (q[row].double().abs() @ k.abs()))
            bound[row, position] = (DIM + HEADS) * FP32 * terms.sum()
    return exact, bound

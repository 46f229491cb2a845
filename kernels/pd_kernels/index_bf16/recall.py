"""How many of the true best keys each storage format finds, on synthetic keys: python -m pd_kernels.index_bf16.recall

Queries are the same for every format; the truth is float64. Synthetic: it says which distributions hurt a format, not what a model loses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch

from pd_kernels.index_bf16.shapes import DIM, HEADS

KEYS, TOP, QUERIES, SEED = 16384, 512, 4, 20261130
PAGE = Path(__file__).with_name("recall.md")
FP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def fp8(keys: torch.Tensor) -> torch.Tensor:
    """SGLang's: e4m3, one fp32 scale a key (sglang-facts 8.4)."""
    scale = keys.abs().amax(1, keepdim=True).clamp(min=1e-4) / 448
    return (keys / scale).to(torch.float8_e4m3fn).float() * scale


def fp4(keys: torch.Tensor) -> torch.Tensor:
    """e2m1 with a power of two for every 32 dimensions."""
    groups = keys.reshape(len(keys), -1, 32)
    scale = 2 ** (groups.abs().amax(2, keepdim=True).clamp(min=1e-30) / 6).log2().ceil()
    near = torch.bucketize((groups / scale).abs(), (FP4[1:] + FP4[:-1]) / 2)
    return (FP4[near] * groups.sign() * scale).reshape_as(keys)


def bf16(keys: torch.Tensor) -> torch.Tensor:
    """This op's."""
    return keys.to(torch.bfloat16).float()


def _gaussian(make: torch.Generator) -> torch.Tensor:
    return torch.randn(KEYS, DIM, generator=make)


def _outliers(make: torch.Generator) -> torch.Tensor:
    keys = torch.randn(KEYS, DIM, generator=make)
    keys[:, :4] *= 20
    return keys


def _shared_mean(make: torch.Generator) -> torch.Tensor:
    return torch.randn(KEYS, DIM, generator=make) + 8 * torch.randn(DIM, generator=make)


def _near_duplicates(make: torch.Generator) -> torch.Tensor:
    kinds = torch.randn(KEYS // 64, DIM, generator=make)
    return kinds.repeat_interleave(64, 0) + 0.05 * torch.randn(KEYS, DIM, generator=make)


DISTRIBUTIONS: dict[str, Callable[[torch.Generator], torch.Tensor]] = {
    "gaussian": _gaussian,
    "four dimensions 20 times larger": _outliers,
    "a shared mean 8 times larger": _shared_mean,
    "64 near duplicates of each": _near_duplicates,
}
FORMATS = {"fp8": fp8, "fp4": fp4, "bf16": bf16}


def best(keys: torch.Tensor, q: torch.Tensor, weights: torch.Tensor) -> set[int]:
    """Indices of the TOP keys by `sum_h w relu(q . k)` in float64."""
    scores = (q.double() @ keys.double().T).clamp(min=0).T @ weights.double()
    return set(scores.topk(TOP).indices.tolist())


def recall(keys: torch.Tensor, make: torch.Generator) -> dict[str, float]:
    """Format -> share of the true best that it finds, over QUERIES queries."""
    found = dict.fromkeys(FORMATS, 0)
    stored = {name: change(keys) for name, change in FORMATS.items()}
    for _ in range(QUERIES):
        q, weights = torch.randn(HEADS, DIM, generator=make), torch.rand(HEADS, generator=make)
        truth = best(keys, q, weights)
        for name, copy in stored.items():
            found[name] += len(truth & best(copy, q, weights))
    return {name: count / (TOP * QUERIES) for name, count in found.items()}


def table() -> str:
    """The whole page."""
    lines = [
        f"# Recall of the true top {TOP} of {KEYS:,} synthetic keys",
        "",
        f"`python -m pd_kernels.index_bf16.recall > recall.md`, seed {SEED}, {QUERIES} queries of {HEADS} heads, CPU. Synthetic keys:",
        "this shows which distributions hurt a format, not what a model loses.",
        "",
        "| keys | " + " | ".join(FORMATS) + " |",
        "|---|" + "---|" * len(FORMATS),
    ]
    for name, make_keys in DISTRIBUTIONS.items():
        make = torch.Generator().manual_seed(SEED)
        lines.append(f"| {name} | " + " | ".join(f"{share:.3f}" for share in recall(make_keys(make), make).values()) + " |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(table())

"""Problems for the index-key kernels, and their comparison with float64; used on the CPU twin and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pd_kernels.index_bf16 import reference
from pd_kernels.index_bf16.op import IndexKernels
from pd_kernels.index_bf16.shapes import DIM, HEADS, PAGE, RATIO, ROPE_DIM


@dataclass
class Problem:
    """Arguments of `IndexKernels.logits`."""

    q: torch.Tensor
    weights: torch.Tensor
    pages: torch.Tensor
    lengths: torch.Tensor
    table: torch.Tensor
    columns: int


def problem(lengths: list[int], columns: int, seed: int = 0, spare: int = 2) -> Problem:
    """Random queries, keys and weights of both signs; every row has pages of its own in a random order.

    `spare` pages are in no table, and full of NaN.
    """
    make = torch.Generator().manual_seed(seed)
    width = -(-max(*lengths, columns, 1) // PAGE)
    pages = torch.randn(len(lengths) * width + spare, PAGE, DIM, generator=make).to(torch.bfloat16)
    order = torch.randperm(len(pages), generator=make).to(torch.int32)
    pages[order[len(lengths) * width :].long()] = float("nan")
    return Problem(
        q=(torch.randn(len(lengths), HEADS, DIM, generator=make) * 2).to(torch.float8_e4m3fn),
        weights=torch.randn(len(lengths), HEADS, generator=make),
        pages=pages,
        lengths=torch.tensor(lengths, dtype=torch.int32),
        table=order[: len(lengths) * width].reshape(len(lengths), width).contiguous(),
        columns=columns,
    )


def run(kernels: IndexKernels, given: Problem, chunks: int, device: str = "cpu") -> torch.Tensor:
    """The kernel's logits, on the CPU."""
    q, weights, pages, lengths, table = (part.to(device) for part in (given.q, given.weights, given.pages, given.lengths, given.table))
    return kernels.logits(q, weights, pages, lengths, table, columns=given.columns, chunks=chunks).cpu()


def worst(got: torch.Tensor, exact: torch.Tensor, bound: torch.Tensor) -> float:
    """The largest error over its bound; infinite when something is not a number, or not -inf where it should be."""
    finite = exact.isfinite()
    if got.isnan().any() or not torch.equal(got[~finite].double(), exact[~finite]):
        return float("inf")
    ratio = (got.double() - exact).abs()[finite] / bound[finite].clamp(min=1e-30)
    return float(ratio.max()) if ratio.numel() else 0.0


def worst_logits(kernels: IndexKernels, given: Problem, chunks: int, device: str = "cpu") -> float:
    """Error over bound of the logits kernel on one problem."""
    exact, bound = reference.logits(given.q, given.weights, given.pages, given.lengths, given.table, columns=given.columns)
    return worst(run(kernels, given, chunks, device), exact, bound)


@dataclass
class Keys:
    """Arguments of `IndexKernels.store`, without pages."""

    kv: torch.Tensor
    plan: torch.Tensor
    norm_weight: torch.Tensor
    freqs: torch.Tensor
    out_loc: torch.Tensor
    decode: bool


def keys(decode: bool, kv: torch.dtype, weight: torch.dtype, seed: int = 0, count: int = 9) -> Keys:
    """Keys at random positions and slots. Decode: the third completes no key. Prefill: the third is a filler."""
    make = torch.Generator().manual_seed(seed)
    plan = torch.zeros(count, 4, dtype=torch.int32)
    plan[:, 0] = RATIO * torch.randint(1, 30, (count,), generator=make)
    if decode:
        plan[2, 0] += 1
    else:
        plan[:, 1] = torch.randperm(count, generator=make)
        plan[2, 0] = -1
    angle = torch.rand(128, ROPE_DIM // 2, generator=make) * 6.3
    return Keys(
        kv=torch.randn(count, DIM, generator=make).to(kv),
        plan=plan.view(torch.uint8).reshape(count, 16),
        norm_weight=torch.rand(DIM, generator=make).to(weight),
        freqs=torch.stack([angle.cos(), angle.sin()], 2).flatten(1),
        out_loc=torch.randperm(4 * PAGE, generator=make)[:count],
        decode=decode,
    )


EPS = 1e-6


def stored(kernels: IndexKernels, given: Keys, device: str = "cpu") -> torch.Tensor:
    """A pool of 4 pages after the store, on the CPU; what was not written is NaN."""
    pages = torch.full((4, PAGE, DIM), float("nan"), dtype=torch.bfloat16, device=device)
    kernels.store(
        given.kv.to(device),
        given.plan.to(device),
        norm_weight=given.norm_weight.to(device),
        norm_eps=EPS,
        freqs=given.freqs.to(device),
        out_loc=given.out_loc.to(device),
        pages=pages,
        ratio=RATIO,
        decode=given.decode,
    )
    return pages.cpu()


def worst_store(kernels: IndexKernels, given: Keys, device: str = "cpu") -> float:
    """Error over bound of the store kernel; infinite when it wrote where it should not, or not where it should."""
    got = stored(kernels, given, device).flatten(0, 1)
    plan = given.plan.view(torch.int32).reshape(-1, 4)
    expected = {}
    for work, (length, row) in enumerate(plan[:, :2].tolist()):
        slot = int(given.out_loc[work if given.decode else row])
        if (length % RATIO == 0 if given.decode else length >= 0) and 0 <= slot < len(got):
            expected[slot] = (work, length - RATIO)
    if set(torch.where(~got.isnan().all(1))[0].tolist()) != set(expected):
        return float("inf")
    at = torch.tensor(list(expected.values()))
    exact, bound = reference.key(given.kv[at[:, 0]], given.norm_weight, EPS, given.freqs[at[:, 1]])
    return worst(got[list(expected)].float(), exact, bound)

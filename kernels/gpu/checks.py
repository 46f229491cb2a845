"""Correctness on the device, before anything is timed: the elementwise bounds of the CPU tests, and the same bits again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from gpu.contenders import Contender, first, positional
from gpu.problems import Lists, Problem, problem

from pd_kernels.index_bf16.cases import keys, run, worst_logits, worst_store
from pd_kernels.index_bf16.cases import problem as index_problem
from pd_kernels.index_bf16.op import IndexKernels
from pd_kernels.sparse_decode import reference

LSE_ERROR = 1e-4
"""Relative; the arithmetic of the log-sum-exp is fp32."""


def exact(given: Problem) -> reference.Result:
    """A problem in float64, on the CPU."""
    arguments = positional(given.on_cpu())
    return reference.sparse_decode(*arguments[:5], *arguments[6:])


def sparse_decode(contender: Contender, given: Problem, wanted: reference.Result) -> dict[str, Any]:
    """One problem against float64: the worst error over its bound (at most 1), the LSE's error, and whether it repeats bitwise."""
    call = contender.prepare(given)
    result, again = call(), call()
    worst = float(((first(result) - wanted.out).abs() / wanted.bound).max())
    lse = float(((result[1].cpu().double().reshape(wanted.lse.shape) - wanted.lse).abs() / wanted.lse.abs().clamp(min=1)).max())
    same = all(torch.equal(one, other) for one, other in zip(result, again, strict=True))
    return {
        **{"op": "sparse_decode", "case": f"{given.rows} rows, {given.heads} heads, {given.lists.name}, {contender.name}"},
        **{"worst_over_bound": worst, "lse_error": lse, "repeats": same, "ok": bool(worst <= 1 and lse <= LSE_ERROR and same)},
    }


def baseline(contender: Contender, given: Problem, wanted: reference.Result) -> dict[str, Any]:
    """How far another kernel is from float64, in units of the same bound: information, it is not ours to fail."""
    worst = float(((first(contender.prepare(given)()) - wanted.out).abs() / wanted.bound).max())
    return {"op": contender.name, "case": f"{given.rows} rows, {given.heads} heads, {given.lists.name}", "worst_over_bound": worst, "ok": True}


def problems(dry: bool, lists: tuple[Lists, ...], device: str) -> Iterator[Problem]:
    """Rows around the change at 64, both head counts, every pair of lists."""
    for heads in (3,) if dry else (8, 16):
        for rows in (2,) if dry else (1, 2, 64, 65, 96):
            for one in lists:
                yield problem(rows, heads, one, context=64 if dry else 2048, device=device, seed=rows)


def index(kernels: IndexKernels, device: str, dry: bool) -> Iterator[dict[str, Any]]:
    """The index kernels: rows that differ in length, several chunks, both plans, all element types."""
    lengths = [70, 0, 33] if dry else [2048, 1, 700, 64, 0, 1337]
    given = index_problem(lengths, max(lengths) + 3)
    for chunks in (1, 3):
        worst = worst_logits(kernels, given, chunks, device)
        same = torch.equal(run(kernels, given, chunks, device), run(kernels, given, 2, device))
        told = {"worst_over_bound": worst, "repeats": same, "ok": bool(worst <= 1 and same)}
        yield {"op": "index_logits_bf16", "case": f"lengths {lengths}, {chunks} chunks", **told}
    for decode in (True, False):
        for dtype in (torch.bfloat16, torch.float32):
            worst = worst_store(kernels, keys(decode, dtype, torch.float32), device)
            case = f"{'decode' if decode else 'prefill'} plan, {dtype}"
            yield {"op": "index_k_store_bf16", "case": case, "worst_over_bound": worst, "ok": worst <= 1}


def index_library(folder: Path, device: torch.device | None) -> IndexKernels:
    """The library for this device: the built one on sm_120, else compiled now, by nvcc, or by g++ for a CPU. RuntimeError says what is missing."""
    from pd_kernels.index_bf16 import build, op  # noqa: PLC0415  where nvcc is only

    if device is None:
        return IndexKernels(build.build_host(folder / "index_host.so"))
    major, minor = torch.cuda.get_device_capability(device)
    if (major, minor) == (12, 0) and op.LIBRARY.exists():
        return IndexKernels()
    return IndexKernels(build.build(folder / "index.so", (f"sm_{major}{minor}a",)))

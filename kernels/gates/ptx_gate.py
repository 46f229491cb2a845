"""Runs the compiled PTX of sparse decode on the CPU and holds it to the float64 bound: what the interpreter of the source cannot show.

python gates/ptx_gate.py [sm]     120 if not given
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import aot_gate
import ptx
import torch

from pd_kernels.sparse_decode import cases, kernel, op, shapes
from pd_kernels.sparse_decode.cases import Call, ListOf

Edit = Callable[[str], str]
CALLS = {
    "8 heads, one list": (cases.call(2, 8, ListOf(40, live=[40, 3]), seed=1), 2),
    "5 heads, two lists, an empty split": (
        cases.call(1, 5, ListOf(20), ListOf(37, tokens=2, pages=40, live=9), seed=2),
        5,
    ),
    "16 heads, two lists": (
        cases.call(1, 16, ListOf(40, tokens=64), ListOf(20, tokens=64, pages=4), seed=3, loud=8.0),
        3,
    ),
    "20 heads, one list, no sink": (cases.call(1, 20, ListOf(33), seed=4, sink=None), 1),
    "nothing live": (cases.call(1, 8, ListOf(20, live=0), ListOf(20, holes=1.0), seed=5), 2),
    "small and large scales": (cases.call(1, 8, ListOf(32, exponents=(0, 60, 127, 140)), seed=6), 2),
}


def launched(function: Any, constants: dict[str, Any], arch: int, edit: Edit, **options: Any) -> ptx.Kernel:
    """A kernel, compiled, its PTX edited, ready to launch."""
    built = aot_gate.compiled(function, {**constants, "HOST": False}, arch, **options)
    return ptx.Kernel(edit(built.asm["ptx"]), built.metadata.shared)


def run(call: Call, splits: int, arch: int = 120, edit: Edit = str) -> tuple[torch.Tensor, torch.Tensor]:
    """The op's two launches, on the emulated device. `edit` changes the split kernel's PTX."""
    rows, _, heads, _ = call.q.shape
    block_h = shapes.block_heads(heads)
    keys = [op.Keys(call.k_cache, call.indices, call.topk_length)]
    if call.extra_k_cache is not None and call.extra_indices is not None and call.extra_topk_length is not None:
        keys.append(op.Keys(call.extra_k_cache, call.extra_indices, call.extra_topk_length))
    part = torch.full((rows, heads, splits, shapes.DIM), float("nan"))
    part_lse = torch.full((rows, heads, splits), float("nan"))
    told = [
        call.q,
        call.q.stride(0) // 8,
        call.q.stride(2) // 8,
        *keys[0].arguments(),
        *keys[-1].arguments(),
        part,
        part_lse,
    ]
    constants = {"HAS_EXTRA": len(keys) == 2, "BLOCK_H": block_h, "BLOCK_N": shapes.BLOCK_N}
    split = launched(kernel.split_kernel, constants, arch, edit, **shapes.compile_options(block_h))
    split.launch((-(-heads // block_h), rows, splits), [*told, call.softmax_scale, heads, splits])

    out, lse = torch.empty(rows, heads, shapes.DIM, dtype=torch.bfloat16), torch.empty(rows, heads)
    constants = {
        "HAS_SINK": call.attn_sink is not None,
        "BLOCK_S": shapes.merge_block(splits),
        "BLOCK_D": shapes.MERGE_DIMS,
    }
    merge = launched(kernel.merge_kernel, constants, arch, str, num_warps=shapes.WARPS)
    sink = part_lse if call.attn_sink is None else call.attn_sink
    merge.launch((shapes.DIM // shapes.MERGE_DIMS, heads, rows), [part, part_lse, sink, out, lse, heads, splits])
    return out, lse


def judged(call: Call, got: tuple[torch.Tensor, torch.Tensor]) -> tuple[bool, str]:
    """Whether a result is within the bound, and how far it is."""
    out, lse = got[0].double(), got[1].double()
    wanted = call.expected()
    worst = ((out - wanted.out).abs() / wanted.bound).nan_to_num(float("inf")).max().item()
    none = wanted.lse == float("-inf")
    apart = max([0.0, *((lse - wanted.lse).abs() / (1 + wanted.lse.abs()))[~none].tolist()])
    right = worst <= 1 and apart < 1e-6 and torch.equal(lse == float("-inf"), none)
    return right, f"{worst:.3g} of the bound, LSE {apart:.1e}"


def without(pattern: str, number: int, instead: str) -> Edit:
    """Changes the n-th place of a pattern in PTX."""

    def edit(text: str) -> str:
        place = list(re.finditer(pattern, text))[number]
        return text[: place.start()] + instead + text[place.end() :]

    return edit


BARRIERS = {"8 heads, one list": 9, "16 heads, two lists": 15}
HARMLESS = {
    ("8 heads, one list", "without barrier 4"),
    *(("16 heads, two lists", f"without barrier {number}") for number in (6, 12)),
}
"""Triton put them there; nothing that the emulator sees needs them: no warp touches a byte of another's across one, and the result is the same."""


def planted() -> int:
    """How many planted defects were not seen, or are `HARMLESS` and were: a barrier left out of either form, a transposition lost."""
    wrong = 0
    for form, count in BARRIERS.items():
        call, splits = CALLS[form]
        barriers = [(f"without barrier {n}", without(r"\tbar\.sync", n, "\tbar.none")) for n in range(count)]
        for name, edit in [("a transposition lost", without(r"\.x4\.trans", 0, ".x4")), *barriers]:
            try:
                right, said = judged(call, run(call, splits, edit=edit))
            except RuntimeError as error:
                right, said = False, str(error)
            wrong += right is not ((form, name) in HARMLESS)
            sys.stdout.write(f"{'unseen' if right else 'seen  '} {form}: {name}: {said}\n")
            sys.stdout.flush()
    return wrong


def main() -> int:
    if sys.argv[1:] == ["planted"]:
        return planted()
    arch = int(sys.argv[1]) if len(sys.argv) > 1 else 120
    wrong = 0
    for name, (call, splits) in CALLS.items():
        right, said = judged(call, run(call, splits, arch))
        wrong += not right
        sys.stdout.write(f"{'ok   ' if right else 'WRONG'} {name}: {said}\n")
        sys.stdout.flush()
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())

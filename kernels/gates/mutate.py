"""Plants defects in sparse decode, one at a time, in a copy, and demands that the tests turn red.

python gates/mutate.py            all of them: minutes, nightly and on demand
python gates/mutate.py sink       those with that word in their name
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[1]
OP = Path("pd_kernels/sparse_decode")


@dataclass(frozen=True)
class Defect:
    """In `file`, `old` becomes `new`. `tests`: what to run (pytest -k), so that a run takes seconds; empty runs all of `suite`."""

    name: str
    file: str
    old: str
    new: str
    tests: str
    suite: str = "test_sparse_decode.py"


def in_kernel(name: str, old: str, new: str, tests: str) -> Defect:
    return Defect(name, "kernel.py", old, new, tests)


DEFECTS = (
    in_kernel(
        "scale of the next group", "(group * 8).to(tl.uint64)", "(((group + 1) & 7) * 8).to(tl.uint64)", "heads_of_one"
    ),
    in_kernel("least scale is zero", "exponent == 0, 0x00400000", "exponent == 0, 0", "scales"),
    in_kernel(
        "scales read behind the padding",
        "(ROW_BYTES << shift) + token * 8",
        "(ROW_BYTES << shift) + token * 8 + 8",
        "pages",
    ),
    in_kernel("rope half a row early", "(row + 448)", "(row + 384)", "heads_of_one"),
    in_kernel(
        "page of the first list for both", "stride = tl.where(second, page_units_x, stride)", "stride = stride", "pages"
    ),
    in_kernel(
        "slots above the pool are keys",
        "(slot >= 0) & (slot < limit)",
        "(slot >= 0) & (slot <= limit)",
        "outside or last_slot",
    ),
    in_kernel("the last slot is no key", "(slot < limit)", "(slot < limit - 1)", "last_slot"),
    in_kernel("holes are slot 0", "(slot >= 0) & (slot < limit)", "slot < limit", "holes or outside"),
    in_kernel("masked keys score 0", "* scale2, LOWEST)", "* scale2, 0.0)", "holes"),
    in_kernel("keys behind the length", "mask=position < end", "mask=position < end + 1", "lengths"),
    in_kernel("negative lengths count", "tl.maximum(tl.load(lengths + row), 0)", "tl.load(lengths + row)", "lengths"),
    in_kernel("lengths over the width", "0), width_x)", "0), 2 * width_x)", "lengths"),
    in_kernel(
        "last tile of a split is dropped",
        "tl.minimum(first + per, total)",
        "tl.minimum(first + per, total - 1)",
        "heads_of_one",
    ),
    in_kernel("splits by the width", "per = tl.cdiv(total, splits)", "per = tl.cdiv(total + 4, splits)", "wide_list"),
    in_kernel("sum is not rescaled", "mass = mass * fade +", "mass = mass +", "splits"),
    in_kernel("values are not rescaled", "acc * fade[None, None, :]", "acc", "splits"),
    in_kernel(
        "no guard for a tile without keys", "tl.where(new_top == LOWEST, 0.0, new_top)", "new_top", "nothing_valid"
    ),
    in_kernel(
        "scores without the first tile's maximum", "tl.exp2(score - base[None, :])", "tl.exp2(score)", "overflow"
    ),
    in_kernel(
        "weights cut, not rounded",
        "(bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000",
        "bits & 0xFFFF0000",
        "do_not_end or test_splits or heads_of_one",
    ),
    in_kernel(
        "heads of the next block",
        "mask=in_heads[None, :])\n\n\n",
        "mask=(head < BLOCK_H)[None, :])\n\n\n",
        "heads_of_one",
    ),
    in_kernel(
        "empty partials are read",
        "mask=(lses > LOWEST)[:, None]",
        "mask=(split < splits)[:, None]",
        "lengths or splits",
    ),
    in_kernel("merge in the wrong base", "weight = tl.exp2(lses - base)", "weight = tl.exp(lses - base)", "splits"),
    in_kernel("merge without the maximum", "weight = tl.exp2(lses - base)", "weight = tl.exp2(lses)", "far_above"),
    in_kernel("sink counted twice", "share / (1.0 + tl", "share / (1.0 + 2.0 * tl", "sinks"),
    in_kernel("sink of the first head", "tl.load(sink + head)", "tl.load(sink)", "own_sink"),
    in_kernel("sink in the LSE", "lse2 * LN_2", "(lse2 - tl.log2(share * mass)) * LN_2", "sinks"),
    in_kernel("LSE in base 2", "lse2 * LN_2", "lse2", "sinks"),
    in_kernel("weights that do not sum", "mass * fade + tl", "mass * fade + 1.01 * tl", "splits"),
    Defect("strides of a whole query", "op.py", "q.stride(0) // 8", "q.shape[2] * 64", "part_of_something"),
    Defect("takes another layout", "op.py", "pool.shape[2:] == (1, shapes.TOKEN_BYTES)", "True", "not_taken"),
    Defect("takes odd alignment", "op.py", "and q.data_ptr() % 16 == 0", "", "not_taken"),
    Defect(
        "a target of 188",
        "op.py",
        "target_ctas or _device_target(q, lists, scale)",
        "target_ctas or 188",
        "target_of_zero",
    ),
    Defect(
        "a split too many",
        "splits.py",
        "return -(-total // longest)",
        "return -(-total // longest) + 1",
        "",
        "test_splits.py",
    ),
    Defect(
        "over the target",
        "splits.py",
        "target_ctas // (rows",
        "-(-target_ctas // 1) // (1 + rows // 2",
        "",
        "test_splits.py",
    ),
    Defect(
        "a typo is the default",
        "splits.py",
        "if not (text.isascii() and text.isdecimal()):",
        "if not text.strip():",
        "",
        "test_splits.py",
    ),
    Defect("no reserve of shared memory", "splits.py", "+ sm.reserved", "", "", "test_splits.py"),
)


def turns_red(defect: Defect) -> bool:
    """Whether the tests fail in a copy with the defect. Raises RuntimeError where the defect cannot be planted, or nothing ran."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "kernels"
        shutil.copytree(KERNELS, copy, ignore=shutil.ignore_patterns("__pycache__", "gpu", "gates", ".*"))
        file = copy / OP / defect.file
        text = file.read_text()
        if text.count(defect.old) != 1:
            raise RuntimeError(
                f"{defect.name}: {defect.file} has {text.count(defect.old)} places of {defect.old!r}, not 1"
            )
        file.write_text(text.replace(defect.old, defect.new))
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            f"tests/{defect.suite}",
            "-k",
            defect.tests,
        ]
        environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(copy)}
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        raise RuntimeError(
            f"{defect.name}: pytest ended with {done.returncode}\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}"
        )
    return done.returncode != 0  # below 0: the defect wrote where it must not, and the process died of it


def main() -> int:
    chosen = [defect for defect in DEFECTS if all(word in defect.name for word in sys.argv[1:])]
    survived = []
    for defect in chosen:
        red = turns_red(defect)
        sys.stdout.write(f"{'caught  ' if red else 'SURVIVED'}  {defect.name}\n")
        sys.stdout.flush()
        survived += [] if red else [defect.name]
    sys.stdout.write(f"{len(chosen) - len(survived)} of {len(chosen)} planted defects caught\n")
    return 1 if survived or not chosen else 0


if __name__ == "__main__":
    raise SystemExit(main())

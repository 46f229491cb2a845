"""Compiles every variant of sparse decode for a GPU that need not be here, and holds what ptxas made of it to the budget.

    python gates/aot_gate.py            compile for sm_120a, compare with sparse_decode.json, fail on a difference or a broken budget
    python gates/aot_gate.py --write    the same, and write sparse_decode.json and the table in the op's README
    python gates/aot_gate.py --arch 90  another architecture: prints, compares with nothing, no budget

Runs on a machine without a GPU: Triton's own ptxas-blackwell, cuobjdump and nvdisasm do it (kernels.md 1).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

KERNELS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(KERNELS))
os.environ["TRITON_ALWAYS_COMPILE"] = "1"
os.environ.pop("TRITON_INTERPRET", None)

import triton  # noqa: E402  the path and the environment come first
from triton.backends.compiler import GPUTarget  # noqa: E402  the path and the environment come first
from triton.compiler import ASTSource  # noqa: E402  the path and the environment come first

from pd_kernels.sparse_decode import kernel, shapes, splits  # noqa: E402  the path and the environment come first

TABLE = KERNELS / "gates" / "sparse_decode.json"
README = KERNELS / "pd_kernels" / "sparse_decode" / "README.md"
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
POINTERS = {
    **dict.fromkeys(("q", "out"), "*bf16"),
    **dict.fromkeys(("cache", "cache_x"), "*u8"),
    **dict.fromkeys(("indices", "indices_x", "lengths", "lengths_x"), "*i32"),
    **dict.fromkeys(("part", "part_lse", "sink", "lse"), "*fp32"),
}
COUNTED = ("HMMA", "LDSM", "LDS", "STS", "BAR", "LDG")
BUDGET = {8: splits.Footprint(128, 24_576), 16: splits.Footprint(168, 32_768)}


@dataclass(frozen=True)
class Row:
    """What ptxas made of one variant. `stack`: bytes of local memory a thread; `spills`: bytes stored and loaded; then SASS instructions."""

    name: str
    registers: int
    shared: int
    stack: int
    spills: int
    hmma: int
    ldsm: int
    lds: int
    sts: int
    bar: int
    ldg: int
    ctas_per_sm: int


def compiled(function: Any, constants: dict[str, Any], arch: int, **options: Any) -> Any:
    """One variant, compiled with the types and alignments that the launcher gives it at run time."""
    kinds = {name: POINTERS.get(name, "fp32" if name == "scale" else "i32") for name in function.arg_names}
    aligned = (n for n, name in enumerate(function.arg_names) if kinds[name][0] == "*" and name not in kernel.UNALIGNED)
    attrs = {(n,): [["tt.divisibility", 16]] for n in aligned}
    signature = {name: "constexpr" if name in constants else kind for name, kind in kinds.items()}
    values = {(function.arg_names.index(name),): value for name, value in constants.items()}
    source = ASTSource(function, signature, values, attrs)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def variants(arch: int) -> Iterator[tuple[str, Any]]:
    """Every kernel that the op can launch, by name."""
    for form in shapes.SPLITS:
        constants = {"HAS_EXTRA": form.extra, "BLOCK_H": form.block_h, "BLOCK_N": shapes.BLOCK_N, "HOST": False}
        yield form.name, compiled(kernel.split_kernel, constants, arch, **shapes.compile_options(form.block_h))
    for merge in shapes.MERGES:
        constants = {"HAS_SINK": merge.sink, "BLOCK_S": merge.block_s, "BLOCK_D": shapes.MERGE_DIMS, "HOST": False}
        yield merge.name, compiled(kernel.merge_kernel, constants, arch, num_warps=shapes.WARPS)


def tool(name: str, *arguments: str) -> str:
    """Output of one of Triton's binary tools."""
    done = subprocess.run([TOOLS / name, *arguments], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def measured(name: str, built: Any, arch: int, folder: Path) -> Row:
    """Reads the resources and the instructions of a compiled kernel back from its cubin and its PTX."""
    cubin = folder / "k.cubin"
    cubin.write_bytes(built.asm["cubin"])
    used = tool("cuobjdump", "--dump-resource-usage", str(cubin))
    words = re.findall(
        r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z0-9]+)", tool("nvdisasm", "-c", str(cubin)), re.MULTILINE
    )
    counts = {f"{word.lower()}": words.count(word) for word in COUNTED}
    registers, stack = (int(re.search(rf"{key}:(\d+)", used)[1]) for key in ("REG", "STACK"))  # type: ignore[index]  # cuobjdump says both
    spills = words.count("LDL") + words.count("STL")
    shared = built.metadata.shared
    fits = splits.ctas_per_sm(splits.Footprint(registers, shared), splits.SM_120 if arch >= 120 else splits.SM_90)
    return Row(name, registers, shared, stack, spills, ctas_per_sm=fits, **counts)


def broken(row: Row) -> list[str]:
    """What of the budget a variant breaks, in words."""
    found = (
        [f"{row.name}: {row.stack} B of local memory, {row.spills} B spilled; wanted 0"]
        if row.stack or row.spills
        else []
    )
    for block_h, budget in BUDGET.items():
        if row.name.startswith(f"split-h{block_h}-"):
            if row.registers > budget.registers or row.shared > budget.shared:
                found.append(
                    f"{row.name}: {row.registers} registers, {row.shared} B shared; at most {budget.registers} and {budget.shared}"
                )
            if row.ldsm * 2 < row.hmma or not row.hmma:
                found.append(f"{row.name}: {row.hmma} HMMA and {row.ldsm} LDSM: operands no longer come by ldmatrix")
    return found


def table(rows: list[Row]) -> str:
    """The rows as Markdown."""
    columns = list(asdict(rows[0]))
    lines = [columns, ["---"] * len(columns), *([str(value) for value in asdict(row).values()] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def with_table(text: str, rows: list[Row]) -> str:
    """The README with the generated table in its place."""
    start, end = "<!-- generated by gates/aot_gate.py --write -->\n", "<!-- end -->"
    head, rest = text.split(start)
    return head + start + table(rows) + end + rest.split(end, 1)[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--arch", type=int, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measured(name, built, options.arch, Path(folder)) for name, built in variants(options.arch)]
    sys.stdout.write(table(rows))
    if options.arch != 120:
        return 0
    made = {"triton": triton.__version__, "arch": "sm_120a", "kernels": [asdict(row) for row in rows]}
    text = json.dumps(made, indent=1) + "\n"
    wrong = [problem for row in rows for problem in broken(row)]
    if options.write:
        TABLE.write_text(text)
        README.write_text(with_table(README.read_text(), rows))
    elif TABLE.read_text() != text or with_table(README.read_text(), rows) != README.read_text():
        wrong.append(
            f"{TABLE.name} or the README's table is not what this compiler makes: see the table above, then --write"
        )
    sys.stderr.write("".join(f"aot_gate: {problem}\n" for problem in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())

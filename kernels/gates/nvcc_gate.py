"""Gate of the CUDA kernels: compile them ahead of time, compare registers, spills and shared memory with a committed table.

    python kernels/gates/nvcc_gate.py            compare; exit 1 with what differs
    python kernels/gates/nvcc_gate.py --write    regenerate kernels/gates/index_bf16.json

CTAs per SM are computed from the limits of an sm_120 SM, not observed: nothing here runs on a GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from pd_kernels.index_bf16.build import find_nvcc, report
from pd_kernels.index_bf16.shapes import CTAS_PER_SM, THREADS
from pd_kernels.sparse_decode.splits import SM_120, Footprint, ctas_per_sm

TABLE = Path(__file__).with_name("index_bf16.json")
ARCHES = ("sm_120a", "sm_120f")
KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads.*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def parse(text: str) -> dict[str, dict[str, int]]:
    """Kernel name -> its figures, from `ptxas -v`."""
    found = {}
    for match in KERNEL.finditer(text):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        registers, smem = int(match["registers"]), int(shared[1]) if shared else 0
        found[match["name"]] = {
            "registers": registers,
            "shared_bytes": smem,
            "stack_bytes": int(match["stack"]),
            "spill_bytes": int(match["stores"]) + int(match["loads"]),
            "ctas_per_sm": ctas_per_sm(Footprint(registers, smem, THREADS), SM_120),
        }
    return found


def measured() -> dict[str, Any]:
    """The table as this machine's nvcc makes it."""
    nvcc = find_nvcc()
    with tempfile.TemporaryDirectory() as folder:
        return {"nvcc": nvcc.version, "kernels": {arch: parse(report(arch, nvcc, Path(folder))) for arch in ARCHES}}


def wrong(found: dict[str, Any], committed: dict[str, Any]) -> list[str]:
    """What is not as it must be: nothing spilled, the table unchanged, the constant that the launch uses true."""
    if found["nvcc"] != committed["nvcc"]:
        return [f"nvcc {found['nvcc']}; {TABLE.name} was made by {committed['nvcc']}: use that one, or --write and review"]
    lines = []
    for arch, kernels in found["kernels"].items():
        if set(kernels) != {"index_k_store_bf16", "index_logits_bf16"}:
            lines.append(f"{arch}: kernels {sorted(kernels)}")
        for name, row in kernels.items():
            if row["spill_bytes"] or row["stack_bytes"]:
                lines.append(f"{arch} {name}: {row['spill_bytes']} bytes spilled, {row['stack_bytes']} of stack; neither may be")
            was = committed["kernels"].get(arch, {}).get(name)
            if row != was:
                lines.append(f"{arch} {name}: {row}, {TABLE.name} has {was}")
        logits = kernels.get("index_logits_bf16", {}).get("ctas_per_sm")
        if logits != CTAS_PER_SM:
            lines.append(f"{arch}: {logits} CTAs of the logits kernel fit in an SM, shapes.CTAS_PER_SM says {CTAS_PER_SM}")
    return lines


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="regenerate the table")
    write = parser.parse_args().write
    try:
        found = measured()
    except RuntimeError as error:
        sys.stderr.write(f"nvcc gate: {error}\n")
        return 1
    if write:
        TABLE.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    lines = wrong(found, json.loads(TABLE.read_text(encoding="utf-8")))
    sys.stdout.write("".join(f"nvcc gate: {line}\n" for line in lines or [f"{len(ARCHES)} architectures as in {TABLE.name}"]))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

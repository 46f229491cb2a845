"""The one prepared command for a GPU: correctness on the device, then graph-replayed times with the L2 flushed, as JSON.

    cd kernels && python -m gpu.bench --to gpu.json              at most 8 minutes; exit 1 when a result is wrong
    cd kernels && python -m gpu.table gpu.json                 Markdown from it
    cd kernels && python -m gpu.bench --to dry.json --dry-run    the same walk on a CPU with tiny shapes; times nothing

sm_120: correctness and speed. sm_90 and others: correctness, and how time goes with the number of splits; not sm_120's speed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BUDGET_SECONDS = 480.0
ROWS = (1, 8, 16, 32, 48, 64, 65, 80, 96, 112, 128)
HEADS = (8, 16)
INDEX_ROWS, INDEX_KEYS = (1, 16, 64, 128), (2048, 8192)
PACKAGES = ("torch", "triton", "sglang", "flashinfer-python", "pd-kernels")


class OutOfTime(Exception):  # noqa: N818  not an error: what was measured is kept
    """The budget is used up."""


class Bench:
    """One run: what it found so far, and the time it may take."""

    def __init__(self, dry: bool, budget: float, clock: Callable[[], float] = time.monotonic) -> None:
        from gpu import timing  # noqa: PLC0415  after TRITON_INTERPRET is set

        self.dry, self._clock, self._end = dry, clock, clock() + budget
        self.device: timing.Device = timing.DryRun() if dry else timing.Gpu()
        self.found: dict[str, Any] = {"dry_run": dry, "missing": {}, "correctness": [], "times": [], "stopped": None}

    def step(self, what: str) -> None:
        """Say what comes next. Raises OutOfTime when the budget is used up."""
        left = self._end - self._clock()
        if left < 0:
            raise OutOfTime(what)
        sys.stderr.write(f"{left:5.0f} s left: {what}\n")

    def timed(self, told: dict[str, Any], call: Callable[[], object]) -> None:
        """One more time, with what it is of."""
        self.step(", ".join(str(value) for value in told.values()))
        times = self.device.time(call)
        self.found["times"].append({**told, "us": times and times.told()})


def machine(dry: bool) -> dict[str, Any]:
    """Device, driver, versions and the command."""
    import torch  # noqa: PLC0415  after TRITON_INTERPRET is set

    versions = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    told: dict[str, Any] = {"command": " ".join(["python -m gpu.bench", *sys.argv[1:]]), "versions": versions}
    if dry:
        return {**told, "device": {"name": "CPU, Triton's interpreter"}}
    import pynvml  # noqa: PLC0415  a GPU host's package

    pynvml.nvmlInit()
    properties = torch.cuda.get_device_properties(0)
    device = {
        "name": properties.name,
        "capability": f"sm_{properties.major}{properties.minor}",
        "sms": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "driver": pynvml.nvmlSystemGetDriverVersion(),
    }
    return {**told, "device": device}


def contenders(bench: Bench) -> Iterator[Any]:
    """The op with every target, then the baselines that can run; the others go into `missing`."""
    import torch  # noqa: PLC0415  after TRITON_INTERPRET is set
    from gpu import contenders as all_of_them  # noqa: PLC0415  after TRITON_INTERPRET is set

    for target in all_of_them.DRY_TARGETS if bench.dry else all_of_them.TARGETS:
        yield all_of_them.ours(target)
    for one in all_of_them.baselines(None if bench.dry else torch.cuda.get_device_capability()):
        if isinstance(one, all_of_them.Contender):
            yield one
        else:
            bench.found["missing"][one[0]] = one[1]


def check(bench: Bench, kernels: Any) -> None:
    """All correctness. A baseline that raises is missing from then on."""
    from gpu import checks, problems  # noqa: PLC0415  after TRITON_INTERPRET is set

    found, missing = bench.found["correctness"], bench.found["missing"]
    for given in checks.problems(bench.dry, problems.TINY if bench.dry else problems.LISTS, bench.device.name):
        wanted = checks.exact(given)
        for one in contenders(bench):
            bench.step(f"check {one.name}, {given.rows} rows, {given.heads} heads, {given.lists.name}")
            if one.name.startswith("target"):
                found.append(checks.sparse_decode(one, given, wanted))
            elif one.name not in missing:
                try:
                    found.append(checks.baseline(one, given, wanted))
                except (RuntimeError, ValueError, TypeError, ImportError) as error:
                    missing[one.name] = f"{type(error).__name__}: {error}"[:300]
    bench.step("check index_bf16")
    found.extend(checks.index(kernels, bench.device.name, bench.dry))


def time_decode(bench: Bench) -> None:
    """Every contender on every shape."""
    from gpu import problems  # noqa: PLC0415  after TRITON_INTERPRET is set

    for lists in problems.TINY if bench.dry else problems.LISTS:
        for heads in (3,) if bench.dry else HEADS:
            for rows in (2,) if bench.dry else ROWS:
                given = problems.problem(rows, heads, lists, context=64 if bench.dry else 4096, device=bench.device.name)
                for one in contenders(bench):
                    if one.name not in bench.found["missing"]:
                        shape = {"rows": rows, "heads": heads, "lists": lists.name, "key_bytes": given.key_bytes}
                        bench.timed({"op": "sparse_decode", "contender": one.name, **shape}, one.prepare(given))


def time_index(bench: Bench, kernels: Any) -> None:
    """The logits kernel over rows and context, with the bytes of the keys it must read."""
    import torch  # noqa: PLC0415  after TRITON_INTERPRET is set

    from pd_kernels.index_bf16 import cases, shapes  # noqa: PLC0415  after TRITON_INTERPRET is set

    sms = 1 if bench.dry else torch.cuda.get_device_properties(0).multi_processor_count
    for rows in (2,) if bench.dry else INDEX_ROWS:
        for keys in (70,) if bench.dry else INDEX_KEYS:
            given = cases.problem([keys] * rows, keys)
            parts = (given.q, given.weights, given.pages, given.lengths, given.table)
            q, weights, pages, lengths, table = (part.to(bench.device.name) for part in parts)
            chunks = shapes.choose_chunks(rows, keys, sms * shapes.CTAS_PER_SM)

            def call(held: tuple[Any, ...] = (q, weights, pages, lengths, table), columns: int = keys, chunks: int = chunks) -> object:
                return kernels.logits(*held, columns=columns, chunks=chunks)

            told = {"contender": f"{chunks} chunks", "rows": rows, "keys": keys, "key_bytes": rows * keys * shapes.KEY_BYTES}
            bench.timed({"op": "index_logits_bf16", **told}, call)


def run(bench: Bench) -> None:
    """The whole walk; stops where the time is up."""
    import torch  # noqa: PLC0415  after TRITON_INTERPRET is set
    from gpu import checks  # noqa: PLC0415  after TRITON_INTERPRET is set

    with tempfile.TemporaryDirectory() as folder:
        try:
            bench.step("build the index kernels")
            kernels = checks.index_library(Path(folder), None if bench.dry else torch.device("cuda", 0))
            check(bench, kernels)
            bench.step("copy bandwidth")
            bench.found["copy_bytes_per_second"] = bench.device.copy_rate()
            empty = bench.device.empty()
            bench.found["empty_us"] = empty and empty.told()
            time_index(bench, kernels)
            time_decode(bench)
        except OutOfTime as stopped:
            bench.found["stopped"] = f"out of time before: {stopped}"


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="the JSON file")
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, in Triton's interpreter, with tiny shapes")
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, help="seconds (%(default)s)")
    asked = parser.parse_args(arguments)
    if asked.dry_run:
        os.environ["TRITON_INTERPRET"] = "1"
    bench = Bench(asked.dry_run, asked.budget)
    run(bench)
    asked.to.write_text(json.dumps({**machine(asked.dry_run), **bench.found}, indent=1) + "\n", encoding="utf-8")
    wrong = [row for row in bench.found["correctness"] if not row["ok"]]
    sys.stderr.write("".join(f"WRONG: {row}\n" for row in wrong))
    return int(bool(wrong) or not bench.found["correctness"])


if __name__ == "__main__":
    sys.exit(main())

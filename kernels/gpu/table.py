"""Markdown from a result of gpu.bench: cd kernels && python -m gpu.table gpu.json. Every figure carries the command and the device."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def header(found: dict[str, Any]) -> Iterator[str]:
    """What ran where, and what is not in the tables."""
    device, versions = found["device"], found["versions"]
    yield f"`{found['command']}` on {device['name']} ({device['capability']}, {device['sms']} SMs, driver {device['driver']});"
    yield ", ".join(f"{name} {version}" for name, version in versions.items() if version) + "."
    yield ""
    empty = found["empty_us"]
    yield f"Copy bandwidth in the same process: {found['copy_bytes_per_second'] / 1e12:.3f} TB/s. An empty graph: {empty['median']:.1f} µs,"
    yield f"which is in every time. Median (p10-p90) of {empty['replays']} graph replays, the L2 flushed before each; µs."
    if device["capability"] != "sm_120":
        yield f"**{device['capability']}, not sm_120: how time goes with splits, not the speed of the target GPU.**"
    yield from (f"Not run: {name}: {why}." for name, why in found["missing"].items())
    if found["stopped"]:
        yield f"Stopped {found['stopped']}."
    yield ""


def correctness(rows: list[Row]) -> Iterator[str]:
    """The worst of each op over its cases."""
    yield "| op | cases | worst error over its bound | wrong |"
    yield "|---|---|---|---|"
    for op in dict.fromkeys(row["op"] for row in rows):
        mine = [row for row in rows if row["op"] == op]
        yield f"| {op} | {len(mine)} | {max(row['worst_over_bound'] for row in mine):.3f} | {sum(not row['ok'] for row in mine)} |"
    yield ""


def _cell(row: Row | None) -> str:
    return f"{row['us']['median']:.1f} ({row['us']['p10']:.1f}-{row['us']['p90']:.1f})" if row else "-"


def times(rows: list[Row], rate: float) -> Iterator[str]:
    """A table for each shape: rows down, contenders across, the floor first."""
    decode = [row for row in rows if row["op"] == "sparse_decode"]
    for heads, lists in dict.fromkeys((row["heads"], row["lists"]) for row in decode):
        mine = [row for row in decode if (row["heads"], row["lists"]) == (heads, lists)]
        names = list(dict.fromkeys(row["contender"] for row in mine))
        yield f"### sparse_decode, {heads} heads, {lists} keys"
        yield ""
        yield "| rows | floor | " + " | ".join(names) + " |"
        yield "|---|---|" + "---|" * len(names)
        for count in dict.fromkeys(row["rows"] for row in mine):
            here = {row["contender"]: row for row in mine if row["rows"] == count}
            floor = next(iter(here.values()))["key_bytes"] / rate * 1e6
            yield f"| {count} | {floor:.1f} | " + " | ".join(_cell(here.get(name)) for name in names) + " |"
        yield ""


def index(rows: list[Row], rate: float) -> Iterator[str]:
    """The logits kernel."""
    yield "### index_logits_bf16"
    yield ""
    yield "| rows | keys a row | floor | µs |"
    yield "|---|---|---|---|"
    for row in rows:
        if row["op"] == "index_logits_bf16":
            yield f"| {row['rows']} | {row['keys']} | {row['key_bytes'] / rate * 1e6:.1f} | {_cell(row)} |"
    yield ""


def page(found: dict[str, Any]) -> str:
    """All of it. ValueError for a dry run: an interpreter's walk is no measurement."""
    if found["dry_run"]:
        raise ValueError("this is a dry run on a CPU: there is nothing in it to make a table from")
    if "copy_bytes_per_second" not in found:
        raise ValueError(f"nothing was timed: {found['stopped']}")
    rate = found["copy_bytes_per_second"]
    lines = [*header(found), *correctness(found["correctness"]), *times(found["times"], rate), *index(found["times"], rate)]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))

"""The wave model as a picture: CTAs, longest chain and predicted time over the rows of a launch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pd_kernels.model.waves import FLASHINFER_DECODE_ROWS, POLICIES, Assumptions, Launch, Shape, launches

COLOURS = {"unset": "#c7c7c7", "188": "#d62728", "376": "#1f77b4", "512": "#2ca02c", "752": "#9467bd", "flashinfer": "#ff7f0e"}
PANELS: tuple[tuple[str, Callable[[Launch], float]], ...] = (
    ("CTAs", lambda one: one.ctas),
    ("keys on the longest chain", lambda one: one.chain_keys),
    ("predicted µs (assumed, not measured)", lambda one: one.us),
)
HEADS = (8, 16)
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "waves", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}


def draw(to: Path, given: Assumptions) -> None:
    """Write the picture; the suffix of `to` says the format."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 10.5), layout="constrained")
        grid = figure.subplots(len(PANELS), len(HEADS), sharex=True, sharey="row")
        for column, heads in enumerate(HEADS):
            shape = Shape(heads)
            found = {name: launches(name, shape, given) for name in (*POLICIES, "flashinfer")}
            grid[0][column].set_title(f"{heads} heads a rank, {shape.topk} + {shape.extra_topk} keys, {found['unset'][0].slots} slots")
            for row, (label, value) in enumerate(PANELS):
                _panel(grid[row][column], found, value)
                grid[row][0].set_ylabel(label)
            _slots(grid[0][column], found["unset"][0].slots)
            grid[0][column].set_ylim(0, 820)
            grid[1][column].set_yscale("log", base=2)
            grid[1][column].yaxis.set_major_formatter(lambda number, _: f"{number:.0f}")
            floor = found["unset"]
            grid[2][column].plot([one.rows for one in floor], [one.floor_us for one in floor], "k:", label="keys at full bandwidth (floor)")
            grid[2][column].set_xlabel("rows (concurrent requests)")
            grid[2][column].set_ylim(0, 70)
        handles, labels = grid[2][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4, frameon=False)
        figure.savefig(to, metadata={"Date": None} if to.suffix == ".svg" else None, dpi=110)


def _panel(axes: Axes, found: dict[str, list[Launch]], value: Callable[[Launch], float]) -> None:
    for name, series in found.items():
        target = {"unset": "unset: the device's own", "flashinfer": "FlashInfer 0.7.2"}.get(name, f"target {name}")
        width, style = {"unset": (5.0, "-"), "flashinfer": (1.3, "--")}.get(name, (1.5, "-"))
        axes.plot([one.rows for one in series], [value(one) for one in series], style, color=COLOURS[name], linewidth=width, label=target)
    axes.axvline(FLASHINFER_DECODE_ROWS + 0.5, color="0.7", linewidth=0.8, zorder=0)
    axes.set_xlim(1, 128)
    axes.set_xticks([1, 16, 32, 48, 64, 80, 96, 112, 128])


def _slots(axes: Axes, slots: int) -> None:
    axes.axhline(slots, color="k", linewidth=0.8, linestyle=":")
    axes.annotate(f"one wave: {slots}", (126, slots), xytext=(0, 3), textcoords="offset points", ha="right", va="bottom", fontsize=8)

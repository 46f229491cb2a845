"""Tables for people, drawn with rich on the controller."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any


def table(told: Mapping[str, Any], width: int = 150) -> str:
    """The truth table as text: instances, knobs, findings."""
    from rich.console import Console  # noqa: PLC0415  the brain also runs where there is none
    from rich.table import Table  # noqa: PLC0415  as above

    out = Console(file=io.StringIO(), width=width, color_system=None)
    out.print(f"generation {told['generation']}")
    grid = Table("instance", "unit", "since", "crashes", "rung reached", "load before", "tokens moved", "evidence")
    for row in told["rows"]:
        moved = "" if row["moved"] is None else f"+{row['moved']:.0f}"
        mark = row["reached"] if row["state"] == "READY" else f"{row['reached']} ({row['state']})"
        grid.add_row(row["instance"], row["unit"], row["since"], str(row["n_restarts"]), mark, row["load"], moved, row["why"])
    out.print(grid)
    names = [row["instance"] for row in told["rows"]]
    knobs = Table("knob (value, proven in)", *names)
    for row in told["knobs"]:
        knobs.add_row(row["knob"], *[row["cells"].get(name, "") for name in names])
    out.print(knobs)
    for finding in told["findings"]:
        out.print(f"{'FAILS' if finding['fails'] else 'note '} {finding['instance'] or 'set'}: {finding['text']}", soft_wrap=True)
    text = out.file.getvalue() if isinstance(out.file, io.StringIO) else ""
    return text.rstrip()

"""The processes of an instance as a table for people, read from /proc."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .observe import PROC, cmdline, stat

COLUMNS = ("PID", "PPID", "STATE", "THREADS", "RSS MiB", "STARTED (s after boot)", "CPU s", "WCHAN", "COMMAND")


def table(pids: Sequence[int]) -> str:
    """One line a process; one that ended meanwhile is left out."""
    rows = [COLUMNS, *(row for pid in pids if (row := _row(pid)))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(COLUMNS) - 1)]
    return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in rows)


def _row(pid: int) -> tuple[str, ...] | None:
    try:
        fields = stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    # proc(5): state is the 3rd field, then ppid, ... utime (14th), stime, ... threads (20th), starttime (22nd), rss (24th)
    state, ppid, threads = fields[0], fields[1], fields[17]
    cpu = (int(fields[11]) + int(fields[12])) / tick
    rss = int(fields[21]) * page // 2**20
    return (str(pid), ppid, state, threads, str(rss), f"{int(fields[19]) / tick:.1f}", f"{cpu:.1f}", _wchan(pid), cmdline(pid)[:300])


def _wchan(pid: int) -> str:
    try:
        return (PROC / str(pid) / "wchan").read_text().strip() or "-"
    except OSError:
        return "-"

"""Shared memory of killed processes. A process that is killed unlinks nothing: SGLang's own segments pile up in /dev/shm until it is full
and the next scheduler dies of SIGBUS (srt/utils/stale_shm_cleanup.py, which runs in its CI only).

What an instance had open or mapped right before it was killed, and nobody has any more, is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from . import observe

SHM = Path("/dev/shm")


def used_by(pids: Iterable[int], folder: Path = SHM) -> frozenset[Path]:
    """The files below `folder` that these processes have open or mapped; one that is gone meanwhile has none."""
    found: set[Path] = set()
    for pid in pids:
        proc = observe.PROC / str(pid)
        try:
            mapped = [line.split(None, 5)[5] for line in (proc / "maps").read_text().splitlines() if f"{folder}/" in line]
            found |= {Path(path) for path in mapped} | {fd.readlink() for fd in (proc / "fd").iterdir()}
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone; or out of root's reach (a container's first process), and then no reader of a user's 0600 segment either
    return frozenset(path for path in found if path.parent == folder)


def clear(had: Iterable[Path], folder: Path = SHM) -> int:
    """Unlink those of the files `had` that no process uses any more; how many bytes that gave back."""
    everyone = (int(entry.name) for entry in observe.PROC.iterdir() if entry.name.isdigit())
    freed = 0
    for path in set(had) - used_by(everyone, folder):
        if path.is_file():
            freed += path.stat().st_blocks * 512
            path.unlink()
    return freed

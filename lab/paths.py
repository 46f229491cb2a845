"""Where the lab keeps its things, and the locks around them.

Shared by all checkouts of the machine (root only): `CACHE`. Of this checkout: `STATE`, ignored by git.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
STATE = REPO / ".lab"
CACHE = Path("/var/cache/pdstack-lab")
IMAGES = CACHE / "images"
MACHINES = CACHE / "machines"
LOCKS = CACHE / "locks"
UV_CACHE = CACHE / "uv"
NETWORK = CACHE / "network.json"

CHECKOUT = hashlib.sha256(str(REPO).encode()).hexdigest()[:8]
"""Keeps equal machine names of two checkouts apart."""


def prepare() -> None:
    """Make the directories; `CACHE` holds root file systems, so only root may enter it."""
    for directory in (CACHE, IMAGES, MACHINES, LOCKS, UV_CACHE, STATE):
        directory.mkdir(parents=True, exist_ok=True)
    for directory in (CACHE, STATE):
        directory.chmod(0o700)


@contextlib.contextmanager
def locked(name: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold the exclusive lock `name`; the kernel lets go of it when the process dies.

    With `wait=False` yields False at once where somebody else holds it.
    """
    path = LOCKS / f"{name}.lock"
    while True:
        with path.open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            if _is_at(path, handle.fileno()):
                yield True
                return
        # somebody removed the file together with its machine while we waited: what we hold is nobody's lock


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def unlock_for_good(name: str) -> None:
    """Remove the lock file `name`; the caller holds it, and what it guards is gone."""
    (LOCKS / f"{name}.lock").unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Take `path` out of use in one step; the caller removes what is returned, without a lock (it may be 10 GB)."""
    aside = path.with_name(f".old-{path.name}.{os.getpid()}")
    if path.exists():
        path.rename(aside)
    return aside


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Replace `path` by `data` in one step, on disk before it is seen."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as handle:
        json.dump(data, handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in `path`, None where there is no such file."""
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    if not isinstance(data, dict):
        raise TypeError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data

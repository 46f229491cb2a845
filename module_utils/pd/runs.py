"""The id of one run of a playbook: it says which process on which machine it is, so that the same controller can tell that it died."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

from .lock import boot_id
from .observe import start_time


def new(pid: int | None = None) -> str:
    """The id of the run whose main process is `pid` (by default the parent: Ansible runs each task in a child of its own)."""
    main = os.getppid() if pid is None else pid
    return f"{socket.gethostname()}:{boot_id()[:8]}:{main}:{start_time(main) or '0'}"


def folder(root: Path, run: str) -> Path:
    """Where a run leaves what it has to show, on the controller: evidence and picture. Not made here; it sorts by time."""
    return root / "runs" / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{run.split(':')[2]}"


def is_dead_here(run: str) -> bool:
    """Whether a run was of this machine and its process is gone. False for another machine's: that cannot be seen from here."""
    host, boot, pid, start = (run.split(":") + [""] * 4)[:4]
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return boot != boot_id()[:8] or (start_time(int(pid)) or "0") != start

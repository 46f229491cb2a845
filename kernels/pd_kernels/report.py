"""What a process says of its kernels: which, where they were put in, and how often they were called.

One JSON file a process, `DIRECTORY/<pid>.json`, with the start time of the process, so that a recycled pid is not taken for it; the
scheduler's also in `/server_info` (sglang-facts 7.3). No file: the plugin did not run, or what it wanted was refused.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import __version__

VARIABLE = "PD_KERNELS_REPORT"
"""The directory; unset: no file is written, as in a test or an engine started by hand."""
EVERY_SECONDS = 5.0
"""Counts are on disk at most this late; the first of each kind at once."""


def start_time(pid: int) -> str | None:
    """When a process started, in clock ticks since the boot (field 22 of /proc/PID/stat); None when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


class Report:
    """The report of this process. Written whole or not at all; a scheduler's threads may count at the same time."""

    def __init__(self, directory: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._clock = clock
        self._lock = threading.RLock()
        self._written = clock()
        self._kernels: dict[str, dict[str, Any]] = {}
        self._pid = os.getpid()
        self._start = start_time(self._pid)

    def add(self, name: str, knobs: Mapping[str, Any], hooks: Mapping[str, bool]) -> None:
        """Kernel `name` is in. `hooks`: target -> whether SGLang has it now; empty in a process that is no scheduler."""
        self._kernels[name] = {"knobs": dict(knobs), "hooks": dict(hooks), "calls": {}}

    def count(self, name: str, what: str) -> None:
        """One more call of `what` in kernel `name`."""
        with self._lock:
            calls = self._kernels[name]["calls"]
            calls[what] = calls.get(what, 0) + 1
            if calls[what] == 1 or self._clock() - self._written >= EVERY_SECONDS:
                self._write()

    def told(self) -> dict[str, Any]:
        """The report, as values that JSON and msgpack carry."""
        with self._lock:
            kernels = {name: {key: dict(value) for key, value in told.items()} for name, told in self._kernels.items()}
        return {"version": __version__, "pid": self._pid, "start": self._start, "kernels": kernels}

    def publish(self) -> None:
        """Write the file, and remove those of processes that are gone. Raises OSError."""
        if self._directory is None:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        for file in self._directory.glob("*.json"):
            if file.stem.isdigit() and start_time(int(file.stem)) is None:
                file.unlink(missing_ok=True)
        with self._lock:
            self._write()

    def _write(self) -> None:
        if self._directory is None:
            return
        self._written = self._clock()
        part = self._directory / f".{self._pid}.part"
        part.write_text(json.dumps(self.told()) + "\n")
        part.replace(self._directory / f"{self._pid}.json")

"""What is not ours but decides how the engines run: recorded with every generation, so that "what changed" covers it (design 2)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def _line(path: str) -> str | None:
    try:
        return Path(path).read_text().strip().splitlines()[0]
    except (OSError, IndexError):
        return None


def facts() -> dict[str, Any]:
    """Kernel, its command line, the NVIDIA module and the operating system; None where the machine has no such thing."""
    system = dict(line.partition("=")[::2] for line in (Path("/etc/os-release").read_text().splitlines()) if "=" in line)
    return {
        "hostname": os.uname().nodename,
        "kernel": os.uname().release,
        "cmdline": _line("/proc/cmdline"),
        "nvidia": _line("/proc/driver/nvidia/version"),
        "os": system.get("PRETTY_NAME", "").strip('"'),
    }

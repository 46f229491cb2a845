"""Where a result comes from: when, on what machine, with which versions; and how it is written. Nothing that names the machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lab

ROOT = Path(__file__).resolve().parent.parent
ENGINE = "import importlib.metadata as m, json; print(json.dumps({n: m.version(n) for n in ('sglang', 'nixl') if m.packages_distributions().get(n)}))"
ROUTER = "import importlib.metadata as m, json; print(json.dumps({'sglang-router': m.version('sglang-router')}))"


def here(command: str) -> dict[str, Any]:
    """The command, the moment, the machine's cores and memory, and the revision of the project."""
    described = subprocess.run(
        ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=False
    )
    return {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": described.stdout.strip(),
        "machine": {
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "kernel": platform.release().split("-")[0],
            "gpu": None,
        },
    }


def versions(machine: lab.Machine) -> dict[str, str]:
    """What ran: on the controller, and in the release that the engines ran from."""
    release = machine.exec("python3 -c 'import json; print(json.load(open(\"/etc/sglang-pd/current/manifest.json\"))[\"release\"])'").stdout.strip()
    found = {"python": platform.python_version(), "ansible-core": version("ansible-core")}
    for venv, code in (("engine", ENGINE), ("router", ROUTER)):
        found |= json.loads(machine.exec([f"/opt/sglang-pd/releases/{release}/{venv}/bin/python", "-c", code]).stdout)
    return found


def write(path: Path, told: dict[str, Any]) -> None:
    """A result as a file; its folder is made."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(told, indent=1) + "\n")

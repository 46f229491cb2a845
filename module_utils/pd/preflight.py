"""What the machine itself says against a restart. I/O at the edge, each check returns its problems."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from .members import RELEASES
from .observe import PROC, cmdline
from .ports import Port
from .problem import Problem

STAND_INS = "pdstack-lab-standins"
LISTEN = "0A"
OURS = ("sglang-engine@", "sglang-router@")


def sysctl(name: str) -> str:
    """A net.ipv4 sysctl as text."""
    return (PROC / "sys/net/ipv4" / name).read_text().strip()


def model(path: Path, where: str) -> list[Problem]:
    """The model directory must hold a config.json: SGLang needs minutes to find out that it does not."""
    if (path / "config.json").is_file():
        return []
    found = f"{path} has no config.json" if path.is_dir() else f"{path} is not a directory on the machine"
    return [Problem(where, "model", found, "model_dir and model_name of a model that is there (or model_source: package)")]


def release(release_id: str, root: Path = Path(RELEASES)) -> list[Problem]:
    """A release without its release.json is half made."""
    marker = root / release_id / "release.json"
    if marker.is_file():
        return []
    return [Problem(str(marker), "release", "missing: the release was never finished, or was pruned", "run site.yml, its `runtime` role makes it")]


def flags(asked: Iterable[Mapping[str, str]], release_id: str, root: Path = Path(RELEASES)) -> list[Problem]:
    """Flags that this release's SGLang does not know, and values that are none of a flag's choices.

    The release wrote its parser's flags when it was built; one without that list is not judged. `asked`: flag, value, where.
    """
    path = root / release_id / "flags.json"
    known: dict[str, list[str] | None] = json.loads(path.read_text()) if path.is_file() else {}
    found = []
    for one in asked if known else ():
        flag, value = one["flag"], one["value"]
        choices = known.get(flag)
        if flag not in known:
            near = difflib.get_close_matches(flag, known, 1)
            found.append(Problem(one["where"], flag, "a flag that this SGLang does not have", near[0] if near else "leave the line out"))
        elif choices and value not in choices:
            found.append(Problem(one["where"], flag, value, " or ".join(choices)))
    return found


def stand_ins(release_id: str, root: Path = Path(RELEASES)) -> list[Problem]:
    """The lab's CPU stand-ins in the release of a machine that computes on GPUs: its kernels would be missing."""
    path = root / release_id / "release.json"
    packages = json.loads(path.read_text()).get("packages", {}).get("engine", {}) if path.is_file() else {}
    if STAND_INS not in packages:
        return []
    return [Problem(str(path), "engine_device", f"cuda, and the release contains {STAND_INS}", "a release without it: runtime_packages")]


def strangers(ports: Iterable[Port]) -> list[Problem]:
    """Ports that a process outside our units listens on; found by the socket's inode, never by a process's name."""
    wanted = {port.number: port for port in ports}
    held = [(number, inode) for number, inode in listening() if number in wanted]
    if not held:
        return []
    owners = _owners({inode for _, inode in held})
    found = []
    for number, inode in held:
        pid = owners.get(inode)
        if pid is not None and any(unit in _cgroup(pid) for unit in OURS):
            continue
        who = f"process {pid} ({cmdline(pid)[:60]})" if pid else "a process that cannot be seen"
        port = wanted[number]
        found.append(Problem(port.where, port.name, f"port {number} is held by {who}, not by one of our units", f"stop it, or another {port.name}"))
    return found


def listening() -> list[tuple[int, str]]:
    """(port, inode) of every listening TCP socket."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                found.append((int(fields[1].rpartition(":")[2], 16), fields[9]))
    return found


def _owners(inodes: set[str]) -> dict[str, int]:
    links = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, int] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            descriptors = list((entry / "fd").iterdir())
        except OSError:
            continue
        for descriptor in descriptors:
            inode = links.get(_link(descriptor))
            if inode is not None:
                found[inode] = int(entry.name)
    return found


def _link(path: Path) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115  a socket's link has no path behind it
    except OSError:
        return ""


def _cgroup(pid: int) -> str:
    try:
        return (PROC / str(pid) / "cgroup").read_text()
    except OSError:
        return ""

#!/usr/bin/env python3
"""Build one release: the venvs of engine and router, from hashed locks, in a directory of its own. Standard library only.

`release.json` is written last. A directory without it is half made: it is removed and built anew, and nothing ever starts from it.
Venvs are not relocatable, so they are built where they will be used; what makes a release whole is that file, not a rename.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

NEEDED_BYTES = {"copy": 14 << 30, "hardlink": 14 << 30, "clone": 14 << 30, "symlink": 1 << 30}
"""Free space asked for before anything is written: the CUDA wheels of 0.5.23 unpack to about 11 GB (lab-facts)."""
MARK = "release.json"


def main(argv: Sequence[str] | None = None) -> None:
    """Build, or say that it is there; then prune. Exits with a message that names what is missing."""
    told = parse(argv)
    release = told.root / told.id
    if (release / MARK).exists():
        print(f"{release} is there")
        return
    enough_space(told.root, told.link_mode, told.need_bytes)
    if release.exists():
        say(f"removing what a broken build left in {release}")
        shutil.rmtree(release)
    release.mkdir(parents=True)
    start = time.monotonic()
    uv = Uv(told.uv, told.cache, told.link_mode)
    for name, lock in (("engine", told.engine_lock), ("router", told.router_lock)):
        uv.venv(release / name, told.python)
        uv.sync(release / name, lock)
    for package in told.package:
        uv.add(release / "engine", package)
    mark(release, told, time.monotonic() - start)
    gone = prune(told.root, told.keep, told.id)
    say(f"done in {time.monotonic() - start:.0f} s" + (f", pruned {', '.join(gone)}" if gone else ""))


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--id", required=True)
    parser.add_argument("--uv", type=Path, required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--engine-lock", type=Path, required=True)
    parser.add_argument("--router-lock", type=Path, required=True)
    parser.add_argument("--package", type=Path, action="append", default=[], help="put into the engine's venv without its dependencies")
    parser.add_argument("--link-mode", choices=sorted(NEEDED_BYTES), default="hardlink")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--keep", type=int, default=3, help="releases kept beside this one and those that run")
    parser.add_argument("--need-bytes", type=int, help="free space to ask for, instead of what the link mode needs")
    return parser.parse_args(argv)


def say(text: str) -> None:
    """One line of progress; whoever watches the job shows the last one."""
    print(text, flush=True)


def enough_space(root: Path, link_mode: str, need: int | None) -> None:
    """Refuse to begin what cannot be finished."""
    root.mkdir(parents=True, exist_ok=True)
    needed = NEEDED_BYTES[link_mode] if need is None else need
    free = shutil.disk_usage(root).free
    if free < needed:
        sys.exit(f"not enough disk for the release: {root} has {free / 2**30:.1f} GiB free, {needed / 2**30:.1f} GiB are needed; nothing was touched")


class Uv:
    """uv with the settings of this build."""

    def __init__(self, uv: Path, cache: Path, link_mode: str) -> None:
        self.uv = uv
        self.env = {**os.environ, "UV_CACHE_DIR": str(cache), "UV_LINK_MODE": link_mode, "UV_NO_PROGRESS": "1", "HOME": "/root"}

    def venv(self, target: Path, python: str) -> None:
        """An empty venv."""
        self._run("venv", "--quiet", "--python", python, str(target))

    def sync(self, target: Path, lock: Path) -> None:
        """Exactly what the lock says, each file by its hash. Bytecode is compiled here: the service user cannot write it later."""
        say(f"{target.name}: installing {lock.name}")
        self._run("pip", "sync", "--python", str(target / "bin/python"), "--require-hashes", "--compile-bytecode", str(lock))

    def add(self, target: Path, package: Path) -> None:
        """One package of the project on top."""
        say(f"{target.name}: adding {package.name}")
        self._run("pip", "install", "--python", str(target / "bin/python"), "--no-deps", "--compile-bytecode", str(package))

    def _run(self, *argv: str) -> None:
        done = subprocess.run([str(self.uv), *argv], env=self.env, check=False)
        if done.returncode:
            sys.exit(f"`uv {' '.join(argv)}` ended with {done.returncode}")


def mark(release: Path, told: argparse.Namespace, seconds: float) -> None:
    """Write release.json, on the disk before it has its name."""
    facts = {
        "id": told.id,
        "seconds": round(seconds, 1),
        "python": told.python,
        "locks": {lock.name: hashlib.sha256(lock.read_bytes()).hexdigest() for lock in (told.engine_lock, told.router_lock)},
        "packages": {name: versions(release / name) for name in ("engine", "router")},
    }
    partial = release / f".{MARK}"
    with partial.open("w") as file:
        json.dump(facts, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(release / MARK)


def versions(venv: Path) -> dict[str, str]:
    """Distribution -> version, as the venv's own interpreter sees them."""
    ask = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    told = subprocess.run([venv / "bin/python", "-c", ask], capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(told.stdout)
    return found


def prune(root: Path, keep: int, current: str) -> list[str]:
    """Remove old releases; never this one, never one that a process runs from."""
    used = running(root)
    marked = sorted(root.glob(f"*/{MARK}"), key=lambda m: m.stat().st_mtime, reverse=True)
    old = [m.parent for m in marked if m.parent.name != current][keep:]
    gone = [release for release in old if release.name not in used]
    for release in gone:
        (release / MARK).unlink()  # first: a release that is going is not whole any more
        shutil.rmtree(release)
    return [release.name for release in gone]


def running(root: Path) -> set[str]:
    """Releases that some process has on its command line or in its environment's PD_PYTHON."""
    prefix = f"{root}/"
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") + (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for word in words:
            text = word.decode(errors="replace").removeprefix("PD_PYTHON=")
            if text.startswith(prefix):
                found.add(text.removeprefix(prefix).split("/")[0])
    return found


if __name__ == "__main__":
    main()

"""The generations on the machine's disk: written whole, switched in one step, never edited, pruned but for what may be needed."""

from __future__ import annotations

import grp
import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import envfile
from .generation import CURRENT, GENERATIONS, digest, identity

GROUP = "sglang"
KEEP = 20


def write(generation: str, files: Mapping[str, str], manifest: Mapping[str, Any], root: Path = Path(GENERATIONS)) -> bool:
    """Write a generation unless it is there; True when it was written. A half-written one never gets its name.

    Raises OSError, and LookupError when the service group does not exist yet.
    """
    target = root / generation
    if (target / "manifest.json").exists():
        return False
    gid = grp.getgrnam(GROUP).gr_gid
    root.mkdir(parents=True, exist_ok=True)
    partial = root / f".{generation}.{os.getpid()}"
    shutil.rmtree(partial, ignore_errors=True)
    for path, text in files.items():
        _file(partial / path, text, gid)
    _file(partial / "manifest.json", json.dumps(manifest, indent=1, sort_keys=True) + "\n", gid)
    for folder in [partial, *(f for f in partial.iterdir() if f.is_dir())]:
        os.chown(folder, 0, gid)
        folder.chmod(0o750)
    if target.exists():  # without a manifest: what a crash left
        shutil.rmtree(target)
    partial.rename(target)
    _sync(root)
    return True


def _file(path: Path, text: str, gid: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="surrogateescape") as file:
        os.fchmod(file.fileno(), 0o640)
        os.fchown(file.fileno(), 0, gid)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def switch(generation: str, root: Path = Path(GENERATIONS), current: Path = Path(CURRENT)) -> bool:
    """Point `current` at a generation; True when it pointed elsewhere. Raises FileNotFoundError when that is not a whole generation."""
    if not (root / generation / "manifest.json").exists():
        raise FileNotFoundError(f"{root / generation} is not a whole generation")
    if current.is_symlink() and current.readlink().name == generation:
        return False
    fresh = current.with_name(f".current.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(f"{root.name}/{generation}")
    fresh.replace(current)
    _sync(current.parent)
    return True


def changed_by_hand(generation: str, manifest: Mapping[str, Any], root: Path = Path(GENERATIONS)) -> list[str]:
    """Files of a generation that are not what was written, below its directory; a manifest that was itself changed is told as such.

    The directory bears the digest of what the processes start from, so nothing that matters can be changed without being seen here.
    """
    wrong = []
    found: dict[str, Any] = {}
    for name, told in manifest["instances"].items():
        texts = {file: _text(root / generation / name / file) for file in ("env", "config.yaml", "generation.env")}
        wanted = {**told["sha256"], "generation.env": _sha256(envfile.render(identity(name, told["python"], generation)))}
        wrong += [f"{name}/{file}" for file, text in texts.items() if text is None or _sha256(text) != wanted[file]]
        starts = {key: told[key] for key in ("role", "machine", "unit", "python")}
        found[name] = starts | {file: texts[file] for file in ("env", "config.yaml")}
    if not wrong and digest(found, manifest["release"], manifest["nonce"]) != generation:
        wrong = ["manifest.json"]
    return wrong


def _text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def to_prune(by_age: Sequence[str], good: Sequence[str], keep: Sequence[str]) -> list[str]:
    """Which generations may go: not the last 20, not the last 20 that were marked good, never one of `keep`. Pure.

    `by_age` is oldest first.
    """
    kept = {*by_age[-KEEP:], *[g for g in by_age if g in good][-KEEP:], *keep}
    return [g for g in by_age if g not in kept]


def prune(good: Sequence[str], keep: Sequence[str], root: Path = Path(GENERATIONS)) -> list[str]:
    """Remove what `to_prune` names; the ids that went."""
    by_age = [f.name for f in sorted(root.iterdir(), key=lambda f: f.stat().st_mtime) if not f.name.startswith(".")]
    gone = to_prune(by_age, good, keep)
    for generation in gone:
        shutil.rmtree(root / generation)
    return gone

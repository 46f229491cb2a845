"""A release: the venvs of engine and router, named by what they are built from. Pure but for reading the files it is given."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path


def release_id(python: str, locks: Iterable[Path], packages: Iterable[Path]) -> str:
    """Ten hex digits over the interpreter's name, the lock files and every file of the packages put on top of them.

    Raises FileNotFoundError for a lock or package that is not there.
    """
    digest = hashlib.sha256(python.encode())
    for lock in locks:
        digest.update(b"\0lock\0" + lock.read_bytes())
    for package in packages:
        for file in _files(package):
            digest.update(b"\0" + str(file.relative_to(package.parent)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:10]


def _files(package: Path) -> list[Path]:
    """A wheel, or every file of a package directory that is installed."""
    if package.is_file():
        return [package]
    if not package.is_dir():
        raise FileNotFoundError(f"{package} is neither a wheel nor a package directory")
    return sorted(f for f in package.rglob("*") if f.is_file() and _is_installed(f.relative_to(package)))


def _is_installed(file: Path) -> bool:
    """Not what a build leaves, and not tests and texts, which a wheel of ours has not or which no process reads."""
    aside = {"__pycache__", "build", "dist", "tests", "gates", "bench", "model", "nightly"} & set(file.parts)
    hidden = any(part.startswith(".") for part in file.parts)
    return not aside and not hidden and ".egg-info" not in str(file) and file.suffix != ".md" and not file.name.startswith("test_")

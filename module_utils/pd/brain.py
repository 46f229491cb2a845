"""This package as files: what a module carries to the node can be laid down there, for systemd to run (recover.py)."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import pkgutil
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

SETTINGS = "recover.json"


def files(package: str, settings: Any) -> dict[str, str]:
    """Path below the library's directory -> text: every file of the package that came along, and the settings (a dataclass)."""
    names = ["__init__", *(found.name for found in pkgutil.iter_modules(importlib.import_module(package).__path__))]
    told = {f"pd/{name}.py": (pkgutil.get_data(package, f"{name}.py") or b"").decode() for name in sorted(names)}
    return {**told, SETTINGS: json.dumps(asdict(settings), sort_keys=True)}


def digest(told: Mapping[str, str]) -> str:
    """Ten hex digits over every name and text."""
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:10]


def is_installed(name: str, lib: Path) -> bool:
    """Whether `current` points to this one."""
    current = lib / "current"
    return current.is_symlink() and current.readlink().name == name


def install(told: Mapping[str, str], name: str, lib: Path) -> None:
    """Write it whole, then point `current` to it in one step, then remove what it replaced."""
    partial = lib / f".{name}.{os.getpid()}"
    for path, text in told.items():
        (partial / path).parent.mkdir(parents=True, exist_ok=True)
        (partial / path).write_text(text)
    shutil.rmtree(lib / name, ignore_errors=True)
    partial.rename(lib / name)
    link = lib / f".current.{os.getpid()}"
    link.symlink_to(name)
    link.replace(lib / "current")
    for old in lib.iterdir():
        if old.name not in (name, "current"):
            shutil.rmtree(old)

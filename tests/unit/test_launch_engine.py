"""The engine's launcher: which caches a GPU and a driver have, and that the process stays the same."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LAUNCHER = Path(__file__).resolve().parents[2] / "roles" / "engine" / "files" / "launch_engine.py"
launcher: dict[str, Any] = runpy.run_path(str(LAUNCHER))
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build  (dvs-builder@U22)\nGCC version:  gcc version 12.2.0\n"


def driver(root: Path, version: str, *models: str) -> Path:
    """What the kernel module of NVIDIA tells in /proc."""
    root.mkdir(parents=True)
    (root / "version").write_text(version)
    for number, model in enumerate(models):
        gpu = root / "gpus" / f"0000:0{number}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 150\nGPU UUID: \t GPU-3f{number}\n")
    return root


@pytest.mark.parametrize(
    ("version", "models", "name"),
    [
        (VERSION, ["NVIDIA RTX PRO 6000 Blackwell Server Edition"] * 8, "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-580.105.08"),
        (VERSION, ["B", "A", "B"], "A+B-580.105.08"),
        ("odd", ["A"], "A-unknown"),
    ],
)
def test_caches_are_named_by_gpu_and_driver(tmp_path: Path, version: str, models: list[str], name: str) -> None:
    assert launcher["device"](driver(tmp_path / "nvidia", version, *models)) == name


def test_a_machine_without_a_driver(tmp_path: Path) -> None:
    assert launcher["device"](tmp_path / "nvidia") == "cpu"


def test_a_new_driver_gets_caches_of_its_own_and_an_old_one_its_old(tmp_path: Path) -> None:
    cache = tmp_path / "jit" / "0123456789" / "device"
    for name in ("A-1", "A-1", "A-2", "A-1"):
        launcher["choose"](cache, name)
        assert cache.readlink() == Path(name) and cache.is_dir()
        (cache / name).touch()
    assert sorted(p.name for p in cache.parent.iterdir()) == ["A-1", "A-2", "device"]
    assert [f.name for f in (cache.parent / "A-1").iterdir()] == ["A-1"]


def test_a_directory_of_the_operators_own_is_left_alone(tmp_path: Path) -> None:
    launcher["choose"](tmp_path, "A-1")
    assert tmp_path.is_dir() and not tmp_path.is_symlink() and list(tmp_path.iterdir()) == []


def test_it_becomes_the_engine(tmp_path: Path) -> None:
    """Same process, same environment; the command line is that of the engine alone."""
    package = tmp_path / "sglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "launch_server.py").write_text("import os, sys; print(os.getpid(), sys.orig_argv[1:], os.environ['SGLANG_CACHE_DIR'])")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "SGLANG_CACHE_DIR": str(tmp_path / "jit" / "device")}
    started = subprocess.Popen([sys.executable, LAUNCHER, "/etc/c.yaml"], env=environ, stdout=subprocess.PIPE, text=True)
    said, _ = started.communicate(timeout=30)
    assert said.split(" ", 1)[0] == str(started.pid)
    assert "['-m', 'sglang.launch_server', '--config', '/etc/c.yaml']" in said and str(tmp_path / "jit" / "device") in said
    assert (tmp_path / "jit" / "device").is_symlink()

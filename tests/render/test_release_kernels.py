"""The release of a GPU host carries the CUDA kernels: made by the role's own builder, with the real uv, nvcc and g++."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ROOT / "requirements"


def test_a_release_is_made_with_the_library_and_without_its_compiler(tmp_path: Path) -> None:
    """The engine's own packages (11 GB) are left out: nvcc's venv, the package and the library are as on a GPU host."""
    command: list[str | Path] = [sys.executable, ROOT / "roles" / "runtime" / "files" / "build_release.py", "--id=x", f"--root={tmp_path}"]
    command += [f"--uv={Path(sys.executable).parent / 'uv'}", f"--python={sys.executable}", f"--engine-lock={LOCKS / 'bootstrap.lock'}"]
    command += [f"--router-lock={LOCKS / 'router.lock'}", f"--nvcc-lock={LOCKS / 'nvcc.lock'}", f"--package={ROOT / 'kernels'}"]
    done = subprocess.run([*command, "--engine-import=json", "--needed-mib=1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (built,) = tmp_path.glob("x/engine/lib/python3*/site-packages/pd_kernels/index_bf16/index_bf16.so")
    assert ctypes.CDLL(str(built)).pd_index_abi() == 1
    assert b"sm_120a" in built.read_bytes()
    assert not (tmp_path / "x" / "nvcc").exists()
    assert set(json.loads((tmp_path / "x" / "release.json").read_text())["locks"]) == {"engine", "router", "nvcc"}

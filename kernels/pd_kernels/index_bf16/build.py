"""Build the kernels with nvcc: the library that op.py loads, or one architecture's cubin with ptxas's report.

nvcc is the one of the wheels of requirements/nvcc.lock in this environment, or the one on PATH. Run by the `runtime`
role when it makes a release (as a script, by a venv that has nothing but nvcc), or by hand: never by a serving process.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ARCHES = ("sm_120a",)
FLAGS = ("-std=c++17", "-O3", "--threads=1")


@dataclass(frozen=True)
class Nvcc:
    """A compiler: where it is, the libraries it links with (None: its own), and its version."""

    path: Path
    libraries: Path | None
    version: str


def find_nvcc() -> Nvcc:
    """The nvcc of the wheels in this environment, whose version is pinned, or the one on PATH; RuntimeError says how to get one."""
    wheels = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13"
    pinned = wheels / "bin" / "nvcc"
    on_path = None if pinned.exists() else shutil.which("nvcc")
    path = Path(on_path) if on_path else pinned
    if not path.exists():
        raise RuntimeError(f"no nvcc on PATH and none at {path}; run `pip install --require-hashes -r requirements/nvcc.lock`")
    printed = _run([str(path), "--version"]).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", printed)
    if not found:
        raise RuntimeError(f"{path} --version: no version in {printed!r}")
    return Nvcc(path, None if on_path else wheels / "lib", found[1])


def build(to: Path, arches: tuple[str, ...] = ARCHES, nvcc: Nvcc | None = None) -> Path:
    """Compile the shared library for `arches` (like sm_120a) to `to`. RuntimeError carries what nvcc printed."""
    nvcc = nvcc or find_nvcc()
    codes = [f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}" for arch in arches]
    # Stripped: a name of a temporary file would make every build another one, and the wheel's digest is in the release id.
    link = ["-shared", "-Xcompiler=-fPIC", "-Xlinker=-s", *([f"-L{nvcc.libraries}"] if nvcc.libraries else [])]
    half = to.with_name(to.name + ".part")
    _run([str(nvcc.path), *FLAGS, *codes, *link, f"-o={half}", str(HERE / "index_bf16.cu")])
    return half.replace(to)


def build_host(to: Path, *flags: str, source: Path = HERE, main: str = "index_host.cpp") -> Path:
    """Compile the CPU twin (host/) with g++: a library with the same C ABI, or the program `main`. For tests; it is slow."""
    shared = ["-shared", "-fPIC"] if to.suffix == ".so" else []
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    _run(["g++", "-std=c++20", "-O1", "-pthread", *warnings, *shared, *flags, "-o", str(to), str(source / "host" / main)])
    return to


def report(arch: str, nvcc: Nvcc, folder: Path) -> str:
    """What `ptxas -v` says about the kernels on `arch`: registers, spills, shared memory."""
    cubin = folder / f"{arch}.cubin"
    return _run([str(nvcc.path), *FLAGS, f"-arch={arch}", "-Xptxas=-v", "-cubin", f"-o={cubin}", str(HERE / "index_bf16.cu")]).stderr


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", action="append", help=f"like sm_120a, may be repeated (default {', '.join(ARCHES)})")
    parser.add_argument("--to", type=Path, default=HERE / "index_bf16.so")
    given = parser.parse_args()
    nvcc = find_nvcc()
    built = build(given.to, tuple(given.arch or ARCHES), nvcc)
    print(f"{built}: {built.stat().st_size} bytes, nvcc {nvcc.version} ({nvcc.path})")  # noqa: T201 a command's answer


if __name__ == "__main__":
    main()

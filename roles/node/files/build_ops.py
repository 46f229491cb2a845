#!/usr/bin/env python3
"""Make the ops venv: what our own modules import on the node, and uv, from a hashed lock. The last argument is written last.

Usage: build_ops.py VENV LOCK DONE
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path


def main(target: Path, lock: Path, done: Path) -> None:
    """A venv of another lock is replaced whole, so nothing of it is left over."""
    if sys.version_info < (3, 11):  # noqa: UP036  it runs under whatever the operator names
        sys.exit(f"{sys.executable} is Python {sys.version.split()[0]}; 3.11 or newer is needed: set runtime_python in group_vars/all.yml")
    shutil.rmtree(target, ignore_errors=True)
    sys.stdout.write(f"making {target}\n")
    sys.stdout.flush()
    venv.create(target, with_pip=True)
    pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--require-hashes", "--disable-pip-version-check"]
    subprocess.run([*pip, "--requirement", str(lock)], check=True)
    done.touch()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))

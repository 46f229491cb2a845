"""The outer machine: what the lab needs of it, and how commands are run on it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lab.errors import HostError
from lab.progress import Progress

NEEDS: Mapping[str, str] = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "nft": "nftables",
    "ssh": "openssh-client",
    "openssl": "openssl",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}
"""Command (or file) -> Debian/Ubuntu package that brings it."""

SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


def run(argv: Sequence[str], *, check: bool = True, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a short command outside. Raises HostError with its words when it fails and `check` is set."""
    result = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    if check and result.returncode != 0:
        words = (result.stderr or result.stdout).strip()[-2000:]
        raise HostError(f"`{shlex.join(argv)}` ended with exit status {result.returncode}: {words}")
    return result


def require_root() -> None:
    """The lab mounts overlays, makes links and boots a systemd: all of that needs root."""
    if os.geteuid() != 0:
        raise HostError(
            "the lab machine needs root: it mounts overlays, makes a bridge and an nftables table, and boots a systemd "
            "under systemd-nspawn. Run the same command as root (sudo)."
        )


def missing_packages(needs: Mapping[str, str] = NEEDS) -> list[str]:
    """Packages whose command or file is not on this machine, sorted."""
    path = f"{os.environ.get('PATH', '')}:{SBIN}"
    return sorted(
        {
            package
            for thing, package in needs.items()
            if not (Path(thing).exists() if thing.startswith("/") else shutil.which(thing, path=path))
        }
    )


def ensure_packages(progress: Progress) -> None:
    """Install what is missing with apt-get. Raises HostError where that does not work."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}:{SBIN}"
    missing = missing_packages()
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise HostError(f"missing on this machine, and there is no apt-get to install them: {', '.join(missing)}")
    with progress.step(f"installing {', '.join(missing)} with apt-get") as detail:
        if _apt_get("install", missing).returncode != 0:
            detail("apt-get update")
            _apt_get("update", ())
            detail("apt-get install")
            result = _apt_get("install", missing)
            if result.returncode != 0:
                raise HostError(f"apt-get install {' '.join(missing)} failed:\n{result.stderr.strip()[-2000:]}")
    still = missing_packages()
    if still:
        raise HostError(f"apt-get installed {', '.join(still)}, but their commands are not on PATH")


def _apt_get(verb: str, packages: Iterable[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120", "--no-install-recommends", verb, *packages],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    )

"""Overlay mounts: a machine is a writable layer over read-only image layers, made in milliseconds."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from lab.errors import HostError
from lab.host import run


def options(layers: Sequence[Path], upper: Path, work: Path) -> str:
    """Mount options; `layers` top first.

    `volatile`: no fsync reaches the disk, a lab machine need not survive a power cut. The three `off`: the writable
    layer may become an image layer of other machines, so it must not point into the mount it was made in.
    """
    lower = ":".join(map(str, layers))
    return f"lowerdir={lower},upperdir={upper},workdir={work},volatile,index=off,redirect_dir=off,metacopy=off"


def mount(layers: Sequence[Path], home: Path) -> Path:
    """Mount `home/upper` over `layers` at `home/root` and return that. Does nothing where it is mounted."""
    upper, work, root = home / "upper", home / "work", home / "root"
    if root.is_mount():
        return root
    gone = [str(layer) for layer in layers if not layer.is_dir()]
    if gone:
        raise HostError(f"{home.name}: image layers are gone: {', '.join(gone)}; destroy the machine and make it anew")
    if work.exists():
        shutil.rmtree(work)  # a volatile overlay leaves a mark here that forbids a second mount
    for directory in (upper, work, root):
        directory.mkdir(exist_ok=True)
    upper.chmod(0o755)
    run(["mount", "-t", "overlay", "pdlab", "-o", options(layers, upper, work), str(root)])
    return root


def unmount(root: Path) -> None:
    """Unmount `root` if it is mounted; lazily where something outside still looks into it."""
    if root.is_mount() and run(["umount", str(root)], check=False).returncode != 0:
        run(["umount", "--lazy", str(root)])

"""Taking machines down, and taking down what dead processes left behind. Every step may be repeated."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from lab import image, network, overlay, paths, recipe, record
from lab.progress import Progress
from lab.record import Record

NSPAWN_RUN = Path("/run/systemd/nspawn")
KEEP_FROZEN = 2
"""Two checkouts at different commits can each have theirs."""


def dismantle(machine: Record) -> None:
    """Remove a machine: processes, cgroups, mounts, link, files; with the last one the network goes as well.

    The record goes last, so that a machine half taken down is found again.
    """
    group = machine.cgroup
    group.kill()
    group.remove()
    _forget_nspawn(machine)
    overlay.unmount(machine.home / "root")
    network.delete_link(f"vb-{machine.unit}")
    shutil.rmtree(machine.state, ignore_errors=True)
    with paths.locked("state"):
        aside = paths.set_aside(machine.home)
        if not record.records():
            network.release()
    shutil.rmtree(aside, ignore_errors=True)
    paths.unlock_for_good(f"machine-{machine.id}")


def _forget_nspawn(machine: Record) -> None:
    """Remove what a killed systemd-nspawn leaves under /run; its lock is named after the root directory's inode."""
    for leftover in NSPAWN_RUN.glob(f"*/{machine.unit}"):
        shutil.rmtree(leftover, ignore_errors=True)
    root = machine.home / "root"
    if root.exists():
        inode = root.stat()
        (NSPAWN_RUN / "locks" / f"inode-{inode.st_dev}:{inode.st_ino}").unlink(missing_ok=True)


def reap(progress: Progress) -> list[str]:
    """Take down what belongs to processes that are gone: machines of tests, half-made images. Returns their names."""
    reaped = []
    for machine in record.records():
        if machine.orphaned():
            with paths.locked(f"machine-{machine.id}", wait=False) as mine:
                if mine and record.load(machine.id) == machine:
                    dismantle(machine)
                    progress.note(f"took down {machine.name} ({machine.address}): its process is gone")
                    reaped.append(machine.name)
    reaped += _sweep()
    with paths.locked("state"):
        if not record.records():
            network.release()
    return reaped


def _sweep() -> list[str]:
    """Remove half-made images, half-removed directories and locks of machines that are gone; returns the images."""
    for path in (*paths.MACHINES.glob(".*.*"), *paths.IMAGES.glob(".old-*")):
        if not Path(f"/proc/{path.suffix[1:]}").exists():
            shutil.rmtree(path, ignore_errors=True)
    swept = []
    for path in paths.IMAGES.glob(".new-*"):
        name = path.name.split("-")[1]
        with paths.locked(f"image-{name}", wait=False) as mine:
            if mine:
                image.discard(path)
                swept.append(path.name)
    for path in paths.LOCKS.glob("machine-*.lock"):
        if record.load(path.stem.removeprefix("machine-")) is None:
            with paths.locked(path.stem, wait=False) as mine:
                if mine and record.load(path.stem.removeprefix("machine-")) is None:
                    paths.unlock_for_good(path.stem)
    return swept


def prune(*, everything: bool = False) -> list[str]:
    """Remove images that are out of date and that no machine stands on; with `everything` also the current ones.

    Current are: the base of this recipe, the last site layer, and the last KEEP_FROZEN of each name on that base.
    """
    with paths.locked("state"):
        used = {Path(layer) for machine in record.records() for layer in (*machine.layers, machine.site)}
        keep = used if everything else used | current_layers(image.images(), recipe.base_digest())
        stale = [path for path in sorted(paths.IMAGES.glob("[!.]*")) if path / "layer" not in keep]
        aside = [paths.set_aside(path) for path in stale]
    for path in aside:
        shutil.rmtree(path)
    return [path.name for path in stale]


def current_layers(known: Sequence[image.Image], base_digest: str) -> set[Path]:
    """Layers of the images (oldest first) that a new machine may want."""
    base = image.home("base", base_digest) / "layer"
    kept = [found for found in known if found.name == "site"][-1:]
    fitting = [found for found in known if found.name != "site" and base in found.layers]
    for name in {found.name for found in fitting}:
        kept += [found for found in fitting if found.name == name][-KEEP_FROZEN:]
    return {layer for found in kept for layer in found.layers}


def owner_here() -> record.Owner | None:
    """This process, as the owner of test machines."""
    return record.Owner.of(os.getpid())

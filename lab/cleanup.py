"""Taking machines down, and taking down what dead processes left behind. Every step may be repeated."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from lab import image, network, overlay, paths, record
from lab.progress import Progress
from lab.record import Record

NSPAWN_RUN = Path("/run/systemd/nspawn")


def dismantle(machine: Record) -> None:
    """Remove a machine: processes, cgroups, mounts, link, files; with the last one the network goes as well.

    The record goes last, so that a machine half taken down is found again.
    """
    group = machine.cgroup
    group.kill()
    group.remove()
    overlay.unmount(machine.home / "root")
    network.delete_link(f"vb-{machine.unit}")
    for leftover in NSPAWN_RUN.glob(f"*/{machine.unit}"):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.rmtree(machine.state, ignore_errors=True)
    with paths.locked("state"):
        machine.erase()
        if not record.records():
            network.release()
    (paths.LOCKS / f"machine-{machine.id}.lock").unlink(missing_ok=True)


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
    for path in paths.MACHINES.glob(".*.*"):
        if not Path(f"/proc/{path.suffix[1:]}").exists():
            shutil.rmtree(path, ignore_errors=True)
    for path in paths.IMAGES.glob(".new-*"):
        name = path.name.split("-")[1]
        with paths.locked(f"image-{name}", wait=False) as mine:
            if mine:
                image.discard(path)
                reaped.append(path.name)
    with paths.locked("state"):
        if not record.records():
            network.release()
    return reaped


def prune(*, everything: bool = False) -> list[str]:
    """Remove images that nothing uses and nothing current stands on; with `everything` also the current ones."""
    used = {Path(layer) for machine in record.records() for layer in machine.layers}
    current = set() if everything else _current()
    removed = []
    for path in sorted(paths.IMAGES.iterdir()):
        found = image.load(path)
        keep = path.name.startswith(".") or path / "layer" in used | current or (found and current & set(found.layers))
        if not keep:
            shutil.rmtree(path)
            removed.append(path.name)
    return removed


def _current() -> set[Path]:
    return {image.home("base", image.recipe.base_digest()) / "layer"}


def owner_here() -> record.Owner | None:
    """This process, as the owner of test machines."""
    return record.Owner.of(os.getpid())

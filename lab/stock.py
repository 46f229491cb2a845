"""Machines and images for those who need one and do not care which."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

from lab import cleanup, host, image, paths
from lab.image import Image
from lab.machine import Machine
from lab.progress import Progress

_COUNTER = itertools.count(1)


def unique_name(prefix: str = "test") -> str:
    """A machine name that no other process of this host uses."""
    return f"{prefix}-{os.getpid()}-{next(_COUNTER)}"


def ensure_image(name: str, key: str, make: Callable[[Machine], None], *, progress: Progress | None = None) -> Image:
    """The frozen image `name` for `key` (a digest of all that `make` depends on), made once, whoever asks first.

    `make` gets a booted machine on the base image; what it leaves on it is the image.
    """
    host.require_root()
    paths.prepare()
    with paths.locked(f"make-{name}"):
        if found := image.find(name, key):
            return found
        with Machine(unique_name(f"make-{name}"), progress=progress) as machine:
            make(machine)
            frozen = machine.freeze(name, key)
    cleanup.prune()
    return frozen

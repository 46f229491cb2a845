"""systemd's own parser of env files, called in its shared library: needs no PID 1."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

_PATTERNS = ("*/systemd/libsystemd-shared-*.so", "systemd/libsystemd-shared-*.so")


@cache
def _library() -> ctypes.CDLL:
    found = [path for root in ("/usr/lib", "/lib") for pattern in _PATTERNS for path in Path(root).glob(pattern)]
    if not found:
        raise FileNotFoundError("no libsystemd-shared-*.so below /usr/lib: install the package systemd")
    library = ctypes.CDLL(str(sorted(found)[-1]))
    library.env_assignment_is_valid.restype = ctypes.c_bool
    return library


def load(text: str) -> dict[str, str] | None:
    """What systemd makes of an env file (load_env_file, then the filter of exec); None when it refuses it."""
    library, out = _library(), ctypes.POINTER(ctypes.c_char_p)()
    descriptor = os.memfd_create("env")
    try:
        os.write(descriptor, text.encode("utf-8", "surrogatepass"))
        if library.load_env_file(None, f"/proc/self/fd/{descriptor}".encode(), ctypes.byref(out)) < 0:
            return None
    finally:
        os.close(descriptor)
    env: dict[str, str] = {}
    for at in range(1 << 20):
        entry = out[at] if out else None
        if entry is None:
            break
        if library.env_assignment_is_valid(entry):
            name, _, value = entry.decode().partition("=")
            env[name] = value
    return env

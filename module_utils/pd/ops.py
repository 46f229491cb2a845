"""Modules that speak HTTP run under the ops venv, which the `node` role makes; the others run under the machine's own python."""

from __future__ import annotations

import importlib.util
from pathlib import Path

PYTHON = Path("/opt/sglang-pd/ops/bin/python")


def ensure() -> None:
    """Start this module anew under the ops venv unless its libraries are here already. Raises RuntimeError where there is no venv."""
    if all(importlib.util.find_spec(name) for name in ("httpx", "prometheus_client", "yaml")):
        return
    from ansible.module_utils.common.respawn import has_respawned, respawn_module  # noqa: PLC0415  Ansible's, and the recovery runs without it

    if has_respawned() or not PYTHON.exists():
        raise RuntimeError(f"{PYTHON} is missing or incomplete: run site.yml, its `node` role makes it")
    respawn_module(str(PYTHON))

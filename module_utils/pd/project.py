"""The project on the controller's disk: roles, group_vars, locks. Everything the action plugins need before the pure parts take over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from . import release, sources
from .spec import Spec, from_hostvars

ROLES_OF = {"prefill": ("engine",), "decode": ("engine",), "router": ("router",), "node": ("node", "runtime", "model", "recover")}
"""Whose argument specs declare the variables of a play's hosts."""
EVERYWHERE = ("pd", "model")
"""Whose variables hold for the whole set: every instance may have them."""


def declared(root: Path) -> dict[str, frozenset[str]]:
    """Role of an instance -> the variable names its plays declare."""
    names = {spec.parts[-3]: _options(spec) for spec in root.glob("roles/*/meta/argument_specs.yml")}
    everyone = frozenset[str]().union(*(names[role] for role in EVERYWHERE))
    return {kind: everyone.union(*(names[role] for role in roles)) for kind, roles in ROLES_OF.items()}


def _options(path: Path) -> frozenset[str]:
    told = yaml.safe_load(path.read_text())
    return frozenset(told["argument_specs"]["main"].get("options") or {})


def read_spec(root: Path, inventories: Sequence[str], groups: Mapping[str, Sequence[str]], hostvars: Mapping[str, Any]) -> Spec:
    """The spec of what Ansible loaded, with the places in the files it was loaded from."""
    read = sources.read(root, [Path(i) for i in inventories])
    known = declared(root)
    names = frozenset().union(*known.values(), {"ansible_host"})
    told = {host: {name: plain(values[name]) for name in names if name in values} for host, values in hostvars.items()}
    return from_hostvars(groups, told, known, read)


def plain(value: Any) -> Any:
    """A value without the origin tags that Ansible hangs on it: YAML, JSON and digests want the plain types."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return value if isinstance(value, bool) else kind(value)
    return value


def release_of(root: Path, node: Mapping[str, Any]) -> str:
    """The release a node's variables ask for. Raises FileNotFoundError naming the lock or package that is missing."""
    names = ("runtime_engine_lock", "runtime_router_lock", "runtime_nvcc_lock")
    locks = [root / "requirements" / node[name] for name in names if node.get(name)]
    return release.release_id(node["runtime_python"], locks, [root / p for p in node["runtime_packages"]])

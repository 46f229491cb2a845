"""The modules of library/, loaded as Python: in the zip that Ansible sends, the brain's name is `ansible.module_utils.pd`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
NAMES = tuple(sorted(file.stem for file in (ROOT / "library").glob("*.py")))
ACTIONS = tuple(sorted(file.stem for file in (ROOT / "action_plugins").glob("*.py")))


@dataclass(frozen=True)
class Documented:
    """One module: its documentation, and its code where it has any."""

    name: str
    module: ModuleType
    documentation: dict[str, Any]
    returned: dict[str, Any]
    examples: list[dict[str, Any]]

    @property
    def spec(self) -> dict[str, Any] | None:
        """Its argument spec; None where an action plugin does all the work."""
        found: dict[str, Any] | None = getattr(self.module, "SPEC", None)
        return found

    @property
    def source(self) -> str:
        """The text of its file."""
        return (ROOT / "library" / f"{self.name}.py").read_text()


@cache
def documented(name: str) -> Documented:
    """Load one module and read its documentation."""
    module = load(name)
    told = [yaml.safe_load(getattr(module, part)) for part in ("DOCUMENTATION", "RETURN", "EXAMPLES")]
    return Documented(name, module, *told)


def load(name: str) -> ModuleType:
    """The module of this name, with the brain of this tree under the name it has on a node."""
    for file in (ROOT / "module_utils" / "pd").glob("*.py"):
        inner = "" if file.stem == "__init__" else f".{file.stem}"
        sys.modules[f"ansible.module_utils.pd{inner}"] = importlib.import_module(f"pd{inner}")
    spec = importlib.util.spec_from_file_location(f"library_{name}", ROOT / "library" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

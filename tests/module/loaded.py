"""The modules of library/, loaded as Python: in the zip that Ansible sends, the brain's name is `ansible.module_utils.pd`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

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


def redirect(monkeypatch: pytest.MonkeyPatch, brain: ModuleType, old: Path, new: Path) -> None:
    """Let every function of a file of the brain that has `old` as a default use `new`: a test's own directory."""
    for made in vars(brain).values():
        function = inspect.unwrap(made) if inspect.isfunction(made) else None
        if function is not None and function.__defaults__ and old in function.__defaults__:
            monkeypatch.setattr(function, "__defaults__", tuple(new if value == old else value for value in function.__defaults__))


def run(name: str, /, *, check: bool = False, **args: Any) -> dict[str, Any]:
    """Run one module in this process, as Ansible does in one of its own; its result."""
    given = {"_ansible_check_mode": check, "_ansible_diff": True, "_ansible_remote_tmp": "/nonexistent", **args}
    out = io.StringIO()
    with patch_module_args(given), contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        documented(name).module.main()
    told: dict[str, Any] = json.loads(out.getvalue())
    return told

"""The files of a project as the rules see them: text, tasks, Python trees. The rules run on this one and on planted ones."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

IGNORED = {".git", ".venv", ".venv-kernels", ".lab", ".ansible", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__", "build"}
INNER = ("tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always")


@dataclass(frozen=True)
class Project:
    """A directory laid out like this project."""

    root: Path

    @cached_property
    def files(self) -> list[Path]:
        """Every file but what git ignores."""
        found = []
        for folder, folders, names in os.walk(self.root):  # Path.walk is of Python 3.12
            folders[:] = sorted(name for name in folders if name not in IGNORED and not name.endswith(".egg-info"))
            found += [Path(folder) / name for name in sorted(names)]
        return found

    def named(self, path: Path) -> str:
        """The path below the root."""
        return str(path.relative_to(self.root))

    def glob(self, *patterns: str) -> list[Path]:
        """Files that match one of the patterns, each once."""
        wanted = {path for pattern in patterns for path in self.root.glob(pattern)}
        return [path for path in self.files if path in wanted]

    def yaml(self, path: Path) -> Any:
        """A YAML file as data."""
        return yaml.safe_load(path.read_text(encoding="utf-8"))

    def texts(self) -> Iterator[tuple[str, str]]:
        """Name and text of every file that is text."""
        for path in self.files:
            raw = path.read_bytes()
            if b"\0" not in raw:
                yield self.named(path), raw.decode(errors="replace")

    def tasks(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every play, block and task of the playbooks and roles, with the file it is in."""
        for path in self.glob("*.yml", "tasks/*.yml", "roles/*/tasks/*.yml", "roles/*/handlers/*.yml"):
            for task in _tasks(self.yaml(path)):
                yield self.named(path), task

    def python(self, *patterns: str) -> Iterator[tuple[str, ast.Module, str]]:
        """Name, tree and text of Python files."""
        for path in self.glob(*patterns):
            text = path.read_text(encoding="utf-8")
            yield self.named(path), ast.parse(text), text


def _tasks(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, list):
        for one in node:
            yield from _tasks(one)
    elif isinstance(node, dict):
        yield node
        for key in INNER:
            yield from _tasks(node.get(key))


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Every function with its length in lines, but for what is compiled for a GPU: a kernel is one function by nature."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not any("triton.jit" in ast.unparse(d) for d in node.decorator_list):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1

"""Where the operator wrote what: the YAML of group_vars, host_vars and inventory, with its lines and its quoting.

Ansible hands over values; a message needs the file and line, and `010` can be told from `8` only in the file. Nothing
is constructed here: jinja, `!vault` and `!unsafe` pass as they stand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from .problem import Problem

_TAG = "tag:yaml.org,2002:"
_SUFFIXES = ("", ".yml", ".yaml", ".json")
"""What Ansible reads in a vars directory."""
_INVENTORY_SUFFIXES = (".yml", ".yaml", ".json")


@dataclass(frozen=True)
class Place:
    """One YAML node of a variable. `scope` is the group or host it is for, `path` the variable and the keys below it.

    `style` is "" (plain), ', ", | or >; `kind` is what YAML 1.1 makes of it: str, int, float, bool, null, timestamp,
    map, seq or a !tag.
    """

    file: str
    line: int
    scope: str
    path: tuple[str, ...]
    text: str
    style: str
    kind: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def name(self) -> str:
        """The dotted name: `engine_env.SGLANG_X`."""
        return ".".join(self.path)


@dataclass(frozen=True)
class Sources:
    """All places, and what was wrong with the files themselves: unreadable YAML, duplicate keys."""

    places: tuple[Place, ...] = ()
    problems: tuple[Problem, ...] = ()

    def variables(self) -> list[Place]:
        """The top-level variables."""
        return [place for place in self.places if len(place.path) == 1]

    def find(self, variable: str, *keys: str, scopes: Sequence[str] | None = None) -> list[Place]:
        """Every place of a variable (and key below it), written with `_` or `-`.

        With `scopes` (groups and host, weakest first) only those in them, in that order.
        """
        wanted = (variable, *(key.replace("_", "-") for key in keys))
        found = [
            place
            for place in self.places
            if (place.path[0], *(key.replace("_", "-") for key in place.path[1:])) == wanted
        ]
        if scopes is None:
            return found
        return sorted((place for place in found if place.scope in scopes), key=lambda place: scopes.index(place.scope))

    def where(self, variable: str, *keys: str, scopes: Sequence[str] | None = None) -> str | None:
        """`file:line` of the place that wins, or of the nearest enclosing key; None when no file sets the variable."""
        for depth in range(len(keys), -1, -1):
            found = self.find(variable, *keys[:depth], scopes=scopes)
            if found:
                return str(found[-1])
        return None


def read(root: Path, inventories: Iterable[Path] = ()) -> Sources:
    """Read group_vars/ and host_vars/ beside the playbooks (`root`) and beside each inventory, and the inventories."""
    places: list[Place] = []
    problems: list[Problem] = []
    inventory_files = [file for path in inventories for file in _inventory_files(path)]
    for base in dict.fromkeys([root, *(file.parent for file in inventory_files)]):
        for file, scope in _vars_files(base):
            node = _compose(file, root, problems)
            if node is not None:
                places += _variables(node, _relative(file, root), scope)
    for file in inventory_files:
        node = _compose(file, root, problems)
        if node is not None:
            places += _inventory(node, _relative(file, root))
    return Sources(tuple(places), tuple(problems))


def _inventory_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.suffix in _INVENTORY_SUFFIXES else []
    return sorted(file for file in path.iterdir() if file.is_file() and file.suffix in _INVENTORY_SUFFIXES)


def _vars_files(base: Path) -> Iterator[tuple[Path, str]]:
    """The vars files below `base`, each with its group or host: group_vars/decode.yml, group_vars/decode/*.yml."""
    for folder in (base / "group_vars", base / "host_vars"):
        for file in sorted(folder.rglob("*")) if folder.is_dir() else []:
            parts = file.relative_to(folder).parts
            hidden = any(part.startswith(".") for part in parts) or file.name.endswith("~")
            if file.is_file() and file.suffix in _SUFFIXES and not hidden:
                yield file, parts[0] if len(parts) > 1 else file.stem


def _relative(file: Path, root: Path) -> str:
    return str(file.relative_to(root)) if file.is_relative_to(root) else str(file)


def _compose(file: Path, root: Path, problems: list[Problem]) -> yaml.MappingNode | None:
    """The node tree of a file, its duplicate keys noted. None for an empty, vaulted or (with a problem) broken one."""
    name = _relative(file, root)
    try:
        text = file.read_text(encoding="utf-8")
        node = None if text.startswith("$ANSIBLE_VAULT") else yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(name, "(file)", f"cannot be read: {error}", "a readable UTF-8 file"))
        return None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        found = f"no valid YAML: {getattr(error, 'problem', None) or error}"
        problems.append(
            Problem(where, "(file)", found, "valid YAML: check quotes, colons and indentation just above that line")
        )
        return None
    if node is None or node.tag == _TAG + "null":
        return None
    if not isinstance(node, yaml.MappingNode):
        problems.append(Problem(f"{name}:1", "(file)", "a YAML document that is no mapping", "`name: value` lines"))
        return None
    problems += _duplicates(node, name, ())
    return node


def _duplicates(node: yaml.Node, file: str, path: tuple[str, ...]) -> Iterator[Problem]:
    """Keys that stand twice in one mapping, at any depth: YAML keeps the last one silently."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicates(item, file, (*path, str(index)))
    if not isinstance(node, yaml.MappingNode):
        return
    first: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in first and key.value != "<<":
            found = f"the key is already on line {first[key.value]}; the first of the two would be dropped silently"
            yield Problem(
                f"{file}:{line}", ".".join((*path, key.value)), found, "one of the two lines, delete the other"
            )
        first.setdefault(key.value, line)
        yield from _duplicates(value, file, (*path, key.value))


def _children(node: yaml.Node | None) -> Iterator[tuple[str, yaml.ScalarNode, yaml.Node]]:
    """Key text, key node and value node of a mapping. Keys that are no scalars (unquoted jinja) are left out."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key.value, key, value


def _variables(node: yaml.Node | None, file: str, scope: str, path: tuple[str, ...] = ()) -> Iterator[Place]:
    for name, key, value in _children(node):
        yield from _node(value, key.start_mark.line + 1, file, scope, (*path, name))


def _node(node: yaml.Node, line: int, file: str, scope: str, path: tuple[str, ...]) -> Iterator[Place]:
    kind = node.tag.removeprefix(_TAG)
    text, style = (node.value, node.style or "") if isinstance(node, yaml.ScalarNode) else ("", "")
    yield Place(file, line, scope, path, text, style, kind)
    yield from _variables(node, file, scope, path)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _node(item, item.start_mark.line + 1, file, scope, (*path, str(index)))


def _inventory(node: yaml.Node | None, file: str) -> Iterator[Place]:
    """The variables of a YAML inventory: `vars:` of groups and the values of hosts, at any depth of `children:`."""
    for group, _, body in _children(node):
        for section, _, content in _children(body):
            if section == "vars":
                yield from _variables(content, file, group)
            elif section == "hosts":
                for host, _, values in _children(content):
                    yield from _variables(values, file, host)
            elif section == "children":
                yield from _inventory(content, file)

"""The set as the machine knows it: the manifest of a generation is all that a module on the node needs to be told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import secrecy
from .envfile import parse
from .generation import CURRENT, GENERATIONS, in_order_names
from .problem import SECRET


@dataclass(frozen=True)
class Placed:
    """One instance of a generation on this machine. `env` and `key` come from its files, secrets included: never report them."""

    name: str
    role: str
    unit: str
    url: str
    bootstrap_port: int | None
    metrics_url: str | None
    env: Mapping[str, str]
    config: Mapping[str, Any]
    generation: str

    @property
    def knobs(self) -> dict[str, str]:
        """The environment that may be shown and compared: without secrets."""
        return {key: value for key, value in self.env.items() if not SECRET.search(key)}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must not reach a log or a report: of the environment, and of every flag at any depth. Needs the ops venv."""
        return tuple(sorted(secrecy.values([self.env, true_config(self.generation, self.name)])))

    @property
    def is_router(self) -> bool:
        """A router has workers instead of a model."""
        return self.role == "router"


class NoGenerationError(Exception):
    """The machine has no such generation, or it is damaged; the message says which file."""


def current_id(current: Path = Path(CURRENT)) -> str | None:
    """The id of the active generation; None on a machine that never had one."""
    return current.readlink().name if current.is_symlink() else None


def is_whole(generation: str | None, root: Path = Path(GENERATIONS)) -> bool:
    """Whether the machine has the generation: a directory without a manifest is half written, or was put out of use by hand."""
    return generation is not None and (root / generation / "manifest.json").exists()


def manifest(generation: str, root: Path = Path(GENERATIONS)) -> dict[str, Any]:
    """The manifest of a generation. Raises NoGenerationError when it is not there or does not read."""
    path = root / generation / "manifest.json"
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise NoGenerationError(f"{path} is missing: generation {generation} was never written here, or was pruned") from None
    except json.JSONDecodeError as error:
        raise NoGenerationError(f"{path} is damaged ({error})") from error
    if not isinstance(found, dict) or found.get("id") != generation:
        raise NoGenerationError(f"{path} does not describe generation {generation}")
    return found


def placed(name: str, generation: str, root: Path = Path(GENERATIONS)) -> Placed:
    """One instance of a generation. Raises NoGenerationError."""
    told = manifest(generation, root)["instances"].get(name)
    if told is None:
        raise NoGenerationError(f"generation {generation} has no instance {name}")
    folder = root / generation / name
    try:
        env = parse((folder / "env").read_text())
    except FileNotFoundError as error:
        raise NoGenerationError(f"{error.filename} is missing: the directory of generation {generation} was changed by hand") from error
    return Placed(
        name=name,
        role=told["role"],
        unit=told["unit"],
        url=told["url"],
        bootstrap_port=told["bootstrap_port"],
        metrics_url=told["metrics_url"],
        env=env,
        config=told["config"],
        generation=generation,
    )


def everyone(generation: str, root: Path = Path(GENERATIONS)) -> tuple[Placed, ...]:
    """All instances of a generation in start order."""
    return tuple(placed(name, generation, root) for name in in_order_names(manifest(generation, root)))


def api_key(generation: str, name: str, root: Path = Path(GENERATIONS)) -> str | None:
    """The api key out of the instance's own config file; the manifest has it redacted. Needs the ops venv."""
    key: str | None = true_config(generation, name, root).get("api-key")
    return key


def true_config(generation: str, name: str, root: Path = Path(GENERATIONS)) -> dict[str, Any]:
    """The flags out of the instance's own config file, secrets included: never report them. Needs the ops venv.

    Raises NoGenerationError when the file does not read.
    """
    import yaml  # noqa: PLC0415  not on a bare host

    path = root / generation / name / "config.yaml"
    try:
        found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise NoGenerationError(f"{path} is damaged: it was changed by hand ({str(error).splitlines()[0]})") from error
    return found

"""The project on the controller's disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pd import project

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("kind", "knows", "does_not"),
    [
        ("prefill", {"engine_env", "engine_bootstrap_port", "pd_api_key", "model_name"}, {"router_env", "runtime_keep"}),
        ("decode", {"engine_env", "pd_api_key"}, {"router_env"}),
        ("router", {"router_env", "pd_stop_timeout"}, {"engine_env"}),
        ("node", {"node_packages", "runtime_python", "model_dir", "pd_api_key"}, {"engine_env", "router_env"}),
    ],
)
def test_what_each_kind_of_host_declares(kind: str, knows: set[str], does_not: set[str]) -> None:
    declared = project.declared(ROOT)
    assert knows <= declared[kind]
    assert not does_not & declared[kind]


def test_every_role_is_declared_for_some_host() -> None:
    roles = {path.name for path in (ROOT / "roles").iterdir()}
    assert roles == {*project.EVERYWHERE, *(role for names in project.ROLES_OF.values() for role in names)}


def node_vars(*files: str) -> dict[str, Any]:
    return {key: value for file in files for key, value in yaml.safe_load((ROOT / "group_vars" / file).read_text()).items()}


def test_the_real_host_and_the_lab_have_each_its_release() -> None:
    real, lab = node_vars("all.yml", "nodes.yml"), node_vars("all.yml", "nodes.yml", "lab.yml")
    assert project.release_of(ROOT, real) == project.release_of(ROOT, dict(reversed(list(real.items()))))
    assert project.release_of(ROOT, real) != project.release_of(ROOT, lab)


def test_a_lock_that_is_not_there_is_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"requirements/nope\.lock"):
        project.release_of(ROOT, {**node_vars("all.yml", "nodes.yml"), "runtime_engine_lock": "nope.lock"})


class Tagged(str):
    """As Ansible's own strings are: a text that remembers where it came from."""

    __slots__ = ("origin",)


def test_what_ansible_hangs_on_values_is_taken_off() -> None:
    told = project.plain({Tagged("a"): [Tagged("b"), True, 1, 0.5, None], "c": (Tagged("d"),)})
    assert told == {"a": ["b", True, 1, 0.5, None], "c": ["d"]}
    texts = [*told, *told["a"][:1], *told["c"]]
    assert {type(text) for text in texts} == {str}
    assert yaml.safe_dump(told) == yaml.safe_dump({"a": ["b", True, 1, 0.5, None], "c": ["d"]})

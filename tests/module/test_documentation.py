"""What ansible-doc says of a module is what the module takes and returns."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.module.loaded import ACTIONS, NAMES, ROOT, documented

WITH_CODE = tuple(name for name in NAMES if "AnsibleModule(" in (ROOT / "library" / f"{name}.py").read_text())
COMPARED = ("type", "required", "choices", "default", "elements")
ALWAYS = {"changed", "failed", "msg", "diff", "before"}
"""What Ansible itself documents for every module; `before` is what diff mode shows."""


def told(option: dict[str, Any]) -> dict[str, Any]:
    """What is compared of an option; absent and the default of absent are the same."""
    found = {key: option.get(key) for key in COMPARED}
    return {**found, "type": found["type"] or "str", "required": bool(found["required"])}


@pytest.mark.parametrize("name", WITH_CODE)
def test_options_are_the_argument_spec(name: str) -> None:
    module = documented(name)
    assert module.spec is not None
    options = module.documentation.get("options") or {}
    assert {key: told(option) for key, option in options.items()} == {key: told(option) for key, option in module.spec.items()}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_documented_whole(name: str) -> None:
    module = documented(name)
    assert module.documentation["module"] == name
    assert set(module.documentation["attributes"]) == {"check_mode", "diff_mode"}
    assert module.documentation["short_description"][0].isupper()
    for key, option in {**(module.documentation.get("options") or {}), **module.returned}.items():
        assert option["description"], key
        assert option["type"], key
    for key, value in module.returned.items():
        assert value["returned"], key


@pytest.mark.parametrize("name", NAMES)
def test_its_examples_use_it_as_it_can_be_used(name: str) -> None:
    module = documented(name)
    options = module.documentation.get("options") or {}
    for task in module.examples:
        assert task["name"][0].isupper()
        args = task[name] or {}
        assert set(args) <= set(options)
        assert _needed(name) <= set(args)
    assert module.examples


@pytest.mark.parametrize("name", WITH_CODE)
def test_check_mode_is_supported(name: str) -> None:
    assert "supports_check_mode=True" in documented(name).source
    assert documented(name).documentation["attributes"]["check_mode"]["support"] == "full"


def exits(source: str) -> list[set[str]]:
    """The keys of every `exit_json(...)` that can be read off; `**name` stands for keys that cannot."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    found = []
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "exit_json":
            found.append({keyword.arg or f"**{ast.unparse(keyword.value)}" for keyword in call.keywords})
    return found


@pytest.mark.parametrize("name", WITH_CODE)
def test_what_it_returns_is_documented(name: str) -> None:
    """Keys that are spread from a mapping are checked where the module is run (tests/host)."""
    module = documented(name)
    for keys in exits(module.source):
        plain = {key for key in keys if not key.startswith("**")}
        assert plain - ALWAYS <= set(module.returned) | _internal(name), keys
        if plain == keys and "failed" not in keys:
            always = {key for key, value in module.returned.items() if value["returned"] == "always"}
            assert always <= plain, "documented as always returned"


def _internal(name: str) -> set[str]:
    """What an action plugin reads of its own module and keeps from the user."""
    return {"seconds"} if name == "pd_job" else set()


def test_every_action_plugin_has_documentation() -> None:
    assert set(ACTIONS) <= set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_CODE])
def test_a_module_without_code_has_an_action_plugin(name: str) -> None:
    assert name in ACTIONS
    assert documented(name).module.__doc__ == "Documentation of the action plugin of this name."


def test_ansible_doc_shows_every_module(tmp_path: Path) -> None:
    """One call for all: it takes a second."""
    doc = Path(sys.executable).with_name("ansible-doc")
    command = [str(doc), "-t", "module", "-M", "library", "--json", *NAMES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env={"HOME": str(tmp_path), "PATH": ""})
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert set(shown) == set(NAMES)
    assert all(shown[name]["doc"]["short_description"] for name in NAMES)


@pytest.mark.parametrize("playbook", sorted(str(file.relative_to(ROOT)) for file in [*ROOT.glob("*.yml"), *ROOT.glob("tasks/*.yml")]))
def test_playbooks_give_modules_what_they_take(playbook: str) -> None:
    """A misspelt option of a module of ours is found here, before a machine is."""
    for task in _tasks(yaml.safe_load((ROOT / playbook).read_text())):
        for name in set(task) & set(NAMES):
            module = documented(name)
            options = module.documentation.get("options") or {}
            assert set(task[name] or {}) <= set(options), task["name"]
            assert _needed(name) <= set(task[name] or {}), task["name"]


def _needed(name: str) -> set[str]:
    """What a user must write. All of pd_preflight is filled in by its action plugin, out of the inventory."""
    options = documented(name).documentation.get("options") or {}
    return set() if name == "pd_preflight" else {key for key, option in options.items() if option.get("required")}


def _tasks(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [task for one in node for task in _tasks(one)]
    if not isinstance(node, dict):
        return []
    inner = [task for key in ("tasks", "pre_tasks", "post_tasks", "block", "rescue", "always") for task in _tasks(node.get(key))]
    return [node, *inner]

"""Mistakes in the files as they are written, and the spec that Ansible's variables make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pd import inventory, sources
from pd.problem import Problem, report, tidy
from pd.spec import Instance, from_hostvars, instance_args, instance_env

from tests.unit.specs import VARS, spec

GOOD = spec()


def written(root: Path, files: dict[str, str], **declared: str) -> list[Problem]:
    """Check a repo of these files, with the good spec's values and these declared variables beside its own."""
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    names = {
        "prefill": frozenset(VARS["prefill0"]),
        "decode": frozenset(VARS["decode0"]),
        "router": frozenset(VARS["router0"]),
        "node": frozenset({"runtime_keep"}),
    }
    names = {role: known | set(declared.get(role, "").split()) for role, known in names.items()}
    return inventory.check(replace(GOOD, declared=names, sources=sources.read(root)))


@pytest.mark.parametrize(
    ("file", "text", "key", "fix"),
    [
        ("group_vars/decode.yml", "engine_evn: {}\n", "engine_evn", "engine_env"),
        ("group_vars/routers.yml", "router_prot: 1\n", "router_prot", "router_port"),
        ("group_vars/all.yml", "xyzzy: 1\n", "xyzzy", "nothing: delete xyzzy"),
        ("host_vars/decode0.yml", "engine_gpu: []\n", "engine_gpu", "engine_gpus"),
        ("host_vars/node0.yml", "runtime_kep: 1\n", "runtime_kep", "runtime_keep"),
        ("host_vars/node0.yml", "router_env: {}\n", "router_env", "router_env in the file of router"),
        ("group_vars/decode.yml", "router_env: {}\n", "router_env", "router_env in the file of router"),
        ("group_vars/decode.yml", "engine_bootstrap_port: 1\n", "engine_bootstrap_port", "in the file of prefill"),
        ("group_vars/router.yml", "router_env: {}\n", "router", "group_vars/routers.yml"),
        ("group_vars/decode.yml", "engine_env: {A: 1, A: 2}\n", "engine_env.A", "delete the other"),
        ("group_vars/decode.yml", "engine_env: {A: yes}\n", "engine_env.A", 'A: "1"'),
        ("group_vars/decode.yml", "engine_env: [\n", "(file)", "valid YAML"),
    ],
)
def test_a_mistake_in_a_file_is_named_by_line(tmp_path: Path, file: str, text: str, key: str, fix: str) -> None:
    (problem,) = written(tmp_path, {file: f"# first line\n{text}"})
    assert (problem.where.split(":")[0], problem.key) == (file, key)
    assert fix in problem.fix


def test_names_that_are_known_or_ansibles_pass(tmp_path: Path) -> None:
    files = {
        "group_vars/all.yml": "ansible_user: root\nengine_env: {}\nruntime_keep: 3\n",
        "group_vars/lab.yml": "engine_gpus: []\nrouter_env: {}\n",
        "group_vars/engines.yml": "engine_bootstrap_port: 1\n",
        "host_vars/router0.yml": "router_port: 30002\n",
    }
    assert written(tmp_path, files) == []
    assert written(tmp_path, files | {"group_vars/decode.yml": "pd_new: 1\n"}, decode="pd_new") == []


def test_a_value_is_named_where_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "decode.yml").write_text("engine_port: 30000\n\nengine_args:\n  page_size: 64\n")
    bad = spec(decode0={"engine_port": 30000, "engine_args": {"page_size": 64}})
    problems = inventory.check(replace(bad, sources=sources.read(tmp_path)))
    assert [(p.where, p.key) for p in problems] == [
        ("group_vars/decode.yml:1", "decode0.engine_port"),
        ("group_vars/decode.yml:4", "page-size"),
    ]


def test_a_value_yaml_changed_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars" / "decode.yml").write_text("engine_env:\n  SGLANG_X: on\n")
    bad = spec(decode0={"engine_env": {"SGLANG_X": True}})
    (problem,) = inventory.check(replace(bad, sources=sources.read(tmp_path)))
    assert problem.found == "on, which YAML reads as the boolean true"


@pytest.mark.parametrize(("missing", "group"), [("prefill0", "prefill"), ("decode0", "decode"), ("router0", "routers")])
def test_a_set_has_every_role(missing: str, group: str) -> None:
    left = replace(GOOD, instances=tuple(i for i in GOOD.instances if i.name != missing))
    assert [p.key for p in inventory.check(left)] == [f"group {group}"]


def test_an_instance_is_in_one_group_and_on_one_machine() -> None:
    lost = Instance("decode1", (), "node0", {}, ("all", "pd"))
    torn = replace(GOOD.instances[0], roles=("prefill", "decode"))
    away = replace(GOOD.instances[2], machine="", vars={**VARS["router0"], "ansible_host": "192.0.2.99"})
    problems = inventory.check(replace(GOOD, instances=(torn, GOOD.instances[1], away, lost)))
    told = {p.key: p.found for p in problems}
    assert told["decode1"] == "in none of the groups prefill, decode, routers"
    assert told["prefill0"] == "in the groups of prefill and decode"
    assert "192.0.2.99" in told["router0"]


def test_the_role_wins_over_the_common_dictionary_under_any_spelling() -> None:
    told: dict[str, Any] = {
        "engine_common_args": {"tensor_parallel_size": 2, "a_flag": True},
        "engine_args": {"tp-size": 4},
    }
    told |= {"engine_common_env": {"A": 1, "B": 0.5}, "engine_env": {"A": "x", "C": True}}
    instance = Instance("decode0", ("decode",), "node0", told)
    assert instance_args(instance) == {"tp-size": 4, "a-flag": True}
    assert instance_env(instance) == {"A": "x", "B": "0.5"}
    assert instance_env(Instance("r", ("router",), "n", {"router_env": {"A": 1}, "engine_env": {"B": 1}})) == {"A": "1"}


def test_a_spec_is_built_from_what_ansible_knows() -> None:
    groups = {
        "all": ["node0", "prefill0", "decode0", "router0", "stray"],
        "ungrouped": ["stray"],
        "nodes": ["node0"],
        "pd": ["prefill0", "decode0", "router0"],
        "engines": ["prefill0", "decode0"],
        "prefill": ["prefill0"],
        "decode": ["decode0"],
        "routers": ["router0"],
        "lab": ["node0", "prefill0", "decode0", "router0"],
    }
    hostvars = {name: {"ansible_host": "192.0.2.10", **VARS.get(name, {})} for name in groups["all"]}
    built = from_hostvars(groups, hostvars, {"decode": ["a"]})
    assert [(i.name, i.roles, i.machine) for i in built.instances] == [
        ("prefill0", ("prefill",), "node0"),
        ("decode0", ("decode",), "node0"),
        ("router0", ("router",), "node0"),
        ("stray", (), "node0"),
    ]
    assert built.instances[1].scopes == ("all", "engines", "pd", "lab", "decode", "decode0")
    assert [p.key for p in inventory.check(built)] == ["stray"]


def test_problems_read_well_and_come_in_the_order_of_the_files() -> None:
    late, early = Problem("decode.yml:12", "b", "x", "y"), Problem("decode.yml:9", "a", "x", "y")
    assert tidy([late, early, late]) == [early, late]
    assert report([]) == ""
    assert report([late, early]) == (
        "2 problems, nothing was touched:\n"
        "decode.yml:9: a\n    found: x\n    write: y\n"
        "decode.yml:12: b\n    found: x\n    write: y"
    )

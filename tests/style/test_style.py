"""The rules hold here, and each of them sees what it forbids: a rule that flags no planted sample proves nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.style import rules
from tests.style.project import Project
from tests.style.rules import RULES, Rule

HERE = Project(Path(__file__).resolve().parents[2])

UNIT = """\
[Unit]
StartLimitIntervalSec=1
ConditionPathExists=/x
OnFailure=sglang-recover@%i-died.service
Wants=network-online.target sglang-recover@%i-started.service
[Service]
Type=exec
User=sglang
EnvironmentFile=/x
ExecStart=/usr/bin/env ${PD_PYTHON} -m x
Restart=no
OOMPolicy=kill
KillMode=mixed
TimeoutStopSec=9
LimitMEMLOCK=infinity
LimitNOFILE=9
NoNewPrivileges=true
ProtectSystem=strict
UMask=0027
[Install]
WantedBy=multi-user.target
"""
LOCK = "a-b==1.0 \\\n    --hash=sha256:00\n    # via c\nd[e]==2.0.post1 ; python_version < '3.12' \\\n    --hash=sha256:11\n"
CLEAN = {
    "site.yml": "- name: P\n  hosts: nodes\n  roles: [node]\n",
    "restart-pd.yml": "- name: P\n  hosts: nodes\n  tasks:\n    - name: T\n      sglang_step: {step: x}\n",
    "tasks/bring-up.yml": "- name: T\n  sglang_step: {step: x}\n",
    "group_vars/all.yml": "node_a: 1\n",
    "roles/node/defaults/main.yml": "node_a: 1\n",
    "roles/node/meta/argument_specs.yml": "argument_specs: {main: {options: {node_a: {type: int}}}}\n",
    "roles/node/meta/main.yml": "dependencies: []\n",
    "roles/node/tasks/main.yml": "- name: T\n  ansible.builtin.file: {path: /x}\n",
    "roles/node/templates/sglang-engine@.service.j2": UNIT,
    "requirements/x.lock": LOCK,
    "module_utils/pd/a.py": "import json\nfrom . import b\nfrom .c import d\ndef f():\n    import httpx\n",
    "module_utils/pd/b.py": "",
    "module_utils/pd/c.py": "if TYPE_CHECKING:\n    import httpx\n",
    "module_utils/pd/controller.py": "import yaml\n",
    "library/m.py": "from ansible.module_utils.basic import X\nfrom ansible.module_utils.pd import a\ndef main():\n    pass\n",
    "tests/test_x.py": "def test():\n    pass\n",
}
TASKS, TEMPLATE, UNIT_FILE = "roles/node/tasks/main.yml", "roles/node/templates/x.j2", "roles/node/templates/sglang-engine@.service.j2"


def task(text: str) -> str:
    return f"- name: Block\n  block:\n    - name: T\n      {text}\n"


PLANTED = [
    *[
        (rules.no_forbidden_keywords, TASKS, task(text))
        for text in ("notify: x", "ignore_errors: true", "tags: [x]", "failed_when: false", "changed_when: false")
    ],
    (rules.no_forbidden_keywords, TASKS, task("when: not ansible_check_mode")),
    (rules.no_forbidden_keywords, "site.yml", "- name: P\n  hosts: all\n  handlers: []\n"),
    (rules.no_forbidden_keywords, "roles/node/handlers/main.yml", "- name: H\n  listen: x\n"),
    *[
        (rules.no_forbidden_modules, TASKS, task(f"{module}: x"))
        for module in ("shell", "raw", *(f"ansible.builtin.{name}" for name in ("shell", "set_fact", "command", "systemd_service")))
    ],
    (rules.no_forbidden_modules, TASKS, task("ansible.builtin.meta: flush_handlers")),
    (rules.no_forbidden_modules, TASKS, task('ansible.builtin.include_tasks: "{{ x }}.yml"')),
    (rules.no_forbidden_modules, TASKS, task('ansible.builtin.include_role: {name: "{{ x }}"}')),
    (rules.only_one_file_restarts, TASKS, task("sglang_step: {}")),
    (rules.only_one_file_restarts, "tasks/other.yml", task("sglang_step: {}")),
    (rules.only_one_file_restarts, "verify.yml", "- name: P\n  hosts: all\n  tasks:\n    - ansible.builtin.include_tasks: tasks/bring-up.yml\n"),
    (rules.only_one_file_restarts, "verify.yml", "- name: P\n  hosts: all\n  tasks:\n    - sglang_instance: {state: stopped}\n"),
    (rules.no_role_dependencies, "roles/node/meta/main.yml", "dependencies: [other]\n"),
    (rules.templates_substitute, TEMPLATE, "{% if x %}y{% endif %}"),
    (rules.templates_substitute, TEMPLATE, "{%- if x %}y{% endif %}"),
    (rules.templates_substitute, TEMPLATE, "{{ 1 if x else 2 }}"),
    (rules.templates_substitute, TEMPLATE, "{% for x in y %}{% endfor %}{% for x in y %}{% endfor %}"),
    (rules.defaults_are_the_argument_specs, "roles/node/defaults/main.yml", "node_a: 1\nnode_b: 1\n"),
    (rules.defaults_are_the_argument_specs, "roles/node/defaults/main.yml", "{}\n"),
    (rules.group_vars_are_declared, "group_vars/decode.yml", "engine_evn: {}\n"),
    (rules.locks_are_exact, "requirements/x.lock", LOCK.replace("a-b==1.0", "a-b>=1.0")),
    (rules.locks_are_exact, "requirements/x.lock", LOCK.replace("\\\n    --hash=sha256:11", "")),
    (rules.locks_are_exact, "requirements/x.lock", "--index-url simple\n" + LOCK),
    (rules.locks_are_exact, "requirements/x.lock", LOCK + "x @ https://example.org/x.whl\n"),
    (rules.nothing_names_this_machine, "docs/x.md", "see /wo" + "rk/main\n"),
    (rules.nothing_names_this_machine, "Makefile", "pip install -i https://py" + "pi.org/simple\n"),
    (rules.files_and_functions_are_short, "lab/x.py", "x = 1\n" * 301),
    (rules.files_and_functions_are_short, "tests/x.py", "def f():\n" + "    x = 1\n" * 49),
    (rules.files_and_functions_are_short, "library/m.py", "def main():\n" + "    x = 1\n" * 39),
    (rules.nothing_is_left_for_later, "docs/x.md", "TO" + "DO: write\n"),
    (rules.nothing_is_left_for_later, "tests/test_x.py", "@pytest.mark.xf" + "ail\ndef test(): ...\n"),
    (rules.nothing_is_left_for_later, "tests/test_x.py", "pytest.sk" + "ip('no gpu')\n"),
    (rules.errors_are_caught_by_name, "lab/x.py", "try:\n    pass\nexcept Exception:\n    pass\n"),
    (rules.errors_are_caught_by_name, "lab/x.py", "try:\n    pass\nexcept:\n    pass\n"),
    (rules.errors_are_caught_by_name, "lab/x.py", "try:\n    pass\nexcept BaseException:\n    raise\nexcept (Exception):\n    pass\n"),
    *[
        (rules.the_brain_imports_on_a_bare_host, f"module_utils/pd/{name}.py", text)
        for name, text in (("a", "import httpx\n"), ("b", "from yaml import safe_load\n"), ("c", "import os, rich.table\n"))
    ],
    (rules.the_brain_imports_on_a_bare_host, "library/m.py", "import yaml\n"),
    *[
        (rules.units_say_what_every_unit_must, UNIT_FILE, UNIT.replace(line, ""))
        for line in (
            *("KillMode=mixed\n", "TimeoutStopSec=9\n", "OnFailure=sglang-recover@%i-died.service\n"),
            *("LimitMEMLOCK=infinity\n", "User=sglang\n"),
        )
    ],
    (rules.units_say_what_every_unit_must, UNIT_FILE, UNIT.replace("Type=exec\n", "Type=exec\nEnvironment=A=1\n")),
    (
        rules.units_say_what_every_unit_must,
        UNIT_FILE,
        UNIT.replace("StartLimitIntervalSec=1\n", "").replace("Type=exec", "StartLimitIntervalSec=1\nType=exec"),
    ),
    (rules.units_say_what_every_unit_must, UNIT_FILE, UNIT.replace("KillMode=mixed", "# KillMode=mixed")),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_holds(rule: Rule) -> None:
    assert list(rule(HERE)) == []


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    for file, text in CLEAN.items():
        plant(tmp_path, file, text)
    return tmp_path


def plant(root: Path, file: str, text: str) -> None:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_finds_nothing_where_nothing_is(rule: Rule, clean: Path) -> None:
    assert list(rule(Project(clean))) == []


@pytest.mark.parametrize(("rule", "file", "text"), PLANTED, ids=lambda value: getattr(value, "__name__", None))
def test_the_rule_finds_what_it_forbids(rule: Rule, file: str, text: str, clean: Path) -> None:
    plant(clean, file, text)
    found = list(rule(Project(clean)))
    assert found
    assert all(file in one or one.startswith("roles/node:") for one in found)


def test_every_rule_has_a_planted_sample() -> None:
    assert {rule for rule, _, _ in PLANTED} == set(RULES)


def test_an_exception_that_is_not_needed_is_found(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "LONG_FILES", frozenset({"lab/short.py"}))
    assert list(rules.files_and_functions_are_short(Project(clean))) == ["lab/short.py: too long, or an exception that is not needed"]

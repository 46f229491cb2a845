"""The rules that keep the project small (docs/architecture.md): each is a function from a project to what breaks it."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tests.style.project import Project, functions

Rule = Callable[[Project], Iterator[str]]

FORBIDDEN_KEYS = ("handlers", "notify", "listen", "ignore_errors", "ignore_unreachable", "tags")
FORBIDDEN_MODULES = ("shell", "raw", "script", "set_fact", "command", "service", "systemd", "systemd_service")
"""`command` has no exception so far. A service is started and stopped by the steps of a plan, never by a task."""
RESTARTS = ("sglang_step", "pd_transaction")
FILE_LINES, FUNCTION_LINES, MAIN_LINES = 300, 50, 40
LONG_FILES: frozenset[str] = frozenset()
LONG_FUNCTIONS: frozenset[tuple[str, str]] = frozenset()
"""Exceptions are exact: one that is not needed any more breaks the rule too."""


def no_forbidden_keywords(project: Project) -> Iterator[str]:
    """A restart must not depend on a notification, an error not be ignored, a run not be partial."""
    for file, task in project.tasks():
        name = task.get("name", "a task")
        yield from (f"{file}: {name}: {key}" for key in FORBIDDEN_KEYS if key in task)
        yield from (f"{file}: {name}: {key}: false" for key in ("failed_when", "changed_when") if task.get(key) is False)
        if "ansible_check_mode" in str(task.get("when", "")):
            yield f"{file}: {name}: when: ansible_check_mode (a module has a real check mode)"


def no_forbidden_modules(project: Project) -> Iterator[str]:
    """Decide in Python: no shell, no facts computed in YAML, no service behind the plan's back."""
    for file, task in project.tasks():
        for key in task:
            module = key.rpartition(".")[2]
            if module in FORBIDDEN_MODULES:
                yield f"{file}: {task.get('name')}: {module}"
            if module == "meta" and "flush_handlers" in str(task[key]):
                yield f"{file}: flush_handlers"
            if re.fullmatch(r"(include|import)_(role|tasks|playbook)", module) and "{{" in str(task[key]):
                yield f"{file}: {task.get('name')}: a dynamic name of what is included"


def only_one_file_restarts(project: Project) -> Iterator[str]:
    """restart-pd.yml, with the tasks it goes forward and back by, is the only file that starts or stops anything."""
    for file, task in project.tasks():
        if file in ("restart-pd.yml", "tasks/bring-up.yml"):
            continue
        includes = str(task.get("ansible.builtin.include_tasks", "")) + str(task.get("ansible.builtin.import_tasks", ""))
        if "bring-up" in includes:
            yield f"{file}: {task.get('name')}: {includes}"
        yield from (f"{file}: {task.get('name')}: {module}" for module in RESTARTS if module in task)
        if (task.get("sglang_instance") or {}).get("state", "observed") != "observed":
            yield f"{file}: {task.get('name')}: sglang_instance"


def no_role_dependencies(project: Project) -> Iterator[str]:
    """The order of roles stands in site.yml."""
    for path in project.glob("roles/*/meta/main.yml"):
        if (project.yaml(path) or {}).get("dependencies"):
            yield f"{project.named(path)}: dependencies"


def templates_substitute(project: Project) -> Iterator[str]:
    """At most one loop, no `if`: what varies is decided in Python."""
    for path in project.glob("roles/*/templates/*"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"{%-?\s*(if|set|macro|include|import)\b|\bif\b[^}]*\belse\b[^}]*}}", text):
            yield f"{project.named(path)}: decides"
        if len(re.findall(r"{%-?\s*for\b", text)) > 1:
            yield f"{project.named(path)}: more than one loop"


def _options(project: Project, role: str) -> dict[str, Any]:
    path = project.root / "roles" / role / "meta" / "argument_specs.yml"
    found: dict[str, Any] = project.yaml(path)["argument_specs"]["main"].get("options") or {} if path.exists() else {}
    return found


def defaults_are_the_argument_specs(project: Project) -> Iterator[str]:
    """Every variable of a role is declared, and has a default."""
    for role in sorted(path.name for path in project.root.glob("roles/*")):
        path = project.root / "roles" / role / "defaults" / "main.yml"
        defaults = project.yaml(path) if path.exists() else {}
        for name in sorted(set(defaults or {}) ^ set(_options(project, role))):
            yield f"roles/{role}: {name} is not in both defaults/main.yml and meta/argument_specs.yml"


def group_vars_are_declared(project: Project) -> Iterator[str]:
    """Argument specs never see a misspelt top-level name; here it is seen."""
    declared = {name for path in project.root.glob("roles/*") for name in _options(project, path.name)}
    for path in project.glob("group_vars/*.yml"):
        for name in (name for name in set(project.yaml(path) or {}) - declared if not name.startswith("ansible_")):
            yield f"{project.named(path)}: {name} is declared by no role"


def locks_are_exact(project: Project) -> Iterator[str]:
    """Pinned, with hashes, and nothing about where this machine got it from."""
    for path in project.glob("requirements/*.lock"):
        text = path.read_text(encoding="utf-8")
        if re.search(r"://|^\s*-{1,2}(i|f|index|extra-index|find-links)", text, re.MULTILINE):
            yield f"{project.named(path)}: names an index"
        entries = re.split(r"\n(?=[A-Za-z0-9])", re.sub(r"^\s*#.*\n?", "", text, flags=re.MULTILINE))
        for entry in filter(str.strip, entries):
            name = entry.split()[0]
            if not re.match(r"[A-Za-z0-9_.\[\],-]+==[0-9][^\s;]*", entry) or "--hash=sha256:" not in entry:
                yield f"{project.named(path)}: {name} has no exact version or no hash"


HERE = re.compile(r"/wor[k]/|far[m]-|/tmp/p[d]\b|pyp[i]\.org|pythonhoste[d]|/opt/(pyp[i]|wheel[s])")
"""Written so that it does not find itself."""


def nothing_names_this_machine(project: Project) -> Iterator[str]:
    """Paths and hosts of the machine it was written on mean nothing on the reader's."""
    for file, text in project.texts():
        for number, line in enumerate(text.splitlines(), 1):
            if HERE.search(line):
                yield f"{file}:{number}: {line.strip()[:80]}"


PYTHON = (
    "module_utils/**/*.py",
    "library/*.py",
    "action_plugins/*.py",
    "lab/**/*.py",
    "bench/**/*.py",
    "tests/**/*.py",
    "roles/*/files/*.py",
    "kernels/**/*.py",
)


def files_and_functions_are_short(project: Project) -> Iterator[str]:
    """A file of 300 lines, a function of 50: what is longer has two jobs."""
    long_files, long_functions = set(), set()
    for file, tree, text in project.python(*PYTHON):
        if len(text.splitlines()) > FILE_LINES:
            long_files.add(file)
        long_functions |= {(file, name) for name, lines in functions(tree) if lines >= FUNCTION_LINES}
        if file.startswith("library/"):
            yield from (f"{file}: main() has {lines} lines" for name, lines in functions(tree) if name == "main" and lines >= MAIN_LINES)
    yield from (f"{file}: too long, or an exception that is not needed" for file in sorted(long_files ^ LONG_FILES))
    yield from (f"{file}: {name}(): too long, or an exception that is not needed" for file, name in sorted(long_functions ^ LONG_FUNCTIONS))


def nothing_is_left_for_later(project: Project) -> Iterator[str]:
    """No to-do in a file, no test that does not run."""
    later = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b")
    skipped = re.compile(r"pytest\.(mark\.)?(ski[p]|skipi[f]|xfai[l]|importorski[p])\b|unittest\.ski[p]")
    for file, text in project.texts():
        for number, line in enumerate(text.splitlines(), 1):
            if later.search(line) or (file.startswith(("tests/", "kernels/")) and skipped.search(line)):
                yield f"{file}:{number}: {line.strip()[:80]}"


def errors_are_caught_by_name(project: Project) -> Iterator[str]:
    """An error that nobody thought of is not one to go on after: tidying up ends with `raise`."""
    for file, tree, _ in project.python(*PYTHON):
        for node in ast.walk(tree):
            if not isinstance(node, ast.ExceptHandler) or isinstance(node.body[-1], ast.Raise):
                continue
            if node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"):
                yield f"{file}:{node.lineno}: except {ast.unparse(node.type) if node.type else ''}"


def the_brain_imports_on_a_bare_host(project: Project) -> Iterator[str]:
    """Modules start under the machine's own python: what it has not is imported where it is used."""
    trees = {file: tree for file, tree, _ in project.python("module_utils/pd/*.py", "library/*.py")}
    todo = [file for file in trees if file.startswith("library/")]
    done: set[str] = set()
    while todo:
        file = todo.pop()
        if file in done or file not in trees:
            continue
        done.add(file)
        for line, name in imports(trees[file]):
            if name.startswith(BRAIN):
                todo.append(f"module_utils/pd/{name.removeprefix(BRAIN)}.py")
            elif name.partition(".")[0] not in (*sys.stdlib_module_names, "ansible"):
                yield f"{file}:{line}: imports {name} at its top"


BRAIN = "ansible.module_utils.pd."


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What is imported when the file is: line and name, the brain's under its name on a node."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = BRAIN + (node.module or "") if node.level else node.module or ""
            whole = source.rstrip(".") == BRAIN.rstrip(".")
            yield from ((node.lineno, f"{BRAIN}{alias.name}" if whole else source) for alias in node.names)


UNIT_LINES = {
    "Unit": (
        *("StartLimitIntervalSec=", "ConditionPathExists=", "OnFailure=sglang-recover@%i-died.service"),
        "Wants=network-online.target sglang-recover@%i-started.service",
    ),
    "Service": (
        *("Type=exec", "User=sglang", "EnvironmentFile=", "ExecStart=/usr/bin/env ${PD_PYTHON}", "Restart=", "OOMPolicy=kill"),
        *("KillMode=mixed", "TimeoutStopSec=", "LimitNOFILE=", "NoNewPrivileges=true", "ProtectSystem=strict", "UMask="),
    ),
    "Install": ("WantedBy=multi-user.target",),
}


def units_say_what_every_unit_must(project: Project) -> Iterator[str]:
    """Each line in its own section: systemd only warns about one in another (report 068)."""
    for path in project.glob("roles/*/templates/*.service.j2"):
        parts = re.split(r"^\[(\w+)\]$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        sections = {name: [line for line in text.splitlines() if line[:1] != "#"] for name, text in zip(parts[1::2], parts[2::2], strict=True)}
        for section, wanted in UNIT_LINES.items():
            for start in wanted:
                if not any(line.startswith(start) for line in sections.get(section, ())):
                    yield f"{project.named(path)}: [{section}] has no {start}"
        if any(line.startswith("Environment=") for line in sections.get("Service", ())):
            yield f"{project.named(path)}: Environment= (files win over it, report 063)"
        if "engine" in path.name and "LimitMEMLOCK=infinity" not in sections.get("Service", ()):
            yield f"{project.named(path)}: no LimitMEMLOCK=infinity (report 074)"


RULES: tuple[Rule, ...] = (
    no_forbidden_keywords,
    no_forbidden_modules,
    only_one_file_restarts,
    no_role_dependencies,
    templates_substitute,
    defaults_are_the_argument_specs,
    group_vars_are_declared,
    locks_are_exact,
    nothing_names_this_machine,
    files_and_functions_are_short,
    nothing_is_left_for_later,
    errors_are_caught_by_name,
    the_brain_imports_on_a_bare_host,
    units_say_what_every_unit_must,
)

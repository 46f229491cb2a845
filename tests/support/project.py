"""A copy of the project that a test may edit: the very playbooks a user runs, with the knob the test turns."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner
import yaml

from lab import Machine

ROOT = Path(__file__).resolve().parents[2]
INSTANCES = {"prefill": ["prefill0"], "decode": ["decode0"], "routers": ["router0"]}


@dataclass(frozen=True)
class Outcome:
    """One finished playbook, as ansible-runner's events tell it."""

    rc: int
    stdout: str
    events: Sequence[Mapping[str, Any]]
    recap: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        """Changed tasks over all hosts."""
        return sum(self.recap.get("changed", {}).values())

    def results(self, task: str) -> list[Mapping[str, Any]]:
        """What every host (and loop item) of a task returned."""
        kinds = ("runner_on_ok", "runner_on_failed", "runner_item_on_ok", "runner_item_on_failed")
        found = [e["event_data"] for e in self.events if e["event"] in kinds]
        return [data["res"] for data in found if data.get("task") == task]

    def failures(self) -> list[str]:
        """The messages of failed tasks that nothing rescued, and of rescued ones."""
        found = [e["event_data"]["res"] for e in self.events if e["event"] in ("runner_on_failed", "runner_item_on_failed")]
        return [str(res.get("msg", res)) for res in found]

    def ok(self) -> Outcome:
        """This outcome, which must be a success."""
        assert self.rc == 0, self.stdout[-6000:]
        return self


class Project:
    """The scratch copy, and the machine its inventory points at."""

    def __init__(self, folder: Path, machine: Machine, extra: Mapping[str, Any] | None = None) -> None:
        self.root = folder / "project"
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=True
        )
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        self.machine = machine
        self.inventory = self.root / "inventory" / "test.yml"
        self.write_inventory(extra or {})

    def write_inventory(self, extra: Mapping[str, Any], instances: Mapping[str, Sequence[str]] = INSTANCES) -> None:
        """inventory/lab.yml for this machine, and group_vars/test.yml, which outranks the lab's."""
        told = yaml.safe_load((ROOT / "inventory" / "lab.yml").read_text())
        groups = told["all"]["children"]
        hosts: dict[str, None] = dict.fromkeys([*(name for names in instances.values() for name in names), "node0"])
        lab = groups["labs"]["children"]["lab"]
        lab["vars"] |= {"ansible_host": self.machine.name, "ansible_ssh_common_args": f"-F {self.machine.ssh_config}"}
        lab["hosts"] = hosts
        groups["labs"]["children"]["test"] = {"vars": {"ansible_group_priority": 20}, "hosts": dict(hosts)}
        (self.root / "group_vars" / "test.yml").write_text(yaml.safe_dump(dict(extra)))
        self.inventory.write_text(yaml.safe_dump(told, sort_keys=False))

    def knob(self, file: str, variable: str, key: str, value: str) -> None:
        """Write one knob line as an operator would: the text of the value as it stands, replacing the line of that key if there is one."""
        path = self.root / "group_vars" / file
        lines = path.read_text().splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith(f"{variable}:"))
        lines[start] = f"{variable}:"
        end = next((i for i in range(start + 1, len(lines)) if lines[i] and not lines[i].startswith((" ", "#"))), len(lines))
        kept = [line for line in lines[start + 1 : end] if not line.strip().startswith(f"{key}:")]
        path.write_text("\n".join([*lines[: start + 1], f"  {key}: {value}", *kept, *lines[end:]]) + "\n")

    def play(self, playbook: str, *options: str, **extra: Any) -> Outcome:
        """Run a playbook to its end."""
        return self.watch(playbook, None, *options, **extra)

    def watch(self, playbook: str, handler: Callable[[dict[str, Any]], bool] | None, *options: str, **extra: Any) -> Outcome:
        """Run a playbook to its end, showing each of its events to `handler` as it happens."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        # a directory of its own: ansible-runner takes what an earlier call left there (options, variables) where this one gives none
        private = tempfile.mkdtemp(prefix="runner-", dir=self.root.parent)
        runner = ansible_runner.run(
            private_data_dir=private,
            project_dir=str(self.root),
            playbook=playbook,
            inventory=str(self.inventory),
            cmdline=" ".join(options),
            extravars=extra,
            envvars={**os.environ, "PATH": path, "ANSIBLE_CONFIG": str(self.root / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
            event_handler=handler,
            quiet=True,
        )
        stdout = Path(runner.config.artifact_dir, "stdout").read_text()
        return Outcome(runner.rc, stdout, list(runner.events), runner.stats or {})


def ledger(machine: Machine) -> list[dict[str, Any]]:
    """The machine's ledger, oldest entry first."""
    text = machine.exec("cat /var/lib/sglang-pd/ledger.jsonl 2>/dev/null", check=False).stdout
    return [json.loads(line) for line in text.splitlines()]


def instance(machine: Machine, unit: str) -> dict[str, str]:
    """Unit properties as systemd tells them, by a way that is not the product's own."""
    asked = "MainPID,NRestarts,ActiveState,InvocationID,ExecMainStartTimestampMonotonic,ControlGroup"
    text = machine.exec(["systemctl", "show", unit, "--property", asked]).stdout
    return dict(line.partition("=")[::2] for line in text.splitlines())

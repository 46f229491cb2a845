"""`make lab`: from nothing to an answered question, on this machine, then the commands to try next."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import ansible_runner
from rich.console import Console
from rich.panel import Panel

from lab.__main__ import DEFAULT
from lab.errors import LabError
from lab.machine import Machine
from lab.paths import REPO
from lab.progress import best

QUESTION = "What is the capital of France?"
ASK = """
import json, sys, urllib.request
body = json.dumps({"model": "smollm2", "messages": [{"role": "user", "content": sys.argv[1]}], "max_tokens": 32, "temperature": 0})
request = urllib.request.Request("http://127.0.0.1:30002/v1/chat/completions", body.encode(), {"Content-Type": "application/json"})
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""
NEXT = """\
turn a knob   edit SGLANG_SM120_MMA_TARGET_CTAS in group_vars/decode.yml, then
              .venv/bin/ansible-playbook -i inventory/lab.yml site.yml --check --diff    (and without --check)
restart       .venv/bin/ansible-playbook -i inventory/lab.yml restart-pd.yml
the ledger    .venv/bin/python -m lab shell -- tail -20 /var/lib/sglang-pd/ledger.jsonl
done          make lab-down"""


def converge() -> int:
    """Run site.yml against the lab machine, its output shown as it comes; the exit status."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # the venv's ansible-playbook, also when nobody activated it
    color = {"ANSIBLE_FORCE_COLOR": "1"} if sys.stdout.isatty() else {"ANSIBLE_NOCOLOR": "1"}
    with tempfile.TemporaryDirectory() as private:
        runner = ansible_runner.run(
            private_data_dir=private,
            project_dir=str(REPO),
            playbook="site.yml",
            inventory=str(REPO / "inventory" / "lab.yml"),
            envvars={"ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "PATH": path, **color},
        )
        return int(runner.rc)


def main() -> int:
    """Boot, converge, ask, tell."""
    console = Console()
    start = time.monotonic()
    try:
        machine = Machine(DEFAULT, keep=True, progress=best()).boot()
    except LabError as error:
        console.print(f"[red]{error}[/]")
        return 1
    console.print(f"[bold]site.yml[/] on {machine.name} ({machine.address})", highlight=False)
    if converge() != 0:
        return 1
    asked = time.monotonic()
    answer = json.loads(machine.exec(["python3", "-c", ASK, QUESTION]).stdout)["choices"][0]["message"]["content"]
    console.print(
        Panel(f"{QUESTION}\n[bold]{answer.strip()}[/]", title="router -> prefill -> NIXL -> decode", expand=False)
    )
    console.print(
        f"answered in {time.monotonic() - asked:.1f} s; all of it took {time.monotonic() - start:.0f} s\n",
        highlight=False,
    )
    console.print(NEXT, highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

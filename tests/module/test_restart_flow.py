"""restart-pd.yml's own order of things, forward, back and out, with every module played by a stub: which task runs after which failure."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.module.loaded import ROOT

STUB = '''
import json, os
from pathlib import Path
from ansible.plugins.action import ActionBase


def seen(name):
    """As the steps made so far have left it; at first everything runs `old`."""
    found = {"name": name, "active_state": "active", "generation": "old"}
    for line in Path(os.environ["FLOW"] + ".calls").read_text().splitlines():
        if line.endswith(f"stop {name}"):
            found |= {"active_state": "inactive", "generation": None}
        elif line.endswith(f"start {name}"):
            found |= {"active_state": "active", "generation": line.split()[1]}
    return found


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        told = json.loads(Path(os.environ["FLOW"]).read_text())
        args = self._task.args
        name = self._task.action
        step = (args.get("step") or {}).get("text", "")
        call = " ".join(filter(None, [name, str(args.get("state", "")), str(args.get("generation") or args.get("id") or ""), step]))
        with open(os.environ["FLOW"] + ".calls", "a") as file:
            file.write(call + "\\n")
        result = super().run(tmp, task_vars)
        answer = next((told[key] for key in told if call.startswith(key)), {})
        if name == "sglang_instance":
            answer = {"instance": seen(args["name"])}
        if name == "sglang_step":
            answer = {"gated": args["step"]["instance"], "reached": args["step"]["until"], **answer}
        return {**result, "changed": False, **answer}
'''
NODE = '''#!/usr/bin/python
import json, os
from pathlib import Path
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({key: {"type": "raw"} for key in ("run", "generation", "rollback", "failed", "plan")})
module.exit_json(**json.loads(Path(os.environ["FLOW"]).read_text())["evidence"])
'''
STUBBED = ("pd_check", "pd_preflight", "pd_generation", "sglang_instance", "pd_transaction", "pd_timeline", "sglang_step")
INVENTORY = {
    "all": {
        "vars": {
            **yaml.safe_load((ROOT / "roles" / "pd" / "defaults" / "main.yml").read_text()),
            **{"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "pd_rollback_on_failure": True},
            **{"pd_strategy": "ordered", "pd_request_timeout": 1, "pd_stop_deadline": 1, "pd_serve_deadline": 1, "pd_start_deadline": 1},
        },
        "children": {
            "nodes": {"hosts": {"node0": None}},
            "prefill": {"hosts": {"prefill0": None}},
            "decode": {"hosts": {"decode0": None}},
            "routers": {"hosts": {"router0": None}},
        },
    }
}
DEAD = {"failed": True, "msg": "decode0 did not reach `working`\nmore", "gated": "decode0", "verdict": {"state": "DEAD", "rung": "alive"}}
FORWARD = {"pd_generation": {"id": "new", "good": False, "current": "old", "usual": {}, "at": "T"}}
EVIDENCE = {"begun": True, "bad": True, "why_not": "", "causes": ["c"], "routers": {"router0": "inactive"}, "files": {"summary.txt": "s"}}
BACK = {"back": {"id": "old", "good": False, "current": "new", "usual": {}, "from": "new"}}


@dataclass(frozen=True)
class Flow:
    """One run: its exit status, what was called in order, what it printed."""

    rc: int
    calls: list[str]
    said: str

    def acts(self) -> list[str]:
        """What was done to the machine, in order, without the words that are the same everywhere."""
        acts = [call for call in self.calls if call.startswith(("pd_transaction", "sglang_step", "pd_generation "))]
        return [call.removeprefix("pd_").removeprefix("sglang_step ") for call in acts]

    def last_words(self) -> str:
        """The message of the task that failed last, on one line."""
        return " ".join(self.said[self.said.rindex("msg:") : self.said.index("PLAY RECAP")].split())


def play(folder: Path, answers: dict[str, Any], *options: str) -> Flow:
    """Run restart-pd.yml as it is, with stubs that answer by the longest key that their call begins with."""
    for name in ("restart-pd.yml", "tasks", "ansible.cfg", "module_utils"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, folder / name)
    for part in ("action_plugins", "library"):
        (folder / part).mkdir()
    for name in STUBBED:
        (folder / "action_plugins" / f"{name}.py").write_text(STUB)
        shutil.copy2(ROOT / "library" / f"{name}.py", folder / "library")
    for name in ("pd_plan", "pd_evidence"):
        shutil.copy2(ROOT / "action_plugins" / f"{name}.py", folder / "action_plugins")
        shutil.copy2(ROOT / "library" / f"{name}.py", folder / "library")
    (folder / "library" / "pd_evidence.py").write_text(NODE)
    (folder / "library" / "pd_load.py").write_text(NODE.replace('["evidence"]', '["pd_load"]'))
    (folder / "hosts.yml").write_text(yaml.safe_dump(INVENTORY))
    longest_first = dict(sorted(({**FORWARD, "pd_load": {"told": {}, "load": {}, "at": {}}} | answers).items(), key=lambda item: -len(item[0])))
    (folder / "flow").write_text(json.dumps(longest_first))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "restart-pd.yml", *options]
    environ = {**os.environ, "FLOW": str(folder / "flow"), "ANSIBLE_NOCOLOR": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=100)
    calls = (folder / "flow.calls").read_text().splitlines()
    return Flow(done.returncode, calls, done.stdout)


def bring_up(generation: str) -> list[str]:
    """All that is done to bring a generation up while another one runs; on the way back the router is stopped already."""
    steps = ["stop router0"] if generation == "new" else []
    steps += ["drain prefill0, decode0", "stop prefill0", "start prefill0", "gate prefill0 until working"]
    steps += ["stop decode0", "start decode0", "gate decode0 until working", "start router0", "gate router0 until serving"]
    steps += ["watch prefill0, decode0, router0"]
    made = [f"{generation} {step}" for step in steps]
    return [f"transaction open {generation}", f"generation current {generation}", *made, f"generation good {generation}"]


CLOSED = "transaction closed new"


def until(acts: list[str], last: str) -> list[str]:
    """The acts up to one of them."""
    return acts[: acts.index(last) + 1]


def test_forward(tmp_path: Path) -> None:
    done = play(tmp_path, {})
    assert done.rc == 0, done.said
    assert done.acts() == [*bring_up("new"), CLOSED]


def test_a_failed_gate_leads_back_once_and_the_run_still_fails(tmp_path: Path) -> None:
    done = play(tmp_path, {"sglang_step new gate decode0": DEAD, "evidence": EVIDENCE | BACK}, "-v")
    assert done.rc != 0
    forward = until(bring_up("new"), "new gate decode0 until working")
    assert done.acts() == [*forward, "generation bad new", *bring_up("old"), CLOSED]
    assert "Rolled back: generation old serves again since T." in done.last_words()
    assert "group_vars ask for generation new, the machine runs old." in done.last_words()
    folder = next((tmp_path / "runs").iterdir())
    assert done.last_words().endswith(f"{folder}/evidence"), done.said
    assert (folder / "evidence" / "summary.txt").read_text() == "s"
    assert set(re.findall(r"folder: (\S+)", done.said)) == {str(folder)}, "a run has one folder, also when it plans twice"


def test_the_way_back_is_not_tried_twice(tmp_path: Path) -> None:
    dead = {"sglang_step new gate decode0": DEAD, "sglang_step old gate prefill0": {**DEAD, "msg": "prefill0 did not either"}}
    done = play(tmp_path, {**dead, "evidence": EVIDENCE | BACK})
    assert done.rc != 0
    forward = until(bring_up("new"), "new gate decode0 until working")
    back = until(bring_up("old"), "old gate prefill0 until working")
    assert done.acts() == [*forward, "generation bad new", *back, "generation bad old", CLOSED]
    assert "The rollback to old failed too: prefill0 did not either" in done.last_words()
    assert "NOT proven to serve: router0 is inactive" in done.last_words()
    folder = next((tmp_path / "runs").iterdir()) / "evidence"
    assert done.last_words().endswith(str(folder))
    assert (folder / "rollback" / "summary.txt").exists()


@pytest.mark.parametrize(
    ("failing", "evidence", "acts", "said"),
    [
        pytest.param(
            {"pd_transaction open": {"failed": True, "msg": "held by ada"}},
            {"begun": False, "bad": False, "back": None},
            ["transaction open new", CLOSED],
            "held by ada",
            id="the lock is refused: nothing was begun",
        ),
        pytest.param(
            {"sglang_step new gate decode0": DEAD},
            EVIDENCE | {"back": None, "why_not": "pd_rollback_on_failure is false"},
            [*until(bring_up("new"), "new gate decode0 until working"), "generation bad new", CLOSED],
            "Not rolled back: pd_rollback_on_failure is false.",
            id="not wanted",
        ),
        pytest.param(
            {"sglang_step new stop prefill0": {"failed": True, "msg": "it does not stop"}},
            EVIDENCE | {"bad": False, "back": None, "why_not": "no gate spoke"},
            [*until(bring_up("new"), "new stop prefill0"), CLOSED],
            "Not rolled back: no gate spoke.",
            id="no verdict about the generation",
        ),
        pytest.param(
            {"pd_generation good": {"failed": True, "msg": "disk full"}},
            EVIDENCE | {"bad": False, "back": None, "why_not": "no gate spoke"},
            [*bring_up("new"), CLOSED],
            "disk full",
            id="all gates passed, the mark could not be written",
        ),
    ],
)
def test_what_does_not_lead_back(tmp_path: Path, failing: dict[str, Any], evidence: dict[str, Any], acts: list[str], said: str) -> None:
    done = play(tmp_path, {**failing, "evidence": EVIDENCE | evidence})
    assert done.rc != 0
    assert done.acts() == acts
    assert said in done.last_words()


def test_what_is_refused_before_the_plan_is_no_transaction(tmp_path: Path) -> None:
    done = play(tmp_path, {"pd_generation": {"failed": True, "msg": "changed by hand"}, "evidence": EVIDENCE})
    assert done.rc != 0
    assert done.acts() == []
    assert not (tmp_path / "runs").exists()


def test_a_machine_that_cannot_be_read_still_leaves_what_is_known_here(tmp_path: Path) -> None:
    done = play(tmp_path, {"sglang_step new gate decode0": DEAD, "evidence": {"failed": True, "msg": "no ops venv"}})
    assert done.rc != 0
    assert "Not rolled back: the machine could not be read." in done.last_words()
    folder = next((tmp_path / "runs").iterdir()) / "evidence"
    assert done.last_words().endswith(str(folder))
    assert "- everything on the machine: no ops venv" in (folder / "summary.txt").read_text()
    plan = (folder / "plan.txt").read_text()
    assert "done      start decode0" in plan and "FAILED    gate decode0 until working" in plan and "not made  start router0" in plan

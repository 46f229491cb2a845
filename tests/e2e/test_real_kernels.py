"""The plugin of kernels/ in the real engine: in every process, refused where it cannot be, and its guards against stock behaviour."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import yaml

from tests.e2e import storm
from tests.support.pairs import UNITS, Pair
from tests.support.project import ledger

pytestmark = pytest.mark.e2e
ENGINES = {"prefill0": 30000, "decode0": 30001}
LIMIT, PATIENCE = 10, 45
"""PD_INFLIGHT_TIMEOUT of these tests, and how long their clients wait; seconds."""
AT_ONCE = {"pd_strategy": "overlapped"}
"""Both engines load at once: 37 s instead of 2 x 23 s (lab-facts)."""
PROCESSES = """
import json, pathlib, subprocess, sys
cgroup = subprocess.run(["systemctl", "show", "-P", "ControlGroup", sys.argv[1]], capture_output=True, text=True).stdout.strip()
found = {}
for proc in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if any(line.endswith(cgroup) for line in (proc / "cgroup").read_text().splitlines()):
            found[proc.name] = (proc / "cmdline").read_text().replace(chr(0), " ")
    except FileNotFoundError:
        pass
reports = {file.stem: json.loads(file.read_text()) for file in pathlib.Path("/var/cache/sglang-pd/kernels", sys.argv[2]).glob("*.json")}
print(json.dumps([found, reports]))
"""


def processes(pair: Pair, name: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The command lines of an instance's processes, and the reports that lie in its directory; both by pid."""
    found, reports = json.loads(pair.machine.exec(["python3", "-c", PROCESSES, UNITS[name], name]).stdout)
    return found, reports


def test_the_plugin_is_in_every_process_and_says_so(real: Pair) -> None:
    for name, port in ENGINES.items():
        found, reports = processes(real, name)
        engine = {pid: title for pid, title in found.items() if title.startswith("sglang::") or "sglang.launch_server" in title}
        assert len(engine) == 3, found
        assert set(engine) == set(reports), "one report a process, none of a process that is gone"
        for pid, title in engine.items():
            hooks = reports[pid]["kernels"]["guards"]["hooks"]
            assert (len(hooks) == 4 and set(hooks.values()) == {True}) if title.startswith("sglang::scheduler") else hooks == {}
        told = json.loads(storm.get(real.machine, f"http://127.0.0.1:{port}/server_info"))
        (state,) = told["internal_states"]
        assert str(state["pd_kernels"]["pid"]) in engine and list(state["pd_kernels"]["kernels"]) == ["guards"]
    done = real.project.play("verify.yml").ok()
    (table,) = done.results("Climb every rung of every instance")
    assert all("with guards" in row["why"] for row in table["rows"] if row["instance"] in ENGINES), table["rows"]


@pytest.fixture
def nobody_restarts(real: Pair) -> Iterator[None]:
    """What a dead decode does to the others, without anybody bringing it back meanwhile."""
    folder = "/run/systemd/system/sglang-recover@.service.d"
    real.machine.exec(f"mkdir -p {folder} && printf '[Service]\\nExecStart=\\nExecStart=/bin/true\\n' > {folder}/test.conf")
    real.machine.exec("systemctl daemon-reload")
    yield
    real.machine.exec(f"rm -r {folder} && systemctl daemon-reload")


@pytest.mark.usefixtures("nobody_restarts")
def test_guards_the_clients_of_a_dead_decode_are_told(real: Pair) -> None:
    """kill -9 with 8 requests running: each gets an error, and the prefill is empty again."""
    real.project.knob("lab.yml", "engine_common_env", "PD_INFLIGHT_TIMEOUT", str(LIMIT))
    real.project.play("site.yml", **AT_ONCE).ok()
    told, killed = storm.eight_requests_and_no_decode(real.machine, patience=PATIENCE)
    assert all(one["status"] >= 500 for one in told), told
    assert max(one["at"] for one in told) - killed < 2 * LIMIT + 10, "the router may have tried each request once more"
    assert storm.drained(real.machine, LIMIT + 5) == (0, 0)
    text = storm.get(real.machine, "http://127.0.0.1:30000/metrics")
    counted = [line for line in text.splitlines() if line.startswith('pd_inflight_aborted_total{queue="prefill bootstrap"')]
    assert len(counted) == 1 and float(counted[0].rpartition(" ")[2]) >= storm.COUNT, text


@pytest.mark.usefixtures("nobody_restarts")
def test_guards_off_the_same_clients_hang(real: Pair) -> None:
    """SGLang alone, in the same test: nobody is told anything, and the prefill keeps the requests (lab-facts)."""
    real.project.play("site.yml", engine_kernels=[], **AT_ONCE).ok()
    assert not [env for name in ENGINES for env in real.environs(name) if "PD_KERNELS" in env], "not a trace of it"
    told, _ = storm.eight_requests_and_no_decode(real.machine, patience=PATIENCE)
    assert [one["status"] for one in told] == [0] * storm.COUNT and all("timed out" in one["said"] for one in told), told
    assert sum(storm.queues(real.machine)) > 0


def test_guards_an_engine_without_its_bootstrap_thread_ends(real: Pair) -> None:
    """Where SGLang alone stays healthy (test_real_pair.py), systemd and the gate see a death, and the journal says of what."""
    real.project.knob("prefill.yml", "engine_env", "PD_LAB_FAULT", "bootstrap-thread-dies")
    assert real.project.play("site.yml", pd_serve_deadline=60, pd_request_timeout=12, **AT_ONCE).rc != 0
    journal = real.machine.journal(unit="sglang-engine@prefill0")
    assert "pd_kernels: guards: the thread" in journal and "The engine ends itself." in journal
    assert "code=killed, status=9/KILL" in journal.partition("The engine ends itself.")[2]


BOGUS = "pd_kernels: PD_KERNELS=guards,bogus: there is no kernel 'bogus'."
BANANA = "pd_kernels: PD_INFLIGHT_TIMEOUT='banana' (a knob of guards): it must be"


def without_the_rule(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that judges less than the release does, as when only one of them was updated."""
    path = pair.project.root / "module_utils" / "pd" / "kernels.py"
    rule = "def problems(spec: Spec) -> Iterator[Problem]:\n"
    taken_out = rule + "    yield from ()\n\n\n" + rule.replace("problems", "judged")
    path.write_text(path.read_text().replace(rule, taken_out))
    monkeypatch.setenv("PYTHONPATH", str(path.parent.parent))


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [("engine_kernels", ["guards", "bogus"], BOGUS), ("engine_common_env", {"PD_INFLIGHT_TIMEOUT": "banana"}, BANANA)],
    ids=["a name that no kernel has", "a malformed knob"],
)
def test_what_slips_past_the_plan_dies_at_the_start_and_the_gate_says_why(
    real: Pair, monkeypatch: pytest.MonkeyPatch, variable: str, value: Any, line: str
) -> None:
    without_the_rule(real, monkeypatch)
    good = real.generation()
    told = yaml.safe_load((real.project.root / "group_vars" / "lab.yml").read_text())[variable]
    done = real.project.play("restart-pd.yml", **AT_ONCE, **{variable: {**told, **value} if isinstance(told, dict) else value})
    said = "\n".join(done.failures())
    assert done.rc != 0 and "prefill0 did not reach `working`: DEAD at `alive`" in said and line in said, said
    died = storm.journal_time(real.machine, "sglang-engine@prefill0", line)
    verdict = [e for e in ledger(real.machine) if e["event"] == "gate" and e["instance"] == "prefill0" and e["state"] == "DEAD"][-1]
    assert datetime.fromisoformat(verdict["ts"]).timestamp() - died < 5
    assert f"Rolled back: generation {good} serves again since" in said and real.generation() == good
    assert "Paris" in real.ask("What is the capital of France?")["choices"][0]["message"]["content"]

"""The plugin of kernels/ in the real engine: in every process, refused where it cannot be, and its guards against stock behaviour."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.pairs import UNITS, Pair

pytestmark = pytest.mark.e2e
ENGINES = ("prefill0", "decode0")
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
SERVER_INFO = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1] + '/server_info', timeout=10).read().decode())"


def processes(pair: Pair, name: str) -> tuple[dict[str, str], dict[str, Any]]:
    """The command lines of an instance's processes, and the reports that lie in its directory; both by pid."""
    found, reports = json.loads(pair.machine.exec(["python3", "-c", PROCESSES, UNITS[name], name]).stdout)
    return found, reports


def test_the_plugin_is_in_every_process_and_says_so(real: Pair) -> None:
    for name, port in (("prefill0", 30000), ("decode0", 30001)):
        found, reports = processes(real, name)
        engine = {pid: title for pid, title in found.items() if title.startswith("sglang::") or "sglang.launch_server" in title}
        assert len(engine) == 3, found
        assert set(engine) == set(reports), "one report a process, none of a process that is gone"
        for pid, title in engine.items():
            hooks = reports[pid]["kernels"]["guards"]["hooks"]
            assert (len(hooks) == 4 and set(hooks.values()) == {True}) if title.startswith("sglang::scheduler") else hooks == {}
        told = json.loads(real.machine.exec(["python3", "-c", SERVER_INFO, f"http://127.0.0.1:{port}"]).stdout)
        (state,) = told["internal_states"]
        assert str(state["pd_kernels"]["pid"]) in engine and list(state["pd_kernels"]["kernels"]) == ["guards"]
    done = real.project.play("verify.yml").ok()
    (table,) = done.results("Climb every rung of every instance")
    assert all("with guards" in row["why"] for row in table["rows"] if row["instance"] in ENGINES), table["rows"]

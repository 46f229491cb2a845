"""A machine with a pair on it and the project that runs it, whichever engine it is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import lab
from tests.support.project import ROOT, Project

UNITS = {"prefill0": "sglang-engine@prefill0", "decode0": "sglang-engine@decode0", "router0": "sglang-router@router0"}
ROUTER = "http://127.0.0.1:30002"
AWAIT_READY = f"""
import time, urllib.request
while True:
    try:
        urllib.request.urlopen("{ROUTER}/readiness", timeout=2)
        break
    except OSError:
        time.sleep(0.1)
"""
ENVIRONS = """
import json, pathlib, subprocess, sys
cgroup = subprocess.run(["systemctl", "show", "-P", "ControlGroup", sys.argv[1]], capture_output=True, text=True).stdout.strip()
found = []
for proc in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if any(line.endswith(cgroup) for line in (proc / "cgroup").read_text().splitlines()):
            raw = (proc / "environ").read_bytes().split(bytes(1))
            found.append(dict(p.decode(errors="surrogateescape").split("=", 1) for p in raw if b"=" in p))
    except FileNotFoundError:
        pass
print(json.dumps(found))
"""
ASK = f"""
import json, sys, urllib.request
body = json.dumps({{"model": "any", "messages": [{{"role": "user", "content": sys.argv[1]}}], "max_tokens": int(sys.argv[2]), "temperature": 0}})
headers = {{"Content-Type": "application/json", **json.loads(sys.argv[3])}}
request = urllib.request.Request("{ROUTER}/v1/chat/completions", body.encode(), headers)
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""


@dataclass(frozen=True)
class Pair:
    """The machine and the project of one test. Everything here is observed by ways that are not the product's own."""

    machine: lab.Machine
    project: Project

    def pids(self) -> dict[str, str]:
        """Instance -> MainPID as systemd tells it, "0" when it does not run."""
        shown = self.machine.exec(["systemctl", "show", "-P", "MainPID", *UNITS.values()]).stdout.split()
        return dict(zip(UNITS, shown, strict=True))

    def environs(self, instance: str) -> list[dict[str, str]]:
        """The environment of every process of an instance, straight from /proc."""
        found: list[dict[str, str]] = json.loads(self.machine.exec(["python3", "-c", ENVIRONS, UNITS[instance]]).stdout)
        assert found, f"{instance} has no process"
        return found

    def ask(self, question: str, tokens: int = 32, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """A chat completion through the router."""
        asked = ["python3", "-c", ASK, question, str(tokens), json.dumps(headers or {})]
        answer: dict[str, Any] = json.loads(self.machine.exec(asked, timeout=90).stdout)
        return answer

    def status(self, url: str) -> int:
        """The HTTP status of a GET made on the machine."""
        code = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).status)"
        return int(self.machine.exec(["python3", "-c", code, url]).stdout)

    def generation(self) -> str:
        """What `current` points to."""
        return self.machine.exec(["readlink", "/etc/sglang-pd/current"]).stdout.strip().rpartition("/")[2]

    def changed_lines(self, one: str, other: str) -> list[str]:
        """How two generations differ, without what only names them."""
        compare = f"cd /etc/sglang-pd/generations && diff -r -x manifest.json -x generation.env {one} {other}"
        return [line for line in self.machine.exec(compare, check=False).stdout.splitlines() if line[:1] in "<>"]


def serving(machine: lab.Machine, seconds: float = 60) -> None:
    """Wait until the router has both workers, as after a boot."""
    machine.exec(["python3", "-c", AWAIT_READY], timeout=seconds)


def digest(places: Iterable[str], extra: object = None) -> str:
    """Of every file of these places, and of `extra`: an image is made anew when any of it changes."""
    found = hashlib.sha256(json.dumps(extra, sort_keys=True).encode())
    for place in places:
        for file in sorted((ROOT / place).rglob("*") if (ROOT / place).is_dir() else [ROOT / place]):
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return found.hexdigest()

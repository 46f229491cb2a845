"""Eight requests at once through the router, and a decode that is killed under them: what each client gets, and when."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import lab
from tests.support.pairs import ROUTER, UNITS

COUNT = 8
CLIENTS = f"""
import concurrent.futures, json, sys, time, urllib.error, urllib.request
patience = float(sys.argv[1])
def ask(number):
    messages = [{{"role": "user", "content": f"Tell story number {{number}}."}}]
    body = json.dumps({{"model": "any", "messages": messages, "max_tokens": 600, "ignore_eos": True, "temperature": 0}}).encode()
    request = urllib.request.Request("{ROUTER}/v1/chat/completions", body, {{"Content-Type": "application/json"}})
    try:
        with urllib.request.urlopen(request, timeout=patience) as answer:
            got = [answer.status, answer.read().decode()]
    except urllib.error.HTTPError as error:
        got = [error.code, error.read().decode()]
    except OSError as error:
        got = [0, str(error)]
    return {{"status": got[0], "said": got[1][-600:], "at": time.time()}}
with concurrent.futures.ThreadPoolExecutor({COUNT}) as pool:
    print(json.dumps(list(pool.map(ask, range({COUNT})))))
"""
GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
KILL = "import os, sys, time; os.kill(int(sys.argv[1]), 9); print(time.time())"


def get(machine: lab.Machine, url: str) -> str:
    """The body of a GET made on the machine."""
    return machine.exec(["python3", "-c", GET, url]).stdout


def loads(machine: lab.Machine, port: int) -> dict[str, Any]:
    """The one row of an engine's load report."""
    (row,) = json.loads(get(machine, f"http://127.0.0.1:{port}/v1/loads?include=all"))["loads"]
    told: dict[str, Any] = row
    return told


def queues(machine: lab.Machine) -> tuple[int, int]:
    """Requests in the prefill's bootstrap queue and in its in-flight queue."""
    told = loads(machine, 30000)["disaggregation"]
    return told["prefill_bootstrap_queue_reqs"], told["prefill_inflight_queue_reqs"]


def drained(machine: lab.Machine, seconds: float) -> tuple[int, int]:
    """`queues` once both are empty, or as they are after `seconds`."""
    deadline = time.monotonic() + seconds
    while any(found := queues(machine)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def journal_time(machine: lab.Machine, unit: str, line: str) -> float:
    """When a unit wrote a line last, seconds since the epoch on the machine's clock."""
    entries = machine.exec(["journalctl", "--no-pager", "--output=json", f"--unit={unit}"]).stdout.splitlines()
    found = [entry for entry in map(json.loads, entries) if line in str(entry.get("MESSAGE"))]
    return int(found[-1]["__REALTIME_TIMESTAMP"]) / 1e6


def eight_requests_and_no_decode(machine: lab.Machine, patience: float) -> tuple[list[dict[str, Any]], float]:
    """Kill decode's main process (9) once all requests run in it; what every client got, and when decode was killed (epoch, the machine's clock)."""
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(machine.exec, ["python3", "-c", CLIENTS, str(patience)], timeout=patience + 120)
        deadline = time.monotonic() + 90
        while loads(machine, 30001)["num_running_reqs"] < COUNT:
            assert time.monotonic() < deadline and not asking.done(), loads(machine, 30001)
            time.sleep(0.2)
        pid = machine.exec(["systemctl", "show", "-P", "MainPID", UNITS["decode0"]]).stdout.strip()
        killed = float(machine.exec(["python3", "-c", KILL, pid]).stdout)
        told: list[dict[str, Any]] = json.loads(asking.result().stdout)
    return told, killed

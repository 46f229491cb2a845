"""Kill one process of a pair while clients wait, and tell what they saw and when the next request was served."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.support.pairs import ROUTER, UNITS, Pair

TRIAL = f"""
import json, os, signal, subprocess, sys, threading, time, urllib.error, urllib.request
told = json.loads(sys.argv[1])
now = time.monotonic

def ask(tokens, timeout):
    body = {{"model": "any", "messages": [{{"role": "user", "content": f"{{now()}} Tell me about the ocean."}}], "temperature": 0}}
    body |= {{"max_tokens": tokens, "ignore_eos": True}}
    request = urllib.request.Request("{ROUTER}/v1/chat/completions", json.dumps(body).encode(), {{"Content-Type": "application/json"}})
    try:
        got = json.loads(urllib.request.urlopen(request, timeout=timeout).read())
        return "served" if got["usage"]["completion_tokens"] > 0 else "200 without a token"
    except urllib.error.HTTPError as error:
        return f"HTTP {{error.code}}"
    except TimeoutError:
        return "timeout"
    except urllib.error.URLError as error:
        return "timeout" if isinstance(error.reason, TimeoutError) else type(error.reason).__name__
    except (OSError, ValueError) as error:
        return type(error).__name__

def running():
    got = json.loads(urllib.request.urlopen("http://127.0.0.1:30001/v1/loads?include=all", timeout=5).read())
    return sum(row["num_running_reqs"] for row in got["loads"])

clients = []
def client():
    saw = ask(told["tokens"], told["patience"])
    clients.append({{"saw": saw, "at": now()}})

threads = [threading.Thread(target=client) for _ in range(told["clients"])]
for thread in threads:
    thread.start()
limit = now() + 60
while told["clients"] and running() < told["clients"] and now() < limit:
    time.sleep(0.05)
was = running() if told["clients"] else 0
pid = int(subprocess.run(["systemctl", "show", "-P", "MainPID", told["unit"]], capture_output=True, text=True).stdout)
killed = now()
os.kill(pid, signal.SIGKILL)
time.sleep(told["wait_before_asking"])
probes = []
while now() < killed + told["limit"]:
    began = now()
    saw = ask(1, told["probe_timeout"])
    probes.append({{"saw": saw, "at": now() - killed, "took": now() - began}})
    if saw == "served":
        break
    time.sleep(0.2)
for thread in threads:
    thread.join()
for one in clients:
    one["at"] -= killed
print(json.dumps({{"running": was, "clients": clients, "probes": probes}}))
"""


IDLE = "while systemctl list-units --no-legend --plain --state=active,activating 'sglang-recover@*' | grep -q .; do sleep 0.1; done"
"""For a machine's shell: until no recovery is at work."""


@dataclass(frozen=True)
class Trial:
    """What one kill did. Seconds are from the kill; `served` is None when no request was served within the limit."""

    target: str
    running: int
    clients: tuple[dict[str, Any], ...]
    probes: tuple[dict[str, Any], ...]

    @property
    def served(self) -> float | None:
        """When the first request that was made afterwards was answered."""
        return next((probe["at"] for probe in self.probes if probe["saw"] == "served"), None)

    def told(self) -> dict[str, Any]:
        """For a report."""
        last = max((client["at"] for client in self.clients), default=None)
        return {
            "killed": self.target,
            "running": self.running,
            "clients_saw": dict(Counter(client["saw"] for client in self.clients)),
            "last_client_was_told_after_s": None if last is None else round(last, 2),
            "probes_saw": dict(Counter(probe["saw"] for probe in self.probes)),
            "first_served_after_s": None if self.served is None else round(self.served, 2),
        }


def kill(
    pair: Pair, target: str, clients: int = 0, *, tokens: int = 400, patience: float = 90, limit: float = 240, probe_timeout: float = 10,
    wait_before_asking: float = 0.0,
) -> Trial:  # fmt: skip
    """kill -9 of the main process of `target` while `clients` requests run, then one request after the other until one is served.

    `patience` is a client's own timeout; `wait_before_asking`: seconds between the kill and the first of those requests.
    """
    asked = {"unit": UNITS[target], "clients": clients, "tokens": tokens, "patience": patience, "limit": limit}
    asked |= {"probe_timeout": probe_timeout, "wait_before_asking": wait_before_asking}
    done = pair.machine.exec(["python3", "-c", TRIAL, json.dumps(asked)], timeout=limit + patience + 120)
    told = json.loads(done.stdout)
    return Trial(target, told["running"], tuple(told["clients"]), tuple(told["probes"]))

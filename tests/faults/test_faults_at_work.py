"""The pair serves, or only seems to, when the restart is asked for; and two who ask for it at once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.faults import clients
from tests.faults.acts import (
    VARIABLES,
    Arrange,
    at_a_terminal,
    both,
    command,
    environment,
    play,
    restart,
    scripted,
    seen,
    then,
    unattended,
)
from tests.faults.scenario import Before, Scenario, answer, carry_out, fate, invocations, line
from tests.support.cuts import after, controllers, meanwhile
from tests.support.pairs import ROUTER, Pair
from tests.support.project import Outcome, Project, ledger

pytestmark = pytest.mark.host
NEW = "new new new"
LOCK = "/var/lib/sglang-pd/lock"
OPEN = r"""
import re, time, urllib.request
while not re.search("^smg_worker_cb_state.* 1(.0)?$", urllib.request.urlopen("http://127.0.0.1:29000/metrics").read().decode(), re.M):
    time.sleep(0.1)
"""
"""Ends once a circuit is open."""
WORKERS = f"python3 -c 'import urllib.request as u; print(u.urlopen(\"{ROUTER}/workers\").read().decode())'"


def circuits_open(pair: Pair) -> None:
    """A burst of failures opened the router's circuits; the engine is healthy again, health and readiness say so, nobody is served."""
    for engine in ("prefill0", "decode0"):
        scripted(engine, answer_status=500)(pair)
    for _ in range(2):
        assert "500" in answer(pair, 20)
    pair.machine.exec(["python3", "-c", OPEN], timeout=10)
    for engine in ("prefill0", "decode0"):
        scripted(engine)(pair)
    assert pair.status(f"{ROUTER}/readiness") == 200
    assert "503" in answer(pair, 10)


def busy(count: int, tokens: int, **faults: float) -> Arrange:
    """That many real streams in flight."""
    return both(scripted("decode0", **faults), lambda pair: clients.start(pair, count, tokens))


def told_by_clients(pair: Pair) -> Outcome:
    """How the streams ended, as a line."""
    return Outcome(0, f"clients: {json.dumps(clients.ended(pair), sort_keys=True)}", [])


def another_port(pair: Pair) -> None:
    path = pair.project.root / "group_vars" / "decode.yml"
    path.write_text(path.read_text().replace("engine_port: 30001", "engine_port: 30011"))


SCENARIOS = {
    "worker healthy but circuit open": Scenario(
        then(play("verify.yml"), restart), "serves", ("circuit",), NEW, circuits_open, ("good", "end done"), reports=("033", "034", "041"),
    ),
    "worker list from before the restart": Scenario(
        then(restart, seen(WORKERS)), "serves", (r'"url":\s*"http://127.0.0.1:30011"',), NEW, another_port, ("good", "end done"),
        never=(r'"url":\s*"http://127.0.0.1:30001"',), reports=("036",),
    ),
    "53 requests running, they end in time": Scenario(
        then(play("restart-pd.yml", pd_drain_timeout=60), told_by_clients), "serves", ("53 running", r'clients: \{"answered": 53\}'), NEW,
        busy(53, 200, token_seconds=0.1), ("drained", "good", "end done"), never=("requests were cut",),
    ),
    "53 requests running, the time to drain ends": Scenario(
        then(play("restart-pd.yml", pd_drain_timeout=3), told_by_clients), "serves", ("53 requests were cut",), NEW,
        busy(53, 500, token_seconds=0.2), ("drained", "good", "end done"), never=(r'clients: \{"answered": 53\}',),
    ),
    "53 requests running, the operator says yes": Scenario(
        at_a_terminal("restart-pd.yml", r"Go on\? \[yes/no\]", "yes", pd_confirm_over_running=10), "serves", ("53 requests are in flight",), NEW,
        busy(53, 150, token_seconds=0.2), ("good", "end done"),
    ),
    "53 requests running, and that many are agreed to": Scenario(
        unattended("restart-pd.yml", pd_confirm_over_running=60), "serves", ("53 running",), NEW,
        busy(53, 150, token_seconds=0.2), ("good", "end done"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCENARIOS)
def test_a_pair_at_work(pair: Pair, case: str) -> None:
    carry_out(SCENARIOS[case], pair)


def test_two_runs_at_once(pair: Pair, tmp_path: Path) -> None:
    """The second is told in seconds who is at work, since when and at which step; it stops nothing, and the first goes on."""
    scripted("prefill0", load_seconds=18)(pair)
    second = Project(tmp_path / "second", pair.machine, VARIABLES)
    told: list[tuple[Outcome, float]] = []

    def ask() -> None:
        start = time.monotonic()
        told.append((second.play("restart-pd.yml"), time.monotonic() - start))

    before = Before(invocations(pair), pair.generation(), len(ledger(pair.machine)))
    thread = threading.Thread(target=ask)
    meanwhile(pair, "restart-pd.yml", after("start prefill0"), thread.start).ok()
    thread.join()
    ((refused, seconds),) = told
    said = "\n".join(refused.failures())
    assert refused.rc != 0 and seconds < 25
    assert re.search(r"held by \S+@\S+ since \S+ \(restart asked for\), at `gate prefill0 until working`", said), said
    assert "Nothing was stopped" in said
    left = [line(entry) for entry in ledger(pair.machine)[before.entries :]]
    assert [left.count(f"start {name}") for name in ("prefill0", "decode0", "router0")] == [1, 1, 1]
    assert fate(before, pair) == NEW and answer(pair) == ""


def test_a_dead_controller_elsewhere_holds_the_lock_for_its_lease(pair: Pair) -> None:
    """From here nobody can see that a process of another host died: it is refused in seconds, and taken over once the lease is over."""
    before = Before(invocations(pair), pair.generation(), len(ledger(pair.machine)))
    elsewhere = ["unshare", "--uts", "sh", "-c", 'hostname elsewhere && exec "$@"', "sh", *command(pair, "restart-pd.yml")]
    holder = subprocess.Popen(elsewhere, cwd=pair.project.root, env=environment(pair), stdout=subprocess.DEVNULL)
    pair.machine.exec(f"while ! test -e {LOCK}; do sleep 0.05; done", timeout=60)
    for pid in controllers(pair):
        os.kill(pid, signal.SIGKILL)
    holder.wait()
    refused = pair.project.play("restart-pd.yml")
    assert refused.rc != 0 and "@elsewhere since" in "\n".join(refused.failures())
    aged = f"import json; p = '{LOCK}'; held = json.load(open(p)); held['renewed'] -= 60; open(p, 'w').write(json.dumps(held))"
    pair.machine.exec(["python3", "-c", aged])
    pair.project.play("restart-pd.yml").ok()
    entries = ledger(pair.machine)[before.entries :]
    (taken,) = [entry for entry in entries if entry["event"] == "takeover"]
    assert taken["from_who"].endswith("@elsewhere")
    assert [line(entry) for entry in entries].count("end abandoned") == 1
    assert fate(before, pair) == NEW and answer(pair) == ""

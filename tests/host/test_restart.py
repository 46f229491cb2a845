"""restart-pd.yml: order, ledger, and what is left when something dies half way."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import pytest

from tests.support import double
from tests.support.cuts import done_step, kill_when
from tests.support.pairs import Pair
from tests.support.project import ledger

pytestmark = pytest.mark.host


def starts(pair: Pair, instance: str) -> int:
    """How often the ledger says an instance was started."""
    return sum(e["event"] == "start" and e["instance"] == instance for e in ledger(pair.machine))


def test_restarts_all_three_in_order_with_times(pair: Pair) -> None:
    """Done-when 4: start, each gate and end, with times, and the same files under a new nonce."""
    mark, before = len(ledger(pair.machine)), pair.pids()
    done = pair.project.play("restart-pd.yml").ok()
    entries = ledger(pair.machine)[mark:]
    events = [e["event"] for e in entries]
    assert (events[0], events[-2:]) == ("begin", ["good", "end"])
    assert [e["instance"] for e in entries if e["event"] == "gate"] == ["prefill0", "decode0", "router0"]
    assert all(e["seconds"] > 0 for e in entries if e["event"] == "gate")
    assert [e["ts"] for e in entries] == sorted(e["ts"] for e in entries)
    assert all(pair.pids()[name] != pid for name, pid in before.items())
    (told,) = done.results("Write the generation that is asked for")
    assert told["diff"] == []
    assert pair.project.play("site.yml").ok().changed == 0, "site.yml carries the nonce over: it does not undo a restart"


@pytest.mark.parametrize("second", ["restart-pd.yml", "site.yml"])
def test_a_killed_controller_is_finished_without_a_second_restart_of_prefill(pair: Pair, second: str) -> None:
    """Done-when 4: SIGKILL between prefill and decode; the next run of either playbook finishes the job."""

    def prefill_gated(event: dict[str, Any]) -> bool:
        return done_step(event) == "gate prefill0 until working"

    before = pair.pids()
    assert kill_when(pair, "restart-pd.yml", prefill_gated).rc != 0
    prefill, count = pair.pids()["prefill0"], starts(pair, "prefill0")
    assert prefill != before["prefill0"]
    done = pair.project.play(second).ok()
    after = pair.pids()
    assert after["prefill0"] == prefill and starts(pair, "prefill0") == count
    assert after["decode0"] not in (before["decode0"], "0") and after["router0"] not in (before["router0"], "0")
    assert "abandoned" in [e.get("outcome") for e in ledger(pair.machine)]
    pair.project.play("verify.yml").ok()
    assert "restarts" in done.stdout


def test_an_engine_that_dies_while_loading_fails_the_run_at_once(pair: Pair) -> None:
    """Done-when 5: within 5 s of the death, with the journal's last lines; decode and router are left as the plan says."""
    before = pair.pids()
    double.script(pair.machine, "prefill0", load_seconds=30, die_at={"phase": "load", "after_s": 2})
    done = pair.project.play("restart-pd.yml")
    assert done.rc != 0
    told = "\n".join(done.failures())
    assert "prefill0 did not reach `working`: DEAD at `alive`" in told
    assert "scripted death" in told, "the journal's last lines are part of the message"
    (verdict,) = [e for e in ledger(pair.machine) if e["event"] == "gate" and e["state"] == "DEAD"]
    died = pair.machine.exec("journalctl -o short-unix -u sglang-engine@prefill0 | grep 'Main process exited' | tail -1").stdout
    assert datetime.fromisoformat(verdict["ts"]).timestamp() - float(died.split()[0]) < 5
    assert pair.pids()["decode0"] == before["decode0"], "decode was not reached, it still runs the earlier generation"
    assert pair.pids()["router0"] == "0", "the router stays closed: half a pair must not take requests"
    assert re.search(r"group_vars ask for generation \w+", told)


def test_an_engine_that_never_gets_ready_fails_at_the_deadline(pair: Pair) -> None:
    """Done-when 5: WAIT ends at the deadline, not before, and the message says that it was the deadline."""
    double.script(pair.machine, "prefill0", never_ready="load", load_lines_every_s=1)
    start = time.monotonic()
    done = pair.project.play("restart-pd.yml", pd_start_deadline=12)
    assert done.rc != 0
    assert 12 <= time.monotonic() - start < 45
    assert "WAIT at `listening`" in "\n".join(done.failures()) and "the deadline is over" in "\n".join(done.failures())
    assert re.search(r"prefill0: \d+ s.*refused the connection", done.stdout), "progress was shown meanwhile"


def test_health_200_without_a_token_never_passes(pair: Pair) -> None:
    """Done-when 5, field reports 021 and 005: a status code proves nothing."""
    double.script(pair.machine, "prefill0", generates_nothing=True)
    done = pair.project.play("restart-pd.yml", pd_start_deadline=12)
    assert done.rc != 0
    assert "0 tokens (200 without a token proves nothing)" in "\n".join(done.failures())
    assert pair.status("http://127.0.0.1:30000/health") == 200


def test_the_wedge_is_caught_by_the_request_through_the_router(pair: Pair) -> None:
    """lab-facts row 1: the bootstrap thread is dead, both engines say 200, only a request through the router shows it."""
    double.script(pair.machine, "prefill0", bootstrap_thread_dead=True)
    done = pair.project.play("restart-pd.yml", pd_serve_deadline=15)
    assert done.rc != 0
    told = "\n".join(done.failures())
    assert "router0 did not reach `serving`" in told and "no answer in 8 s" in told


def test_a_second_operator_is_told_who_is_at_work(pair: Pair) -> None:
    """The lock says who, since when and why; the second run stops nothing."""
    held = {"run": "other:0:1:1", "who": "ada@desk", "why": "tuning decode", "since": "2026-11-30T12:00:00+00:00"}
    clock = "{'boot': open('/proc/sys/kernel/random/boot_id').read().strip(), 'renewed': time.clock_gettime(time.CLOCK_BOOTTIME)}"
    write = f"import json, time; open('/var/lib/sglang-pd/lock', 'w').write(json.dumps({held!r} | {clock}))"
    pair.machine.exec(["python3", "-c", write])
    before = pair.pids()
    done = pair.project.play("restart-pd.yml")
    assert done.rc != 0
    assert "held by ada@desk since 2026-11-30T12:00:00+00:00 (tuning decode)" in "\n".join(done.failures())
    assert pair.pids() == before
    assert "ada@desk" in pair.machine.exec(["cat", "/var/lib/sglang-pd/lock"]).stdout, "a lock that is not ours stays"


def test_a_lost_connection_during_a_gate_is_waited_out(pair: Pair) -> None:
    """Every ssh of the run is killed while prefill loads; the run goes on and restarts nothing twice."""
    double.script(pair.machine, "prefill0", load_seconds=8)
    cut: list[str] = []

    def handler(event: dict[str, Any]) -> bool:
        if not cut and done_step(event) == "start prefill0":
            cut.append("prefill0")
            pair.machine.exec("(sleep 3; pkill -KILL -f '^sshd: root@') >/dev/null 2>&1 &", check=False)
        return True

    count = starts(pair, "prefill0")
    done = pair.project.watch("restart-pd.yml", handler).ok()
    assert cut and "no connection" in done.stdout
    assert starts(pair, "prefill0") == count + 1


def test_overlapped_lets_both_load_at_once_and_the_forecast_is_said_before(pair: Pair) -> None:
    """Issue 3: both stop, both start, gated in order; before it stops anything the plan says what it cost before and what runs now."""
    pair.project.play("restart-pd.yml").ok()
    mark = len(ledger(pair.machine))
    done = pair.project.play("restart-pd.yml", pd_strategy="overlapped").ok()
    acts = [(e["event"], e["instance"]) for e in ledger(pair.machine)[mark:] if e["event"] in ("stop", "start", "gate")]
    assert acts == [
        *[("stop", name) for name in ("router0", "prefill0", "decode0")],
        *[("start", name) for name in ("prefill0", "decode0")],
        *[("gate", name) for name in ("prefill0", "decode0")],
        ("start", "router0"),
        ("gate", "router0"),
    ]
    before = done.stdout[: done.stdout.index("TASK [Take the lock]")]
    assert re.search(r"start decode0 +usually \d+ s \(\d+ s to \d+ s, \d+ times\)", before)
    assert re.search(r"expected outage: \d+ s", before)
    assert re.search(r"load now: prefill0 idle, decode0 idle, router0 idle", before)

"""What is in flight when a restart begins: it finishes, or it is cut and counted; an engine is never asked to drain by itself."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support import double
from tests.support.pairs import ROUTER, Pair
from tests.support.project import ledger

pytestmark = pytest.mark.host
ASK_MANY = f"""
import json, sys, threading, urllib.request
tokens, answers = int(sys.argv[2]), []
def ask():
    body = {{"model": "any", "messages": [{{"role": "user", "content": "count"}}], "max_tokens": tokens, "ignore_eos": True}}
    request = urllib.request.Request("{ROUTER}/v1/chat/completions", json.dumps(body).encode(), {{"Content-Type": "application/json"}})
    try:
        answers.append(json.load(urllib.request.urlopen(request, timeout=60))["usage"]["completion_tokens"])
    except (OSError, ValueError) as error:
        answers.append(repr(error))
threads = [threading.Thread(target=ask) for _ in range(int(sys.argv[1]))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps(answers))
"""
RUNNING = "import json, urllib.request as u; print(json.load(u.urlopen('http://127.0.0.1:30001/v1/loads'))['loads'][0]['num_running_reqs'])"


@contextmanager
def in_flight(pair: Pair, requests: int, tokens: int, token_seconds: float) -> Iterator[Future[list[Any]]]:
    """So many requests of so many tokens are being decoded; afterwards what each of them got."""
    double.script(pair.machine, "decode0", token_seconds=token_seconds)
    with ThreadPoolExecutor(1) as pool:
        argv = ["python3", "-c", ASK_MANY, str(requests), str(tokens)]
        answers = pool.submit(lambda: list(json.loads(pair.machine.exec(argv, timeout=90).stdout)))
        deadline = time.monotonic() + 20
        while int(pair.machine.exec(["python3", "-c", RUNNING]).stdout) < requests:
            assert time.monotonic() < deadline, "the requests never got to decode"
        yield answers


def entries(pair: Pair, mark: int, event: str) -> list[dict[str, Any]]:
    """What the ledger says of one kind of event since `mark`."""
    return [e for e in ledger(pair.machine)[mark:] if e["event"] == event]


def test_requests_in_flight_finish_and_none_is_cut(pair: Pair) -> None:
    """Six requests of about 20 s; the router's port is closed at once, the engines are stopped when the last is answered."""
    mark = len(ledger(pair.machine))
    with in_flight(pair, 6, tokens=40, token_seconds=0.5) as answers:
        done = pair.project.play("restart-pd.yml", pd_drain_timeout=60).ok()
        assert answers.result() == [40] * 6
    (drained,) = entries(pair, mark, "drained")
    assert drained["cut"] == 0 and drained["instances"] == ["prefill0", "decode0"]
    assert not entries(pair, mark, "killed")
    assert "router0: " in done.stdout and "6 requests in flight" in done.stdout
    acts = [(e["event"], e.get("instance")) for e in ledger(pair.machine)[mark:] if e["event"] in ("stop", "stopped", "drained")]
    assert acts[:4] == [("stop", "router0"), ("stopped", "router0"), ("drained", None), ("stop", "prefill0")]


def test_a_drain_that_never_ends_is_capped_and_what_it_cuts_is_counted(pair: Pair) -> None:
    """Five requests that would take minutes: after pd_drain_timeout the router is killed, the run goes on and says 5."""
    mark = len(ledger(pair.machine))
    with in_flight(pair, 5, tokens=200, token_seconds=1.0) as answers:
        done = pair.project.play("restart-pd.yml", pd_drain_timeout=4).ok()
        assert all(isinstance(answer, str) for answer in answers.result()), "every client was told by the broken connection"
    (killed,), (drained,) = entries(pair, mark, "killed"), entries(pair, mark, "drained")
    assert (killed["instance"], killed["cut"], drained["cut"]) == ("router0", 5, 5)
    (stop, stopped) = entries(pair, mark, "stop")[0], entries(pair, mark, "stopped")[0]
    assert 4 <= stopped["boot"] - stop["boot"] < 7
    assert "killed with 5 requests in flight" in done.stdout and "5 requests were cut" in done.stdout


def test_a_hung_engine_is_not_waited_for(pair: Pair) -> None:
    """Its port takes the connection and nothing comes: said as not measured, and killed like the others."""
    mark, before = len(ledger(pair.machine)), pair.pids()
    pair.machine.exec(["kill", "-STOP", before["prefill0"]])
    done = pair.project.play("restart-pd.yml", pd_drain_timeout=60).ok()
    (drained,) = entries(pair, mark, "drained")
    assert drained["seconds"] < 15
    assert "prefill0 not measured (/v1/loads: connected to" in drained["why"] and "decode0 empty" in drained["why"]
    assert "not measured" in done.stdout
    assert pair.pids()["prefill0"] not in (before["prefill0"], "0")


def test_an_idle_engine_is_stopped_at_once_whatever_it_makes_of_sigterm(pair: Pair) -> None:
    """lab-facts: an idle prefill takes 17 s to stop by itself. One that ignores SIGTERM would take TimeoutStopSec."""
    mark = len(ledger(pair.machine))
    double.script(pair.machine, "prefill0", stop_seconds=17)
    double.script(pair.machine, "decode0", ignore_sigterm=True)
    pair.project.play("restart-pd.yml").ok()
    stops, gone = entries(pair, mark, "stop"), entries(pair, mark, "stopped")
    took = {one["instance"]: two["boot"] - one["boot"] for one, two in zip(stops, gone, strict=True)}
    assert statistics.median(took.values()) < 1 and took["prefill0"] < 1 and took["decode0"] < 1, took
    log = pair.machine.exec("journalctl --boot --output=cat -u 'sglang-engine@*'").stdout
    assert "Scheduled restart job" not in log, "systemd does not start again what was stopped"


def test_check_mode_shows_the_drain_and_the_watch(pair: Pair) -> None:
    """And stops nothing."""
    before = pair.pids()
    done = pair.project.play("restart-pd.yml", "--check").ok()
    assert "drain prefill0, decode0" in done.stdout and "watch prefill0, decode0, router0" in done.stdout
    assert pair.pids() == before

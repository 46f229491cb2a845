"""Loading is not dead, and dead is not loading: what an engine that is not READY is doing decides, not how long it takes."""

from __future__ import annotations

import time

import pytest

from tests.support import double
from tests.support.pairs import Pair
from tests.support.project import ledger

pytestmark = pytest.mark.host


def test_a_start_without_any_sign_of_work_is_dead_with_its_stack(pair: Pair) -> None:
    """No line, no CPU, no compiler for pd_stall_after: the deadline (200 s) is not waited for."""
    mark = len(ledger(pair.machine))
    double.script(pair.machine, "prefill0", never_ready="load")
    start = time.monotonic()
    done = pair.project.play("restart-pd.yml", pd_stall_after=8, pd_start_deadline=200)
    assert done.rc != 0
    assert time.monotonic() - start < 150
    told = "\n".join(done.failures())
    assert "no progress for" in told and "no line in its journal" in told and "it was loading weights" in told
    assert "its stack:" in told
    (gate,) = [e for e in ledger(pair.machine)[mark:] if e["event"] == "gate" and e["state"] == "DEAD"]
    assert gate["instance"] == "prefill0"
    stacks = [one["stack"] for result in done.results("Stop, start and gate") for one in result.get("results", [result]) if "stack" in one]
    assert any("lifecycle.py" in line for line in stacks[0]), "py-spy's dump of the main process is in the result"


def test_a_slow_start_that_compiles_is_waited_for(pair: Pair) -> None:
    """Three times pd_stall_after without a line, but a compiler works: WAIT, and the progress says what it does."""
    double.script(pair.machine, "prefill0", compile_seconds=24)
    done = pair.project.play("restart-pd.yml", pd_stall_after=8, pd_start_deadline=200).ok()
    assert "(cicc)" in done.stdout


def test_a_warm_up_that_hangs_is_dead_while_it_answers_our_probes(pair: Pair) -> None:
    """Its port answers 503 ten times a second, and each answer is a line in its journal: that is our doing, and no progress."""
    double.script(pair.machine, "prefill0", never_ready="warmup")
    done = pair.project.play("restart-pd.yml", pd_stall_after=8, pd_start_deadline=200)
    assert done.rc != 0
    told = "\n".join(done.failures())
    assert "no progress for" in told and "/ready: HTTP 503" in told

"""sglang_gate: which process a gate is for, and what the ledger is told of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pd import forecast, gates, gating, ledger
from pd.gates import Baseline

from tests.module.loaded import redirect

PARAMS = {"name": "decode0", "generation": "g1", "run": "r1", "started": True, "until": "working"}


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the machine's."""
    redirect(monkeypatch, ledger, ledger.PATH, tmp_path / "ledger.jsonl")


def start(run: str, instance: str, pid: int) -> None:
    ledger.append("start", {"run": run, "instance": instance, "main_pid": pid, "n_restarts": 0, "invocation": f"i{pid}"})


def test_the_gate_is_for_the_process_that_this_run_started() -> None:
    """A death between the start and the gate's first look is seen too."""
    start("r0", "decode0", 1)
    start("r1", "prefill0", 2)
    start("r1", "decode0", 3)
    start("r1", "router0", 4)
    assert gating.started_by(PARAMS, ledger.read()) == Baseline(3, 0, "i3")
    assert gating.started_by({**PARAMS, "run": "r2"}, ledger.read()) is None
    assert gating.started_by({**PARAMS, "started": False}, ledger.read()) is None


@pytest.mark.parametrize(("state", "seconds"), [("READY", 23.5), ("DEAD", None)])
def test_only_a_start_that_got_ready_counts_as_usual(state: str, seconds: float | None) -> None:
    process = {"main_pid": 7, "n_restarts": 0, "invocation": "i7"}
    told = {"verdict": {"state": state, "rung": "x", "why": "because"}, "running_for": 23.5, "process": process}
    gating.record(PARAMS, told)
    (entry,) = ledger.read()
    assert (entry["event"], entry.get("seconds")) == ("gate", seconds)
    assert (entry["state"], entry["why"], entry["instance"], entry["run"]) == (state, "because", "decode0", "r1")
    known = forecast.history([entry]).get("start decode0")
    assert (known.median if known else None) == seconds
    ready = gates.ready_processes([entry], "r1")
    assert ready == ({"decode0": Baseline(7, 0, "i7")} if state == "READY" else {})

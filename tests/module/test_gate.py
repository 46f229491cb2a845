"""sglang_gate: which process a gate is for, and what the ledger is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pd import forecast, ledger
from pd.gates import Baseline

from tests.module.loaded import documented, redirect

MODULE = documented("sglang_gate").module
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
    assert MODULE.started_by(PARAMS) == Baseline(3, 0, "i3")
    assert MODULE.started_by({**PARAMS, "run": "r2"}) is None
    assert MODULE.started_by({**PARAMS, "started": False}) is None


@pytest.mark.parametrize(
    ("state", "until", "expected"),
    [
        ("READY", "working", {"event": "gate", "seconds": 23.5}),
        ("DEAD", "working", {"event": "gate", "seconds": None}),
        ("READY", "stopped", {"event": "stopped", "seconds": None}),
    ],
)
def test_only_a_start_that_got_ready_counts_as_usual(state: str, until: str, expected: dict[str, Any]) -> None:
    told = {"verdict": {"state": state, "rung": "x", "why": "because"}, "running_for": 23.5}
    MODULE.record({**PARAMS, "until": until}, told)
    (entry,) = ledger.read()
    assert {"event": entry["event"], "seconds": entry.get("seconds")} == expected
    assert (entry["state"], entry["why"], entry["instance"], entry["run"]) == (state, "because", "decode0", "r1")
    known = forecast.history([entry]).get("start decode0")
    assert (known.median if known else None) == expected["seconds"]

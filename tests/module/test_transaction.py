"""pd_transaction: two operators, dead runs, and what the ledger says of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pd import ledger, lock

from tests.module.loaded import redirect, run

Call = Callable[..., dict[str, Any]]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The machine's state directory, a test's own."""
    folder = tmp_path / "sglang-pd"
    redirect(monkeypatch, ledger, ledger.PATH, folder / "ledger.jsonl")
    redirect(monkeypatch, lock, lock.PATH, folder / "lock")
    return folder


def opened(who: str, **args: Any) -> dict[str, Any]:
    given = {"state": "open", "run": f"run-{who}", "who": who, "why": "a knob", "generation": "g1", "steps": ["start x"], **args}
    return run("pd_transaction", **given)


def closed(who: str, **args: Any) -> dict[str, Any]:
    return run("pd_transaction", state="closed", run=f"run-{who}", generation="g1", outcome="done", **args)


def events() -> list[tuple[str, str]]:
    return [(entry["event"], entry["run"]) for entry in ledger.read()]


def test_a_transaction_is_framed_in_the_ledger(state: Path) -> None:
    assert opened("ada")["changed"] is True
    assert closed("ada")["changed"] is True
    begin, end = ledger.read()
    assert (begin["event"], begin["generation"], begin["who"], begin["why"], begin["steps"]) == ("begin", "g1", "ada", "a knob", ["start x"])
    assert (end["event"], end["run"], end["outcome"]) == ("end", "run-ada", "done")
    assert not (state / "lock").exists()


def test_the_second_operator_is_refused_and_told_by_whom(state: Path) -> None:
    opened("ada")
    told = opened("bob")
    assert told["failed"]
    assert "another co-restart is at work: held by ada since" in told["msg"]
    assert "Nothing was stopped." in told["msg"]
    assert told["lock"]["run"] == "run-ada"
    assert events() == [("begin", "run-ada")]
    assert state.exists()


def test_a_dead_run_is_taken_over_and_the_ledger_says_so(state: Path) -> None:
    opened("ada")
    assert opened("bob", dead_runs=["run-ada"])["changed"] is True
    assert events() == [("begin", "run-ada"), ("takeover", "run-bob"), ("end", "run-ada"), ("begin", "run-bob")]
    assert (ledger.read()[1]["from_who"], ledger.read()[2]["outcome"]) == ("ada", "abandoned")
    begun = ledger.unfinished(ledger.read())
    assert begun is not None
    assert begun["run"] == "run-bob"
    assert (state / "lock").exists()


@pytest.mark.usefixtures("state")
def test_a_silent_run_is_taken_over_after_a_while() -> None:
    opened("ada")
    held = lock.read()
    assert held is not None
    lock.write(replace(held, renewed=held.renewed - lock.TTL_SECONDS - 1))
    assert opened("bob")["changed"] is True


@pytest.mark.usefixtures("state")
def test_only_its_own_run_closes_it() -> None:
    opened("ada")
    assert closed("bob")["changed"] is False
    assert events() == [("begin", "run-ada")]
    held = lock.read()
    assert held is not None
    assert held.who == "ada"
    assert closed("ada")["changed"] is True
    assert closed("ada")["changed"] is False


def test_check_mode_takes_nothing(state: Path) -> None:
    assert opened("ada", check=True)["changed"] is True
    assert not state.exists()
    opened("ada")
    assert closed("ada", check=True)["changed"] is True
    assert opened("bob", check=True)["failed"]
    assert events() == [("begin", "run-ada")]


def test_how_it_ended_must_be_said(state: Path) -> None:
    told = run("pd_transaction", state="closed", run="r", generation="g")
    assert told["failed"]
    assert "outcome" in told["msg"]
    assert not state.exists()


def test_a_damaged_lock_stops_everybody(state: Path) -> None:
    state.mkdir()
    (state / "lock").write_text("{")
    told = opened("ada")
    assert told["failed"]
    assert f"{state / 'lock'} is not a lock of ours" in told["msg"]

"""pd_generation on the node: written, made current, marked good; secrets stay where they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pd import generation, ledger, node, startable, store
from pd.generation import Wanted

from tests.module.loaded import redirect, run
from tests.unit.test_generation import WANTED


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """/etc/sglang-pd and the ledger, a test's own."""
    etc = tmp_path / "etc"
    for brain in (node, startable, store):
        redirect(monkeypatch, brain, Path(generation.GENERATIONS), etc / "generations")
        redirect(monkeypatch, brain, Path(generation.CURRENT), etc / "current")
    redirect(monkeypatch, ledger, ledger.PATH, tmp_path / "ledger.jsonl")
    monkeypatch.setattr(store, "GROUP", "root")
    return etc


def written(wanted: Wanted = WANTED, **args: Any) -> tuple[str, dict[str, Any]]:
    made = generation.generation_id(wanted)
    told: dict[str, Any] = {"files": generation.files(wanted, made), "manifest": generation.manifest(wanted, made, {"by": "ada"})}
    return made, run("pd_generation", state="written", id=made, **told, **args)


def test_from_written_to_good(etc: Path) -> None:
    made, told = written()
    assert (told["changed"], told["current"], told["good"]) == (True, None, False)
    assert written()[1]["changed"] is False
    told = run("pd_generation", state="current", id=made)
    assert (told["changed"], told["current"], told["good"]) == (True, made, False)
    assert run("pd_generation", state="current", id=made)["changed"] is False
    told = run("pd_generation", state="good", id=made, rungs={"decode0": "working"})
    assert (told["changed"], told["good"]) == (True, True)
    assert ledger.proved_rungs(ledger.read(), made) == {"decode0": "working"}
    assert (etc / "current" / "decode0" / "env").exists()


def test_what_is_observed_is_enough_to_plan_and_has_no_secret(etc: Path) -> None:
    assert run("pd_generation", state="observed")["current"] is None
    made, _ = written()
    run("pd_generation", state="current", id=made)
    told = run("pd_generation", state="observed")
    assert (told["changed"], told["current"], told["nonce"], told["good"], told["unfinished"]) == (False, made, "nonce001", False, None)
    assert generation.diff_against(told["instances"], WANTED) == []
    assert "s3cret" not in json.dumps(told)
    assert "s3cret" in (etc / "current" / "decode0" / "config.yaml").read_text()


@pytest.mark.usefixtures("etc")
def test_a_killed_run_is_finished_with_the_nonce_it_had() -> None:
    """It was cut off before it made its generation current."""
    made, _ = written()
    run("pd_generation", state="current", id=made)
    cut_off = Wanted(WANTED.members, WANTED.release, "nonce002")
    other, _ = written(cut_off)
    ledger.append("begin", {"run": "r1", "generation": other})
    told = run("pd_generation", state="observed")
    assert (told["current"], told["nonce"], told["unfinished"]["run"]) == (made, "nonce002", "r1")


def test_check_mode_writes_nothing(etc: Path) -> None:
    _, told = written(check=True)
    assert told["changed"] is True
    assert not etc.exists()
    assert run("pd_generation", state="good", id="g", check=True)["changed"] is True
    assert ledger.read() == []


@pytest.mark.usefixtures("etc")
def test_half_a_generation_is_never_made_current() -> None:
    told = run("pd_generation", state="current", id="0f3c5a9be210")
    assert told["failed"]
    assert "0f3c5a9be210 is not a whole generation" in told["msg"]


@pytest.mark.parametrize("state", ["written", "current", "good"])
def test_an_id_must_be_given(state: str) -> None:
    assert "id" in run("pd_generation", state=state)["msg"]


@pytest.mark.usefixtures("etc")
def test_present_is_the_action_plugins() -> None:
    assert "action plugin" in run("pd_generation")["msg"]

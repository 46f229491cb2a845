"""pd_generation on the node: written, made current, marked good; secrets stay where they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pd import generation, ledger, node, startable, store
from pd.generation import Wanted
from pd.members import RELEASES

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
    assert (told["current"], told["nonce"], told["unfinished"]["run"], told["finishing"]) == (made, "nonce002", "r1", True)


@pytest.mark.usefixtures("etc")
def test_a_recovery_that_is_at_work_is_not_what_restart_pd_is_asked_to_finish() -> None:
    """It brings up what was proven already: to finish it nothing need restart, and then nothing did."""
    made, _ = written()
    run("pd_generation", state="current", id=made)
    run("pd_generation", state="good", id=made, rungs={})
    ledger.append("begin", {"run": "r1", "generation": made})
    told = run("pd_generation", state="observed")
    assert (told["nonce"], told["unfinished"]["run"], told["finishing"]) == ("nonce001", "r1", False)


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


def built(etc: Path, monkeypatch: pytest.MonkeyPatch, *releases: str) -> None:
    """Releases that are on the machine whole."""
    redirect(monkeypatch, startable, Path(RELEASES), etc / "releases")
    for release in releases:
        (etc / "releases" / release).mkdir(parents=True)
        (etc / "releases" / release / "release.json").write_text("{}")


def good(wanted: Wanted) -> str:
    """A generation that was brought up."""
    made, _ = written(wanted)
    run("pd_generation", state="current", id=made)
    run("pd_generation", state="good", id=made, rungs={})
    return made


def test_what_failed_is_marked_with_its_content_and_told_until_it_is_good(etc: Path) -> None:
    made, _ = written()
    told = run("pd_generation", state="bad", id=made, why="it died", evidence="/desk/runs/1/evidence", run=None)
    assert (told["changed"], told["good"]) == (True, False)
    content = generation.content_id(WANTED)
    (mark,) = ledger.read()
    assert (mark["event"], mark["content"], mark["why"], mark["evidence"], mark["ts"]) == (
        *("bad", content, "it died", "/desk/runs/1/evidence", told["at"]),
    )
    again, _ = written(Wanted(WANTED.members, WANTED.release, "nonce002"))
    assert run("pd_generation", state="observed")["bad"][content]["generation"] == made
    run("pd_generation", state="good", id=again, rungs={})
    assert run("pd_generation", state="observed")["bad"] == {}
    assert etc.exists()


def test_previous_is_found_with_its_release_or_refused(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(etc, monkeypatch, "release0001")
    assert "no other generation was ever marked good" in run("pd_generation", state="observed", id="previous")["msg"]
    first, _ = good(WANTED), good(Wanted(WANTED.members[:1], "release0002", "n"))
    told = run("pd_generation", state="observed", id="previous")
    assert (told["id"], told["content"], told["good"]) == (first, generation.content_id(WANTED), True)
    (etc / "releases" / "release0001" / "release.json").unlink()
    told = run("pd_generation", state="observed", id="previous")
    assert told["failed"] and "release0001/release.json is missing: it was pruned by hand" in told["msg"]
    assert run("pd_generation", state="kept")["releases"] == ["release0002", "release0001"]


def test_a_file_changed_by_hand_stops_everything_but_the_way_out(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(etc, monkeypatch, "release0001")
    other = Wanted(WANTED.members[:1], "release0001", "n")
    first, second = good(other), good(WANTED)
    (etc / "generations" / second / "decode0" / "env").write_text("A=1\n")
    asked: list[dict[str, Any]] = [{"state": "observed"}, {"state": "current", "id": second}, {"state": "observed", "id": second}]
    for args in asked:
        told = run("pd_generation", **args)
        assert told["failed"] and f"decode0/env of generation {second} is not what was written there" in told["msg"]
    assert "decode0/env" in written()[1]["msg"], "it is there already, so it would be switched to"
    assert "decode0/env" in written(check=True)[1]["msg"]
    assert run("pd_generation", state="observed", id=first)["id"] == first
    (etc / "generations" / second / "manifest.json").unlink()
    told = run("pd_generation", state="observed")
    assert (told["current"], told["nonce"], told["instances"]) == (second, None, {}), "put out of use: a fresh nonce is taken"
    assert written()[1]["changed"] is True


@pytest.mark.parametrize("state", ["written", "current", "good", "bad"])
def test_an_id_must_be_given(state: str) -> None:
    assert "id" in run("pd_generation", state=state)["msg"]


@pytest.mark.usefixtures("etc")
def test_present_is_the_action_plugins() -> None:
    assert "action plugin" in run("pd_generation")["msg"]

"""Going back to an earlier generation: by itself after a failed gate, and on request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import double
from tests.support.pairs import Pair
from tests.support.project import Outcome, ledger

pytestmark = pytest.mark.host
KNOB = "SGLANG_SM120_MMA_TARGET_CTAS"


def bad_knob(pair: Pair, **script: Any) -> None:
    """A knob of decode that makes its engine fail: the double reads its script out of its environment."""
    pair.project.knob("decode.yml", "engine_env", "PD_DOUBLE", f"'{json.dumps(script)}'")


def last_words(done: Outcome) -> list[str]:
    """The message the run ends with, line by line."""
    return done.failures()[-1].splitlines()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param({"die_at": {"phase": "load", "message": "RuntimeError: no such kernel"}}, "DEAD at `alive`", id="dies while loading"),
        pytest.param({"generates_nothing": True}, "200 without a token proves nothing", id="generates nothing"),
    ],
)
def test_a_bad_knob_is_taken_back_by_itself(pair: Pair, script: dict[str, Any], said: str) -> None:
    """The old generation serves again, the run fails and says so."""
    first, mark = pair.generation(), len(ledger(pair.machine))
    bad_knob(pair, **script)
    done = pair.project.play("restart-pd.yml", pd_rollback_on_failure=True, pd_start_deadline=10)
    told = last_words(done)
    assert done.rc != 0
    assert told[0].startswith("decode0 did not reach `working`") and said in told[0]
    assert any(line.startswith(f"Rolled back: generation {first} serves again since 20") for line in told)
    assert any("group_vars ask for generation" in line and line.endswith(f"the machine runs {first}.") for line in told)
    evidence = Path(told[-1])
    assert evidence.parent.parent == pair.project.root / "runs" and (evidence / "summary.txt").is_file()
    assert pair.generation() == first
    assert pair.ask("repeat: hello")["choices"][0]["message"]["content"] == "hello"
    events = [(e["event"], e.get("outcome")) for e in ledger(pair.machine)[mark:] if e["event"] in ("begin", "bad", "good", "end")]
    assert events == [("begin", None), ("bad", None), ("begin", None), ("good", None), ("end", "failed")]


def test_what_failed_is_tried_again_only_when_it_is_asked_for(pair: Pair) -> None:
    """Refused before anything is stopped, also by --check and under another nonce; with pd_retry it is tried, gets good, and is free."""
    bad_knob(pair, die_at={"phase": "load"})
    failed = pair.project.play("restart-pd.yml", pd_rollback_on_failure=True)
    before, entries = pair.pids(), len(ledger(pair.machine))
    for playbook, *options in (("site.yml", "--check"), ("site.yml",), ("restart-pd.yml",)):
        refused = pair.project.play(playbook, *options)
        told = "\n".join(last_words(refused))
        assert refused.rc != 0 and "the same files and release failed as" in told and "-e pd_retry=true" in told
        assert last_words(failed)[0] in told and last_words(failed)[-1] in told, "why, and where the evidence is"
    assert pair.pids() == before and len(ledger(pair.machine)) == entries
    double.script(pair.machine, "decode0", die_at=None)  # it was not the knob after all
    pair.project.play("site.yml", pd_retry=True).ok()
    pair.project.play("restart-pd.yml").ok()


def test_a_rollback_that_fails_too_is_told_truthfully(pair: Pair) -> None:
    """The machine is at fault, not the knob: both generations fail, nothing serves, and the run says so."""
    first = pair.generation()
    pair.project.knob("decode.yml", "engine_env", KNOB, "256")
    double.script(pair.machine, "decode0", die_at={"phase": "load"})
    done = pair.project.play("restart-pd.yml", pd_rollback_on_failure=True)
    told = "\n".join(last_words(done))
    assert done.rc != 0
    assert f"The rollback to {first} failed too: decode0 did not reach `working`" in told
    assert "NOT proven to serve: router0 is inactive: no request is taken" in told
    assert "Rolled back" not in told
    evidence = Path(last_words(done)[-1])
    assert (evidence / "summary.txt").is_file() and (evidence / "rollback" / "summary.txt").is_file()
    assert pair.pids()["router0"] == "0" and pair.generation() == first
    assert [e["event"] for e in ledger(pair.machine)[-2:]] == ["bad", "end"]
    double.script(pair.machine, "decode0")
    pair.project.knob("decode.yml", "engine_env", KNOB, "512")
    pair.project.play("restart-pd.yml").ok()
    assert pair.changed_lines(first, pair.generation()) == [], "what was good before may be tried again: the machine was at fault"


def test_a_generation_changed_by_hand_is_refused(pair: Pair) -> None:
    """Current or to be gone back to: refused with the file that differs and what to do, nothing stopped; and what it says works."""
    first = pair.generation()
    pair.project.knob("decode.yml", "engine_env", KNOB, "256")
    pair.project.play("restart-pd.yml", pd_restart=False).ok()
    before = pair.pids()
    pair.machine.exec(f"sed -i s/=512/=511/ /etc/sglang-pd/generations/{first}/decode0/env")
    refusals = [pair.project.play("rollback.yml")]
    pair.project.knob("decode.yml", "engine_env", KNOB, "512")
    refusals.append(pair.project.play("restart-pd.yml", pd_restart=False))
    for refused in refusals:
        assert refused.rc != 0 and f"decode0/env of generation {first} is not what was written there" in "\n".join(refused.failures())
    current = pair.generation()
    pair.machine.exec(f"echo >> /etc/sglang-pd/generations/{current}/prefill0/config.yaml")
    seen = pair.project.play("verify.yml")
    assert seen.rc != 0 and f"prefill0/config.yaml of generation {current} was changed by hand" in seen.stdout
    refused = pair.project.play("restart-pd.yml")
    assert refused.rc != 0 and f"prefill0/config.yaml of generation {current}" in "\n".join(refused.failures())
    assert pair.pids() == before
    pair.machine.exec(f"rm /etc/sglang-pd/generations/{current}/manifest.json /etc/sglang-pd/generations/{first}/manifest.json")
    pair.project.play("restart-pd.yml").ok()
    assert {env.get(KNOB) for env in pair.environs("decode0")} == {"512"}


def test_rollback_brings_the_last_good_generation_back(pair: Pair) -> None:
    """By the same procedure, gates included; group_vars still ask for the other one, and site.yml says that it would go forward."""
    first = pair.generation()
    pair.project.knob("decode.yml", "engine_env", KNOB, "256")
    pair.project.play("site.yml").ok()
    second = pair.generation()
    pair.project.play("rollback.yml").ok()
    assert pair.generation() == first
    assert {env.get(KNOB) for env in pair.environs("decode0")} == {"512"}
    assert [e["why"] for e in ledger(pair.machine) if e["event"] == "begin"][-1] == "rollback"
    forward = pair.project.play("site.yml", "--check").ok()
    assert f"runs {first}, wanted is {second}" in forward.stdout
    refused = pair.project.play("rollback.yml", generation="0123456789ab")
    assert refused.rc != 0 and "0123456789ab" in "\n".join(refused.failures())
    pair.machine.exec("rm /opt/sglang-pd/releases/*/release.json")
    pruned = pair.project.play("rollback.yml", generation=second)
    told = "\n".join(pruned.failures())
    assert pruned.rc != 0 and "release.json is missing" in told and "check out" in told
    assert pair.generation() == first


def test_the_release_to_go_back_to_is_not_pruned(pair: Pair) -> None:
    """Another release with room for one only: the one that the last good generation runs from stays, and a rollback starts from it."""
    (old,) = {env["PD_PYTHON"] for env in pair.environs("decode0")}
    pair.project.write_inventory({**double.VARIABLES, "runtime_keep": 1})
    lock = pair.project.root / "requirements" / "double.lock"
    lock.write_text(lock.read_text() + "# another release\n")
    pair.project.play("site.yml").ok()
    (new,) = {env["PD_PYTHON"] for env in pair.environs("decode0")}
    assert new != old
    pair.project.play("rollback.yml").ok()
    assert {env["PD_PYTHON"] for env in pair.environs("decode0")} == {old}
    assert pair.ask("repeat: hello")["choices"][0]["message"]["content"] == "hello"

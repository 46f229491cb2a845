"""The verdict on a restart: the worst of what was found, in a closed set of words."""

from __future__ import annotations

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import refusal
from pd.problem import Problem
from pd.refusal import ASKED, MACHINE, OK, REBOOT, VERDICTS, Verdict

ONE = Problem("decode.yml:3", "tp-sise", "no such flag", "tp-size")


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ({}, OK),
        ({ASKED: [], MACHINE: [], REBOOT: []}, OK),
        ({ASKED: [ONE]}, ASKED),
        ({ASKED: [ONE], MACHINE: [ONE]}, MACHINE),
        ({ASKED: [ONE], REBOOT: [ONE]}, REBOOT),
        ({ASKED: [ONE], MACHINE: [ONE], REBOOT: [ONE]}, REBOOT),
    ],
)
def test_the_worst_thing_found_decides(found: dict[Verdict, list[Problem]], verdict: Verdict) -> None:
    assert refusal.judge(found) == verdict


def test_the_set_is_closed() -> None:
    assert set(VERDICTS) == set(typing.get_args(Verdict))


def test_all_is_told_at_once_the_worst_first() -> None:
    disk = Problem("/var", "disk", "0 MiB are free", "free some space")
    text = refusal.told({ASKED: [ONE], MACHINE: [disk], REBOOT: []})
    assert text.splitlines()[0] == "refused: clear the machine first. Nothing was stopped."
    assert text.index("[clear the machine first] /var: disk") < text.index("[mend what is asked for] decode.yml:3: tp-sise")
    assert refusal.told({ASKED: []}) == ""


@given(st.dictionaries(st.sampled_from(VERDICTS[1:]), st.lists(st.builds(Problem, st.text(), st.text(), st.text(), st.text()))))
def test_nothing_found_is_lost_and_nothing_else_is_refused(found: dict[Verdict, list[Problem]]) -> None:
    assert (refusal.judge(found) == OK) is not any(found.values())
    assert all(str(problem) in refusal.told(found) for these in found.values() for problem in these)

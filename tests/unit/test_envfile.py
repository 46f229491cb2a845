"""The env file: what we write is what systemd reads, by its own parser."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pd import envfile

from tests.unit.nasty import NASTY, REFUSED
from tests.unit.real_systemd import load

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
SPECIAL = st.text(st.sampled_from("ab1_= \t\n\r\\'\"`$#;%ü"), max_size=30)


@pytest.mark.parametrize("value", NASTY, ids=lambda value: ascii(value)[:30])
def test_a_nasty_value_survives_our_parser_and_systemds(value: str) -> None:
    env = {"BEFORE": "1", "KNOB": value, "LATER": "2"}
    assert envfile.problems(env) == []
    assert envfile.parse(envfile.render(env)) == env
    assert load(envfile.render(env)) == env


@settings(deadline=None)
@given(st.dictionaries(NAMES, st.text() | SPECIAL, max_size=4))
def test_what_is_not_refused_survives(env: dict[str, str]) -> None:
    assume(not envfile.problems(env))
    text = envfile.render(env)
    assert envfile.parse(text) == env
    assert load(text) == env


@settings(deadline=None)
@given(SPECIAL | st.text(max_size=20))
@example("#c\\x\\\\\nA=1")
@example("A=x\\")
@example('A="\\$ \\` \\" \\\\ \\n \\%"')
@example('A="x\\')
@example('A="x\\\ny"')
@example("A=x \\\n  y  \nB='z' w")
@example("A= 1 \\ \n")
@example("=x\nA\n=\n A B = 1\n9=1\nÄ=1\nA=1\nA=2")
@example("A=\ufffe")
@example("\ufeffA=1")
def test_any_text_is_read_as_systemd_reads_it(text: str) -> None:
    try:
        ours = envfile.parse(text)
    except envfile.EnvFileError as error:
        # Ours may be stricter, never laxer: versions of systemd differ on the backslash, and a noncharacter outside an assignment is let pass.
        assert "ends in a backslash" in str(error) or "refuses the whole file" in str(error) or load(text) is None
    else:
        assert load(text) == ours


@pytest.mark.parametrize(("value", "said"), REFUSED, ids=lambda value: ascii(value)[:30])
def test_what_cannot_be_meant_or_carried_is_refused(value: str, said: str) -> None:
    (problem,) = envfile.problems({"SGLANG_X": value}, "group_vars/decode.yml:7")
    assert (problem.where, problem.key) == ("group_vars/decode.yml:7", "SGLANG_X")
    assert said in problem.found
    assert problem.fix
    with pytest.raises(envfile.EnvFileError, match="SGLANG_X"):
        envfile.render({"SGLANG_X": value})


@pytest.mark.parametrize("name", ["", "9A", "A-B", "A B", "Ä", "A=", "A\n"])
def test_a_name_systemd_drops_is_refused(name: str) -> None:
    (problem,) = envfile.problems({name: "1"})
    assert "drops it" in problem.found
    assert load(f"{name}=1\n") in ({}, None, {"A": "=1"})


def test_a_secret_is_not_in_the_message() -> None:
    (problem,) = envfile.problems({"OPENAI_API_KEY": "sk-sentinel\u00a0"})
    assert "sentinel" not in str(problem)
    assert "U+00A0" in problem.found


def test_the_file_is_sorted_and_plain_values_are_bare() -> None:
    assert envfile.render({"B": "x y", "A": "512", "C": ""}) == 'A=512\nB="x y"\nC=""\n'


def test_an_inline_comment_is_part_of_the_value() -> None:
    """Report 060: this is what systemd does, so the rung `unit` must see it too."""
    assert envfile.parse("X=5   # no\n") == {"X": "5   # no"}


def test_a_comment_that_ends_in_a_backslash_is_refused() -> None:
    with pytest.raises(envfile.EnvFileError, match="line 2"):
        envfile.parse("A=1\n# a\\\nB=1\n")


def test_the_refused_file_names_its_line() -> None:
    with pytest.raises(envfile.EnvFileError, match=r"line 2: U\+FFFE"):
        envfile.parse("A=1\nB=\ufffe\n")

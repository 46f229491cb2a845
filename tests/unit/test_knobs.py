"""What YAML makes of a value as it is written (reports 084, 086, 088, 090)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pd import knobs, sources
from pd.problem import Problem


def lint(root: Path, text: str) -> list[Problem]:
    (root / "group_vars").mkdir()
    (root / "group_vars" / "decode.yml").write_text(text, encoding="utf-8")
    return knobs.lint(sources.read(root))


GOOD_ENV = [
    "512",
    "0",
    "-1",
    "0.5",
    "-0.25",
    "12345678901234567890",
    '"1"',
    "'yes'",
    '"010"',
    '""',
    "text",
    "0,1,2,3",
    "127.0.0.1",
    "1.2.3",
]
GOOD_ENV += [
    "a:b",
    "30000:8998",
    "{{ x }}".join("''"),
    "!vault x",
    "|-\n    two\n    lines",
    "0-3",
    "fp8_e4m3",
    "SYS",
    "off-by-one",
    "e3",
    "~/x",
]


@pytest.mark.parametrize("written", GOOD_ENV)
def test_a_knob_that_is_what_it_looks_like_passes(tmp_path: Path, written: str) -> None:
    assert lint(tmp_path, f"engine_env:\n  SGLANG_X: {written}\n") == []


@pytest.mark.parametrize(
    ("written", "reading", "fix"),
    [
        ("yes", "the boolean true", 'SGLANG_X: "1"'),
        ("on", "the boolean true", 'SGLANG_X: "1"'),
        ("True", "the boolean true", 'SGLANG_X: "1"'),
        ("no", "the boolean false", 'SGLANG_X: "0"'),
        ("OFF", "the boolean false", 'SGLANG_X: "0"'),
        ("y", "a boolean to some", 'SGLANG_X: "y"'),
        ("N", "a boolean to some", 'SGLANG_X: "N"'),
        ("null", "null", "delete the SGLANG_X line"),
        ("~", "null", "delete the SGLANG_X line"),
        ("", "nothing (null)", "delete the SGLANG_X line"),
        ("010", "the number 8", "SGLANG_X: 8 "),
        ("0x10", "the number 16", "SGLANG_X: 16 "),
        ("0b11", "the number 3", "SGLANG_X: 3 "),
        ("0o17", "text, not as a number", 'SGLANG_X: "15"'),
        ("08", "text, not as a number", 'SGLANG_X: "8"'),
        ("+5", "the number 5", "SGLANG_X: 5 "),
        ("1_000", "the number 1000", "SGLANG_X: 1000 "),
        ("1:30", "the number 90", "SGLANG_X: 90 "),
        ("1e3", "text, not as a number", 'SGLANG_X: "1000"'),
        ("1e-5", "text, not as a number", 'SGLANG_X: "1e-05"'),
        ("1e999", "text, not as a number", 'SGLANG_X: "inf"'),
        ("1.0e+16", "the number 1e+16", 'SGLANG_X: "1.0e+16"'),
        ("0.00001", "the number 1e-05", 'SGLANG_X: "0.00001"'),
        ("1.10", "the number 1.1", 'SGLANG_X: "1.10"'),
        (".5", "the number 0.5", 'SGLANG_X: ".5"'),
        (".inf", "the number inf", 'SGLANG_X: ".inf"'),
        (".nan", "the number nan", 'SGLANG_X: ".nan"'),
        ("2026-09-01", "the date 2026-09-01", 'SGLANG_X: "2026-09-01"'),
        ("2026-99-01", "cannot read", 'SGLANG_X: "2026-99-01"'),
        ("[1, 2]", "a list", "SGLANG_X: '...'"),
        ("{k: 1}", "a mapping", "SGLANG_X: '...'"),
    ],
)
def test_a_knob_that_yaml_changes_is_refused(tmp_path: Path, written: str, reading: str, fix: str) -> None:
    problem = lint(tmp_path, f"engine_env:\n  OK: 1\n  SGLANG_X: {written}\n")[0]
    assert (problem.where, problem.key) == ("group_vars/decode.yml:3", "engine_env.SGLANG_X")
    assert reading in problem.found
    assert problem.found.startswith(written) or written in ("", "[1, 2]", "{k: 1}")
    assert fix in problem.fix + " "


@pytest.mark.parametrize(
    "written", ["true", "false", "4", "0.9", "[1, 2, 4]", "{a: 1, b: null}", "nixl", '"1e3"', "!vault x"]
)
def test_an_argument_may_be_a_boolean_a_list_or_a_mapping(tmp_path: Path, written: str) -> None:
    assert lint(tmp_path, f"engine_args:\n  flag: {written}\n") == []


@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("1.10", 'flag: "1.10"'),
        ("1e3", "flag: 1000"),
        ("010", "flag: 8"),
        ("null", "delete the flag line"),
        ("", "delete the flag line"),
        ("y", "flag: true"),
        ("1:30", "flag: 90"),
        ("2026-09-01", 'flag: "2026-09-01"'),
        ("[1, 1_000]", "flag: 1000"),
    ],
)
def test_an_argument_that_yaml_changes_is_refused(tmp_path: Path, written: str, fix: str) -> None:
    (problem,) = lint(tmp_path, f"router_args:\n  flag: {written}\n")
    assert problem.key.startswith("router_args.flag")
    assert fix in problem.fix


@pytest.mark.parametrize(
    ("written", "ok"),
    [("1.10", False), ("2", False), ("", False), ('"1.10"', True), ("0.5.23", True), ("{{ v }}".join("''"), True)],
)
def test_a_version_is_text(tmp_path: Path, written: str, ok: bool) -> None:
    found = lint(tmp_path, f"runtime_torch_version: {written}\nnode_x:\n  nixl-version: '1'\n")
    assert [p.key for p in found] == ([] if ok else ["runtime_torch_version"])


@pytest.mark.parametrize("written", ["a", "[1]", "5"])
def test_a_dictionary_must_be_one(tmp_path: Path, written: str) -> None:
    assert any(p.key == "engine_env" for p in lint(tmp_path, f"engine_env: {written}\n"))


def test_a_dictionary_may_be_a_template_or_empty(tmp_path: Path) -> None:
    assert lint(tmp_path, "engine_env: '{{ base | combine(more) }}'\nengine_args: {}\n") == []


def test_a_secret_is_not_quoted(tmp_path: Path) -> None:
    (problem,) = lint(tmp_path, "engine_args:\n  api-key: 1_234_567\n")
    assert "1_234" not in str(problem)
    assert "1234" not in str(problem)


@pytest.mark.parametrize("value", [True, None, ["a"], {"a": 1}])
def test_a_template_that_gives_no_text_is_refused(value: object) -> None:
    (problem,) = knobs.knob_problems("f:1", "engine_env", {"X": value})
    assert (problem.where, problem.key) == ("f:1", "engine_env.X")


@pytest.mark.parametrize(
    ("value", "wrong"),
    [(True, 0), ([1, 2], 0), ({"a": None}, 0), (None, 1), ([1, None], 1), ("None", 1), ("__omit_place_holder__x", 1)],
)
def test_an_argument_that_is_nothing_is_refused(value: object, wrong: int) -> None:
    assert len(knobs.arg_problems("f:1", "engine_args", {"x": value})) == wrong


@settings(deadline=None)
@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text())
def test_canonical_text_is_read_back_as_the_same_value(value: float | str) -> None:
    text = knobs.canonical(value)
    assert text == value if isinstance(value, str) else float(text) == float(value)


@settings(deadline=None)
@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e6, max_value=1e6))
def test_a_plain_number_that_passes_is_written_as_it_stands(
    tmp_path_factory: pytest.TempPathFactory, value: float
) -> None:
    """The rule itself: no complaint means that YAML's value has exactly the text in the file."""
    text = repr(value)
    found = lint(tmp_path_factory.mktemp("lint"), f"engine_env:\n  X: {text}\n")
    assert found or knobs.canonical(yaml.safe_load(text)) == text

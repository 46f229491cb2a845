"""The ledger: appended and fsynced, readable after a power cut, and what is read out of it."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pd import ledger, lock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.jsonl"


def test_an_entry_comes_back_as_it_was_written(path: Path) -> None:
    written = ledger.append("gate", {"instance": "decode0", "why": "ein Grund\nmit Zeilen \u2028", "seconds": 23.4}, path)
    assert ledger.read(path) == [written]
    assert written["ts"].endswith("+00:00")
    assert path.read_bytes().count(b"\n") == 1


def test_an_entry_has_a_stamp_that_no_clock_step_moves(path: Path) -> None:
    before = lock.boottime()
    entry = ledger.append("begin", {}, path)
    assert before - 0.001 <= entry["boot"] <= lock.boottime() + 0.001


def test_no_file_is_an_empty_ledger(path: Path) -> None:
    assert ledger.read(path) == []


def test_a_line_that_a_power_cut_tore_costs_that_line_only(path: Path) -> None:
    ledger.append("begin", {"run": "a"}, path)
    with path.open("ab") as file:
        file.write(b'{"event": "ga')
    ledger.append("end", {"run": "a"}, path)
    assert [entry["event"] for entry in ledger.read(path)] == ["begin", "end"]


@pytest.mark.parametrize("junk", [b"\xff\xfe\x00\n", b"[1, 2]\n", b"\n", b"null\n", b"{\n"])
def test_junk_is_passed_over(path: Path, junk: bytes) -> None:
    ledger.append("begin", {}, path)
    with path.open("ab") as file:
        file.write(junk)
    ledger.append("end", {}, path)
    assert [entry["event"] for entry in ledger.read(path)] == ["begin", "end"]


@settings(deadline=None, max_examples=15)
@given(st.lists(st.integers(0, 60), max_size=3))
def test_wherever_the_file_was_cut_what_follows_is_whole(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    path = tmp_path_factory.mktemp("cut") / "ledger.jsonl"
    for at, cut in enumerate(cuts):
        ledger.append("note", {"n": at}, path)
        path.write_bytes(path.read_bytes()[: max(0, path.stat().st_size - cut)])
    last = ledger.append("note", {"n": "last"}, path)
    assert ledger.read(path)[-1] == last


def _append_many(path: Path, who: int) -> None:
    for n in range(25):
        ledger.append("note", {"who": who, "n": n, "padding": "x" * 500}, path)


def _append_when(path: Path, told: Event) -> None:
    told.wait(5)
    ledger.append("note", {"n": 2}, path)


def test_a_second_writer_waits_until_the_first_is_done(path: Path) -> None:
    """The second process is there before the first locks, or it would inherit the lock."""
    ledger.append("note", {"n": 1}, path)
    fork = multiprocessing.get_context("fork")
    told = fork.Event()
    second = fork.Process(target=_append_when, args=(path, told))
    second.start()
    with path.open("r+b") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        told.set()
        second.join(0.2)
        assert len(ledger.read(path)) == 1
    second.join(5)
    assert len(ledger.read(path)) == 2


def test_two_processes_never_mix_their_lines(path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_append_many, args=(path, who)) for who in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((e["who"], e["n"]) for e in entries) == [(who, n) for who in range(3) for n in range(25)]


BEGIN_A, BEGIN_B = {"event": "begin", "run": "a"}, {"event": "begin", "run": "b"}
END_A, END_B = {"event": "end", "run": "a"}, {"event": "end", "run": "b"}


@pytest.mark.parametrize(
    ("entries", "unfinished"),
    [
        ([], None),
        ([BEGIN_A], BEGIN_A),
        ([BEGIN_A, {"event": "gate", "run": "a"}], BEGIN_A),
        ([BEGIN_A, END_A], None),
        ([BEGIN_A, END_B], BEGIN_A),
        ([BEGIN_A, END_A, BEGIN_B], BEGIN_B),
        ([BEGIN_A, BEGIN_B, END_B], None),
        pytest.param([BEGIN_A, {"event": "good", "run": "a"}], None, id="killed after good: nothing is left to finish"),
        pytest.param([BEGIN_A, {"event": "good", "run": "b"}], BEGIN_A, id="good of another run"),
        ([{"event": "end"}, BEGIN_A], BEGIN_A),
    ],
)
def test_unfinished(entries: list[dict[str, Any]], unfinished: dict[str, Any] | None) -> None:
    assert ledger.unfinished(entries) == unfinished


@pytest.mark.parametrize(
    ("marks", "good"),
    [([], False), (["good"], True), (["good", "bad"], False), (["bad", "good"], True), (["bad"], False)],
)
def test_the_last_mark_counts(marks: list[str], good: bool) -> None:
    entries = [{"event": "good", "generation": "other"}, *({"event": mark, "generation": "g"} for mark in marks)]
    assert ledger.is_good(entries, "g") is good


def test_the_rungs_of_the_last_time_it_was_proven() -> None:
    entries: list[dict[str, Any]] = [
        {"event": "good", "generation": "g", "rungs": {"decode0": "working"}},
        {"event": "good", "generation": "g", "rungs": {"decode0": "serving"}},
        {"event": "good", "generation": "h", "rungs": {"decode0": "alive"}},
        {"event": "bad", "generation": "g"},
    ]
    assert ledger.proved_rungs(entries, "g") == {"decode0": "serving"}
    assert ledger.proved_rungs(entries, "nothing") == {}


GOOD_A, GOOD_B = {"event": "good", "generation": "a"}, {"event": "good", "generation": "b"}


@pytest.mark.parametrize(
    ("entries", "current", "back"),
    [
        pytest.param([], None, None, id="nothing was ever good"),
        pytest.param([GOOD_A], "a", None, id="only the present one"),
        pytest.param([GOOD_A, GOOD_B], "b", "a", id="the one before"),
        pytest.param([GOOD_A, GOOD_B], "c", "b", id="the present one never got good"),
        pytest.param([GOOD_A, GOOD_B, GOOD_A], "b", "a", id="the last one marked, not the oldest"),
        pytest.param([GOOD_A, GOOD_B, {"event": "bad", "generation": "b"}], "c", "a", id="not one that was marked bad since"),
    ],
)
def test_where_a_rollback_goes(entries: list[dict[str, Any]], current: str | None, back: str | None) -> None:
    assert ledger.previous_good(entries, current) == back


def good(generation: str, content: str) -> dict[str, Any]:
    return {"event": "good", "generation": generation, "content": content}


def bad(generation: str, content: str, **more: Any) -> dict[str, Any]:
    return {"event": "bad", "generation": generation, "content": content, **more}


@pytest.mark.parametrize(
    ("entries", "current", "back"),
    [
        pytest.param([good("a", "1"), good("b", "2"), good("c", "2")], "c", "a", id="from a proven one: the last with other files"),
        pytest.param([good("a", "1"), good("b", "1")], "b", "a", id="only mere restarts: the last other one"),
        pytest.param([good("a", "1"), good("b", "2"), bad("c", "2")], "c", "b", id="from one that failed: the last good one, same files or not"),
        pytest.param([good("a", "1"), good("b", "2"), good("a", "1"), bad("a", "1")], "a", "b", id="not the one that just failed"),
        pytest.param(
            [good("a", "1"), bad("b", "2", run="r"), {"event": "begin", "run": "r", "generation": "a", "back_from": "b"}], "a", "a",
            id="a killed rollback is finished",
        ),
        pytest.param(
            [
                *[good("a", "1"), {"event": "begin", "run": "r", "generation": "a", "back_from": "b"}],
                *[{"event": "good", "run": "r", "generation": "a", "content": "1"}, {"event": "end", "run": "r"}],
            ],
            *("a", None),
            id="one that ended is not",
        ),
    ],
)  # fmt: skip
def test_where_a_rollback_goes_by_content(entries: list[dict[str, Any]], current: str, back: str | None) -> None:
    assert ledger.previous_good(entries, current) == back


@pytest.mark.parametrize(
    ("entries", "refused"),
    [
        pytest.param([], {}, id="nothing was ever tried"),
        pytest.param([bad("a", "1"), bad("b", "1")], {"1": "b"}, id="the last time it failed"),
        pytest.param([bad("a", "1"), good("a", "1")], {}, id="good since"),
        pytest.param([good("a", "1"), bad("b", "1")], {}, id="good before: the machine failed, not the files"),
        pytest.param([bad("a", "1"), good("b", "2")], {"1": "a"}, id="others do not count"),
        pytest.param([{"event": "bad", "generation": "a"}], {}, id="a mark without a content"),
    ],
)
def test_which_contents_are_not_tried_again(entries: list[dict[str, Any]], refused: dict[str, str]) -> None:
    assert {content: mark["generation"] for content, mark in ledger.bad_contents(entries).items()} == refused


EVENTS = st.lists(st.tuples(st.sampled_from(["good", "bad"]), st.sampled_from("abcdef"), st.sampled_from("123")), max_size=12)


@given(EVENTS, st.sampled_from("abcdef"))
def test_where_any_rollback_goes_is_kept(events: list[tuple[str, str, str]], current: str) -> None:
    entries = [{"event": event, "generation": generation, "content": content} for event, generation, content in events]
    kept = ledger.kept(entries, current)
    assert current in kept
    back = ledger.previous_good(entries, current)
    last = ledger.last_good(entries)
    assert back is None or back in kept
    assert last is None or last["generation"] in kept
    # a new generation fails its gate: the run goes back by itself to the last good one
    failed = ledger.last_good([*entries, {"event": "bad", "generation": "new", "content": "new"}], "new")
    assert failed is None or failed["generation"] in kept

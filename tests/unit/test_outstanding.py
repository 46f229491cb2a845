"""One probe at a time, which outlives the call that sent it (field report 023). Real processes, short waits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pd import outstanding

Work = Callable[[], Mapping[str, Any]]


def counted(folder: Path, gate: Path | None = None, answer: Mapping[str, Any] | None = None) -> Work:
    """Work that leaves one file for each time it is done, and ends once `gate` exists, or after some seconds."""

    def work() -> Mapping[str, Any]:
        (folder / f"sent-{os.getpid()}").touch()
        deadline = time.monotonic() + 10
        while gate is not None and not gate.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        return answer or {"pid": os.getpid()}

    return work


def sent(folder: Path) -> list[int]:
    return [int(file.name.removeprefix("sent-")) for file in folder.glob("sent-*")]


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 5
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_answer_is_handed_out_once_and_made_by_another_process(tmp_path: Path) -> None:
    first = outstanding.ask("k", counted(tmp_path), 5, tmp_path / "p")
    second = outstanding.ask("k", counted(tmp_path), 5, tmp_path / "p")
    assert first is not None
    assert second is not None
    assert len({first["pid"], second["pid"], os.getpid()}) == 3
    assert sorted(sent(tmp_path)) == sorted([first["pid"], second["pid"]])


def test_report_023_a_probe_that_is_still_out_is_not_sent_again(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    for _ in range(4):
        assert outstanding.ask("k", counted(tmp_path, gate), 0.03, tmp_path / "p") is None
    assert len(sent(tmp_path)) == 1
    gate.touch()
    answer = outstanding.ask("k", counted(tmp_path, gate), 5, tmp_path / "p")
    assert answer == {"pid": sent(tmp_path)[0]}


def test_probes_of_different_keys_do_not_wait_for_each_other(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    assert outstanding.ask("prefill0/local", counted(tmp_path, gate), 0, tmp_path / "p") is None
    assert outstanding.ask("decode0/local", counted(tmp_path), 5, tmp_path / "p") is not None
    gate.touch()
    assert outstanding.ask("prefill0/local", counted(tmp_path), 5, tmp_path / "p") is not None
    assert len(sent(tmp_path)) == 2


def test_it_outlives_the_process_that_sent_it(tmp_path: Path) -> None:
    """The short call ends, or is killed; the next one, also of the next run, finds the answer."""
    gate = tmp_path / "gate"
    caller = os.fork()
    if not caller:
        outstanding.ask("k", counted(tmp_path, gate), 60, tmp_path / "p")
        os._exit(0)
    wait_for(lambda: sent(tmp_path))
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    gate.touch()
    answer = outstanding.ask("k", counted(tmp_path), 5, tmp_path / "p")
    assert answer == {"pid": sent(tmp_path)[0]}
    assert len(sent(tmp_path)) == 1


def test_a_probe_that_was_killed_is_told_and_sent_again_by_the_next_call(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    assert outstanding.ask("k", counted(tmp_path, gate), 0, tmp_path / "p") is None
    wait_for(lambda: sent(tmp_path))
    killer = os.fork()
    if not killer:
        time.sleep(0.1)
        os.kill(sent(tmp_path)[0], signal.SIGKILL)
        os._exit(0)
    told = outstanding.ask("k", counted(tmp_path, gate), 5, tmp_path / "p")
    os.waitpid(killer, 0)
    assert told == {"error": "the probe's process ended without an answer"}
    gate.touch()
    again = outstanding.ask("k", counted(tmp_path, gate), 5, tmp_path / "p")
    assert again is not None
    assert len(sent(tmp_path)) == 2


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError("no route"), "OSError: no route"),
        (ValueError("odd"), "ValueError: odd"),
        (KeyError("choices"), "KeyError: 'choices'"),
        (AttributeError("a programming error"), "the probe's process ended without an answer"),
    ],
)
def test_an_error_of_the_work_is_an_answer(tmp_path: Path, error: Exception, told: str) -> None:
    def work() -> Mapping[str, Any]:
        raise error

    assert outstanding.ask("k", work, 5, tmp_path) == {"error": told}


def test_an_answer_nobody_came_for_says_nothing_about_now(tmp_path: Path) -> None:
    """A killed run left it; an hour later it must not pass a gate."""
    old = tmp_path / "k.json"
    old.write_text('{"status": 200}')
    assert outstanding.ask("k", counted(tmp_path), 5, tmp_path) == {"status": 200}
    old.write_text('{"status": 200}')
    os.utime(old, (time.time() - 61, time.time() - 61))
    told = outstanding.ask("k", counted(tmp_path), 5, tmp_path)
    assert told is not None
    assert "pid" in told


def test_a_pid_that_was_given_to_another_process_is_not_our_probe(tmp_path: Path) -> None:
    (tmp_path / "k.pid").write_text(f"{os.getpid()} 1")
    assert outstanding.ask("k", counted(tmp_path), 5, tmp_path) is not None
    (tmp_path / "k.pid").write_text("torn")
    assert outstanding.ask("k", counted(tmp_path), 5, tmp_path) is not None

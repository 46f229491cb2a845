"""The lock: who holds it, when it may be taken over, and that only its holder renews it or gives it back."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import lock
from pd.lock import Lock

BOOT = "boot-1"
NOW = 10_000.0
HELD = Lock(run="theirs", who="ada@desk", why="decode knob", since="2026-01-01T00:00:00+00:00", boot=BOOT, renewed=NOW - 10)
ASKED = Lock(run="ours", who="bob@desk", why="drift", since="2026-01-01T01:00:00+00:00", boot=BOOT, renewed=NOW)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "lock"


@pytest.mark.parametrize(
    ("held", "now", "boot", "dead", "expected"),
    [
        pytest.param(None, NOW, BOOT, (), "take", id="free"),
        pytest.param(replace(HELD, run="ours"), NOW, BOOT, (), "keep", id="ours"),
        pytest.param(replace(HELD, run="ours", renewed=0.0), NOW, BOOT, (), "keep", id="ours, however old"),
        pytest.param(HELD, NOW, BOOT, (), "refuse", id="its holder gave a sign of life 10 s ago"),
        pytest.param(replace(HELD, renewed=NOW - 45), NOW, BOOT, (), "refuse", id="exactly as long as a living one can take"),
        pytest.param(replace(HELD, renewed=NOW - 45.1), NOW, BOOT, (), "take over", id="longer than any living one"),
        pytest.param(HELD, NOW, BOOT, ("theirs",), "take over", id="the controller saw its process die"),
        pytest.param(HELD, NOW, BOOT, ("another",), "refuse", id="another run died"),
        pytest.param(HELD, 20.0, "boot-2", (), "refuse", id="rebooted 20 s ago: its holder may come back"),
        pytest.param(HELD, 46.0, "boot-2", (), "take over", id="rebooted, and nobody came"),
        pytest.param(replace(HELD, renewed=NOW + 900), NOW, BOOT, (), "refuse", id="never in doubt"),
    ],
)
def test_decide(held: Lock | None, now: float, boot: str, dead: tuple[str, ...], expected: str) -> None:
    assert lock.decide(held, ASKED, boot, now, frozenset(dead)) == expected


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_of_two_runs_that_both_look_alive_one_is_refused(renewed: float, now: float) -> None:
    held = replace(HELD, renewed=renewed)
    assert (lock.decide(held, ASKED, BOOT, now, frozenset()) == "refuse") is (now - renewed <= lock.TTL_SECONDS)


def test_the_second_operator_is_told_who_since_when_and_why() -> None:
    told = replace(HELD, boot=lock.boot_id()).told(NOW)
    assert told == "held by ada@desk since 2026-01-01T00:00:00+00:00 (decode knob); last sign of life 10 s ago"
    assert HELD.told(NOW).endswith("last sign of life before the machine was booted")


def test_the_second_operator_is_told_at_which_step(path: Path) -> None:
    lock.write(HELD, path)
    lock.keep("theirs", path, doing="gate decode0 until working")
    lock.keep("theirs", path)
    held = lock.read(path)
    assert held is not None
    assert "(decode knob), at `gate decode0 until working`; last sign of life" in held.told(lock.boottime())


def test_a_lock_of_before_there_were_steps_is_still_a_lock(path: Path) -> None:
    """A run of the version before this one may be at work."""
    path.parent.mkdir()
    path.write_text('{"run": "r", "who": "ada@desk", "why": "x", "since": "t", "boot": "b", "renewed": 1.0}')
    held = lock.read(path)
    assert held is not None
    assert "`" not in held.told(NOW)


def test_it_comes_back_as_it_was_written(path: Path) -> None:
    assert lock.read(path) is None
    lock.write(HELD, path)
    assert lock.read(path) == HELD
    assert [file.name for file in path.parent.iterdir()] == ["lock"]


@pytest.mark.parametrize("junk", ["", "{", "[]", "null", '{"run": "x"}', '{"surprise": 1}'])
def test_what_is_not_a_lock_is_never_taken_in_silence(path: Path, junk: str) -> None:
    path.parent.mkdir()
    path.write_text(junk)
    with pytest.raises(ValueError, match="is not a lock of ours"):
        lock.read(path)


def test_only_its_holder_renews_it(path: Path) -> None:
    lock.write(HELD, path)
    assert lock.renew("ours", path, lambda: NOW) is False
    assert lock.read(path) == HELD
    assert lock.renew("theirs", path, lambda: NOW) is True
    assert lock.read(path) == replace(HELD, renewed=NOW, boot=lock.boot_id())


def test_only_its_holder_gives_it_back(path: Path) -> None:
    lock.write(HELD, path)
    assert lock.release("ours", path) is False
    assert lock.read(path) == HELD
    assert lock.release("theirs", path) is True
    assert lock.read(path) is None
    assert lock.release("theirs", path) is False
    assert lock.renew("theirs", path) is False


def test_a_run_that_lost_its_lock_does_not_go_on(path: Path) -> None:
    """A laptop that slept, a cable that was out: meanwhile somebody else took over."""
    lock.write(HELD, path)
    lock.keep("theirs", path)
    with pytest.raises(RuntimeError, match=r"held by ada@desk since .* must not go on"):
        lock.keep("ours", path)
    lock.release("theirs", path)
    with pytest.raises(RuntimeError, match="held by nobody"):
        lock.keep("theirs", path)


def test_after_a_reboot_the_holder_that_comes_back_is_not_gone(path: Path) -> None:
    lock.write(replace(HELD, boot="an earlier boot", renewed=1e9), path)
    assert lock.renew("theirs", path)
    held = lock.read(path)
    assert held is not None
    assert not lock.is_gone(held, lock.boot_id(), lock.boottime())


def _take(path: Path, told: Event) -> None:
    told.wait(5)
    with lock.exclusive(path):
        asked = lock.new("second", "me", "race", "now")
        if lock.decide(lock.read(path), asked, asked.boot, asked.renewed, frozenset()) == "take":
            lock.write(asked, path)


def test_two_that_look_at_once_do_not_both_take_it(path: Path) -> None:
    """The second one looks only after the first has written what it decided."""
    fork = multiprocessing.get_context("fork")
    told = fork.Event()
    second = fork.Process(target=_take, args=(path, told))
    second.start()
    with lock.exclusive(path):
        assert lock.read(path) is None
        told.set()
        second.join(0.2)
        assert lock.read(path) is None
        lock.write(replace(HELD, run="first", boot=lock.boot_id(), renewed=lock.boottime()), path)
    second.join(5)
    held = lock.read(path)
    assert held is not None
    assert held.run == "first"

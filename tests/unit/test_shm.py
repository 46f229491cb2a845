"""Shared memory of killed processes: real processes, real segments."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pd import shm

OPEN = "f = open(sys.argv[1], 'r+b')"
MAP = "f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 4096); f.close()"


@contextmanager
def process(path: Path, how: str = MAP) -> Iterator[int]:
    """A process that uses a file in this way, and is killed at the end."""
    argv = [sys.executable, "-c", f"import mmap, sys\n{how}\nprint(flush=True)\ninput()", str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.kill()


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    """One segment in a directory that stands for /dev/shm."""
    path = tmp_path / "sglang_loads_1"
    path.write_bytes(b"x" * 16384)
    return path


@pytest.mark.parametrize("how", [OPEN, MAP])
def test_what_a_killed_process_had_is_unlinked_when_nobody_has_it(segment: Path, how: str) -> None:
    with process(segment, how) as pid:
        had = shm.used_by([pid], segment.parent)
        assert had == {segment}
        assert shm.clear(had, segment.parent) == 0
        assert segment.exists(), "it is in use"
    assert shm.clear(had, segment.parent) == 16384
    assert not segment.exists()
    assert shm.clear(had, segment.parent) == 0, "gone already, as after a stop that was gone on with"


def test_what_another_process_has_too_stays(segment: Path) -> None:
    with process(segment) as other:
        with process(segment) as pid:
            had = shm.used_by([pid], segment.parent)
        shm.clear(had, segment.parent)
        assert segment.exists()
        assert shm.used_by([other], segment.parent) == {segment}


def test_what_nobody_of_ours_had_is_not_touched(segment: Path) -> None:
    with process(segment.parent / "other", "") as pid:
        had = shm.used_by([pid], segment.parent)
    assert had == frozenset()
    assert shm.used_by([pid]) == frozenset(), "a process that is gone"
    shm.clear(had, segment.parent)
    assert segment.exists()


def test_a_file_that_was_unlinked_before_and_one_elsewhere_are_not_ours(segment: Path) -> None:
    """A deleted file reads as `NAME (deleted)`; a file below a directory in there was made by somebody with a plan."""
    inner = segment.parent / "d"
    inner.mkdir()
    (inner / "x").write_bytes(b"x" * 4096)
    with process(segment) as pid, process(inner / "x") as other:
        segment.unlink()
        had = shm.used_by([pid, other], segment.parent)
    assert shm.clear(had, segment.parent) == 0
    assert (inner / "x").exists()

"""At most one probe of a kind is out at a time, and it outlives the call that sent it.

A probe may take longer than a short call on the node (SGLang's own health limit is 20 s, facts 2.2), and probes that time out and
are sent again pile up in the scheduler (field report 023). So the request is made by a detached child, which leaves its
answer in a file; the next short call, also one of the next run, picks it up.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .observe import start_time

DIR = Path("/run/sglang-pd/probes")
POLL_SECONDS = 0.02
STALE_SECONDS = 60.0

Answer = dict[str, Any]


def ask(key: str, work: Callable[[], Mapping[str, Any]], wait: float, directory: Path = DIR) -> Answer | None:
    """Send `work` into a child unless one with this key is still out; its answer, or None after `wait` seconds without one.

    An answer is handed out once. `work` must return something JSON can carry; an exception in it becomes {"error": ...}.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    stem = directory / re.sub(r"[^\w.-]", "_", key)
    answer, sent = stem.with_suffix(".json"), stem.with_suffix(".pid")
    if _is_stale(answer):
        answer.unlink()
    if not answer.exists() and not _is_out(sent):
        _send(work, answer, sent)
    deadline = time.monotonic() + wait
    while True:
        if answer.exists():
            told: Answer = json.loads(answer.read_text())
            answer.unlink()
            sent.unlink(missing_ok=True)
            return told
        if not _is_out(sent) and not answer.exists():
            return {"error": "the probe's process ended without an answer"}
        if time.monotonic() >= deadline:
            return None
        time.sleep(POLL_SECONDS)


def _is_stale(answer: Path) -> bool:
    """An answer that nobody came for in a minute, as after a killed run, says nothing about now."""
    try:
        return abs(time.time() - answer.stat().st_mtime) > STALE_SECONDS
    except FileNotFoundError:
        return False


def _is_out(sent: Path) -> bool:
    try:
        pid, start = sent.read_text().split()
    except (FileNotFoundError, ValueError):
        return False
    return start_time(int(pid)) == start


def _send(work: Callable[[], Mapping[str, Any]], answer: Path, sent: Path) -> None:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write_end)
        os.read(read_end, 1)  # the child has written its pid file
        os.close(read_end)
        return
    try:
        os.setsid()
        sent.write_text(f"{os.getpid()} {start_time(os.getpid())}")
        os.close(read_end)
        os.close(write_end)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        _work(work, answer)
    finally:
        os._exit(0)


def _work(work: Callable[[], Mapping[str, Any]], answer: Path) -> None:
    try:
        told: Mapping[str, Any] = work()
    except (OSError, ValueError, RuntimeError, LookupError) as error:
        told = {"error": f"{type(error).__name__}: {error}"}
    temporary = answer.with_suffix(".part")
    temporary.write_text(json.dumps(told))
    temporary.replace(answer)

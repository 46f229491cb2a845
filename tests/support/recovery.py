"""Watching a recovery that nobody asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.support import crash
from tests.support.pairs import UNITS, Pair
from tests.support.project import ledger

AGAIN = ["start prefill0", "start decode0", "gate prefill0", "gate decode0", "start router0", "gate router0", "end done"]
"""What a recovery does after it has stopped what outlived an engine."""
KILL = "systemctl kill --kill-who=main --signal=KILL"


def recovered(pair: Pair, mark: int, seconds: float = 90) -> list[dict[str, Any]]:
    """The ledger since `mark`, once an `end` has been written and nothing is at work any more."""
    until(lambda: any(e["event"] == "end" for e in ledger(pair.machine)[mark:]), seconds)
    pair.machine.exec(crash.IDLE, timeout=seconds)
    return ledger(pair.machine)[mark:]


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.1)


def acts(entries: list[dict[str, Any]]) -> list[str]:
    return [f"{e['event']} {e.get('instance', e.get('outcome', ''))}".strip() for e in entries]


def said(pair: Pair) -> str:
    """What the recovery told its journal."""
    return pair.machine.exec(["journalctl", "--no-pager", "--output=cat", "-t", "sglang-recover"]).stdout


def active(pair: Pair) -> list[str]:
    """ActiveState of prefill, decode and router."""
    return pair.machine.exec(["systemctl", "show", "-P", "ActiveState", *UNITS.values()]).stdout.split()

"""What happens to a run from outside while it runs: its controller is killed, its connections are cut."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.pairs import Pair
from tests.support.project import Outcome

Event = dict[str, Any]


def done_step(event: Event) -> str:
    """The step of the plan that an event says is done, else nothing."""
    item = ((event.get("event_data") or {}).get("res") or {}).get("item")
    return str(item["text"]) if event["event"] == "runner_item_on_ok" and isinstance(item, dict) and "text" in item else ""


def done_task(event: Event) -> str:
    """The task that an event says is done, else nothing."""
    return str(event["event_data"].get("task", "")) if event["event"] == "runner_on_ok" else ""


def after(name: str) -> Callable[[Event], bool]:
    """Whether an event says that this step, or this task, is done."""
    return lambda event: name in (done_step(event), done_task(event))


def meanwhile(pair: Pair, playbook: str, seen: Callable[[Event], bool], act: Callable[[], object], **extra: Any) -> Outcome:
    """Run a playbook; the first event that `seen` accepts lets `act` happen. It must happen."""
    happened: list[Event] = []

    def handler(event: Event) -> bool:
        if not happened and seen(event):
            happened.append(event)
            act()
        return True

    done = pair.project.watch(playbook, handler, **extra)
    assert happened, done.stdout
    return done


def kill_when(pair: Pair, playbook: str, seen: Callable[[Event], bool], **extra: Any) -> Outcome:
    """Run a playbook and SIGKILL its whole process tree at the first event that `seen` accepts."""

    def kill() -> None:
        found = controllers(pair)
        assert found
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    return meanwhile(pair, playbook, seen, kill, **extra)


def controllers(pair: Pair) -> list[int]:
    """Every ansible-playbook process of this test's project."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"ansible-playbook" in line and str(pair.project.inventory).encode() in line:
            found.append(int(entry.name))
    return found


def cut_ssh(pair: Pair, after_seconds: float = 0.0) -> None:
    """Every connection to the machine breaks, once; new ones are accepted."""
    pair.machine.exec(f"(sleep {after_seconds}; pkill -KILL -e -f '^sshd: root@' > /run/cut) >/dev/null 2>&1 &", check=False)

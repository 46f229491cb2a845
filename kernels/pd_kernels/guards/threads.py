"""Threads that a scheduler cannot do without: when one ends, so does the engine.

SGLang logs the death of its NIXL bootstrap thread and stays healthy, while every request of that rank hangs (lab-facts).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any


def watched(end: Callable[[str], None]) -> Callable[..., Any]:
    """An AROUND hook for a function that starts threads: `end(why)` is called when one of them has ended."""

    def start(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = set(threading.enumerate())
        result = original(*args, **kwargs)
        for thread in set(threading.enumerate()) - before:
            threading.Thread(target=_outlive, args=(thread, end), name=f"pd-guard-of-{thread.name}", daemon=True).start()
        return result

    return start


def _outlive(thread: threading.Thread, end: Callable[[str], None]) -> None:
    thread.join()
    end(f"the thread {thread.name} has ended: this engine would answer /health and let every request hang")


def end_engine(why: str) -> None:
    """End the engine as SGLang does when a scheduler fails (sglang-facts 2.5): SIGQUIT makes the parent kill itself, which systemd sees."""
    sys.stderr.write(f"pd_kernels: guards: {why}. The engine ends itself.\n")
    sys.stderr.flush()
    os.kill(os.getppid(), signal.SIGQUIT)
    os._exit(1)

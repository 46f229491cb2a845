"""Stopping one instance: it may finish what is in flight for a while, then what is left is killed, and counted.

An engine never gets a SIGTERM alone: it would drain without a bound, and admit all the while (facts 2.5). So its `grace` is 0, and the
kill follows the stop at once. systemd does not start again what dies while its stop is queued.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from . import http, lock, metrics, observe
from .ledger import Entry
from .node import Placed
from .observe import Unit

STOPPED = ("inactive", "failed", "absent")
POLL_SECONDS = 0.05
COUNT_SECONDS = 0.5


@dataclass(frozen=True)
class Halted:
    """How far a stop has come: the processes `left`, the requests still in flight, and those that a kill has `cut` (None: not known)."""

    unit: Unit
    left: int
    in_flight: int | None = None
    cut: int | None = None
    killed: bool = False

    @property
    def gone(self) -> bool:
        """Whether the last process has ended."""
        return self.unit.active_state in STOPPED and not self.left

    def __str__(self) -> str:
        if self.gone:
            return f"{self.unit.name} is {self.unit.active_state}"
        held = "" if self.in_flight is None else f", {self.in_flight} requests in flight"
        return f"{self.unit.name} is {self.unit.active_state}, {self.left} processes left{held}"


def begun(entries: Iterable[Entry], run: str | None, instance: str) -> float | None:
    """When this run queued the stop that is still at work (seconds since boot); None when it has not. Pure."""
    mine = [e for e in entries if e.get("run") == run and e.get("instance") == instance and e["event"] in ("stop", "stopped", "start")]
    return float(mine[-1]["boot"]) if mine and mine[-1]["event"] == "stop" else None


def halt(
    unit: Unit,
    *,
    since: float,
    grace: float,
    seconds: float,
    count: Callable[[], int | None],
    clock: Callable[[], float] = lock.boottime,
) -> Halted:
    """Wait at most `seconds` for a unit whose stop is queued; kill it when `grace` seconds since `since` are over.

    `count` says how many requests are in flight; it is asked now and then, and right before the kill. `clock` is seconds since boot.
    """
    end, next_count = clock() + seconds, clock()
    in_flight: int | None = None
    cut: int | None = None
    killed = False
    while True:
        seen = observe.unit(unit.name)
        left = len(observe.cgroup_pids(seen.control_group or unit.control_group))
        now = clock()
        due = not killed and now - since >= grace
        if (seen.active_state in STOPPED and not left) or (now >= end and not due):
            return Halted(seen, left, in_flight, cut, killed)
        if due:
            cut = in_flight = count()
            _kill(unit.name)
            killed = True
        elif not killed and now >= next_count:
            in_flight, next_count = count(), now + COUNT_SECONDS
        time.sleep(POLL_SECONDS)


def _kill(name: str) -> None:
    """Every process of the unit at once; one that ended meanwhile has nothing to kill."""
    try:
        observe.run(["systemctl", "kill", "--signal=SIGKILL", name])
    except RuntimeError:
        if observe.unit(name).active_state not in STOPPED:
            raise


def in_flight(router: Placed) -> int | None:
    """Requests a router has out at its workers; its metrics answer until the last of them is done, also after SIGTERM (seen on 0.3.2)."""
    told = http.ask(f"{router.metrics_url}/metrics", timeout=1)
    active = metrics.by_label(told.body, "smg_worker_requests_active", "worker")
    return int(max(active.values())) if active else None

"""The lock of a co-restart: who holds it, since when and why; taken over only when its holder is shown to be gone.

The holder renews it with every short call it makes on the node. Its age is counted on the boot-time clock, which neither
a clock step nor daylight saving moves; after a reboot an old lock counts as not renewed since the boot.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

PATH = Path("/var/lib/sglang-pd/lock")
TTL_SECONDS = 45.0
"""No call of a living controller is further apart than this: a call lasts at most 10 s, ssh gives up after 15 s."""


@dataclass(frozen=True)
class Lock:
    """One holder. `renewed` is in seconds of CLOCK_BOOTTIME of the boot `boot`; `doing` is what it renewed it for, "gate decode0 until working"."""

    run: str
    who: str
    why: str
    since: str
    boot: str
    renewed: float
    doing: str = ""

    def told(self, now: float) -> str:
        """The sentence the second operator reads."""
        seen = f"{now - self.renewed:.0f} s ago" if self.boot == boot_id() else "before the machine was booted"
        at = f", at `{self.doing}`" if self.doing else ""
        return f"held by {self.who} since {self.since} ({self.why}){at}; last sign of life {seen}"


def boot_id() -> str:
    """This boot's id."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def boottime() -> float:
    """Seconds since boot, suspend included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_gone(lock: Lock, boot: str, now: float, ttl: float = TTL_SECONDS) -> bool:
    """Whether the holder has given no sign of life for longer than any living one can."""
    renewed = lock.renewed if lock.boot == boot else 0.0
    return now - renewed > ttl


def decide(held: Lock | None, asked: Lock, boot: str, now: float, dead_runs: frozenset[str]) -> str:
    """What to do about the lock: `take`, `keep` (it is ours), `take over` (its holder is gone) or `refuse`."""
    if held is None:
        return "take"
    if held.run == asked.run:
        return "keep"
    if held.run in dead_runs or is_gone(held, boot, now):
        return "take over"
    return "refuse"


def read(path: Path = PATH) -> Lock | None:
    """The lock as it stands, or None. An unreadable one is an error: it is never silently taken."""
    try:
        return Lock(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, TypeError) as error:
        raise ValueError(f"{path} is not a lock of ours ({error}); look at it, and remove it if nobody is at work") from error


def write(lock: Lock, path: Path = PATH) -> None:
    """Put the lock in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(asdict(lock)))
    temporary.replace(path)


@contextmanager
def exclusive(path: Path = PATH) -> Iterator[None]:
    """Keep other processes of this machine out between a look at the lock and what is done about it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".guard").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        yield


def renew(run: str, path: Path = PATH, now: Callable[[], float] = boottime, *, doing: str = "") -> bool:
    """Show that `run` is alive, and what it does; False when the lock is not (or no longer) its own."""
    with exclusive(path):
        held = read(path)
        if held is None or held.run != run:
            return False
        write(replace(held, renewed=now(), boot=boot_id(), doing=doing or held.doing), path)
        return True


def keep(run: str, path: Path = PATH, *, doing: str = "") -> None:
    """Renew, before `doing` is done on behalf of `run`. Raises RuntimeError when the lock is somebody else's by now."""
    if not renew(run, path, doing=doing):
        held = read(path)
        who = held.told(boottime()) if held else "held by nobody"
        raise RuntimeError(f"this run does not have the lock any more, it is {who}; this run must not go on")


def release(run: str, path: Path = PATH) -> bool:
    """Give the lock back; False when it was not this run's. The caller is in `exclusive`."""
    held = read(path)
    if held is None or held.run != run:
        return False
    path.unlink()
    return True


def new(run: str, who: str, why: str, since: str) -> Lock:
    """A lock of this run, renewed now."""
    return Lock(run=run, who=who, why=why, since=since, boot=boot_id(), renewed=boottime())

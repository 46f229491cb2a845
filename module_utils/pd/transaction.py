"""How a transaction begins and ends: the lock, and the entries that frame it in the ledger. The caller is in `lock.exclusive`."""

from __future__ import annotations

from typing import Any

from . import ledger, lock
from .lock import Lock


def begin(asked: Lock, held: Lock | None, generation: str, **more: Any) -> None:
    """Write the lock that `lock.decide` has allowed, then `begin` with `more`. Somebody else's is taken over, and the ledger says so."""
    lock.write(asked)
    fields = {"run": asked.run, "generation": generation, "who": asked.who, "why": asked.why}
    if held is not None and held.run != asked.run:
        ledger.append("takeover", {**fields, "from_run": held.run, "from_who": held.who, "held_since": held.since, "was_doing": held.doing})
        ledger.append("end", {"run": held.run, "outcome": "abandoned", "noticed_by": asked.run})
    ledger.append("begin", {**fields, **more})


def end(run: str, generation: str, outcome: str, **more: Any) -> bool:
    """Write the end and give the lock back; False where it is not this run's: whoever took it over has written the end."""
    held = lock.read()
    if held is None or held.run != run:
        return False
    ledger.append("end", {"run": run, "generation": generation, "outcome": outcome, **more})
    return lock.release(run)

"""The moment on the machine, as a ledger entry carries it, for a reading that is not one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from .lock import boottime


def now() -> dict[str, Any]:
    """`ts` (UTC, for people) and `boot` (seconds since boot, which no clock step moves)."""
    return {"ts": datetime.now(UTC).isoformat(timespec="milliseconds"), "boot": round(boottime(), 3)}

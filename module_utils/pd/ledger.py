"""The ledger: one JSON object a line, appended and fsynced, never edited (design 2).

Every entry carries `ts` (UTC, for people), `boot` (seconds since boot, which no clock step moves), `event`, and where they apply
`run`, `generation`, `instance`, `seconds`.
The module that acts on the node writes its own entry in the same call, so nothing is recorded that did not happen.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .lock import boottime

PATH = Path("/var/lib/sglang-pd/ledger.jsonl")

Entry = dict[str, Any]


def append(event: str, fields: Mapping[str, Any], path: Path = PATH) -> Entry:
    """Append one entry and return it once it is on the disk. Raises OSError when it could not be written."""
    stamps = {"ts": datetime.now(UTC).isoformat(timespec="milliseconds"), "boot": round(boottime(), 3)}
    entry: Entry = {**stamps, "event": event, **fields}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        torn = file.seek(0, os.SEEK_END) > 0 and not _ends_with_newline(file.fileno())
        # A power cut can leave half a line; closing it keeps the damage to that one entry.
        file.write((b"\n" if torn else b"") + json.dumps(entry, sort_keys=True).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    return entry


def _ends_with_newline(fd: int) -> bool:
    return os.pread(fd, 1, os.fstat(fd).st_size - 1) == b"\n"


def read(path: Path = PATH) -> list[Entry]:
    """Every readable entry, oldest first; a torn line is passed over, an absent file is an empty ledger."""
    if not path.exists():
        return []
    entries: list[Entry] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def unfinished(entries: Iterable[Entry]) -> Entry | None:
    """The `begin` entry of a transaction that has neither `good` nor `end`: its controller died or lost the machine.

    One that died after `good` has nothing left to finish but to give its lock back, which is then taken over.
    """
    opened: Entry | None = None
    for entry in entries:
        if entry.get("event") == "begin":
            opened = entry
        elif entry.get("event") in ("good", "end") and opened and entry.get("run") == opened.get("run"):
            opened = None
    return opened


def is_good(entries: Iterable[Entry], generation: str) -> bool:
    """Whether the generation was marked good after its last gate, and not marked bad since."""
    verdicts = [e["event"] for e in entries if e.get("generation") == generation and e.get("event") in ("good", "bad")]
    return bool(verdicts) and verdicts[-1] == "good"


def previous_good(entries: Sequence[Entry], current: str | None) -> str | None:
    """The generation marked good last, other than `current`: where a rollback goes when nobody names another."""
    marked = [str(e["generation"]) for e in entries if e.get("event") == "good" and e.get("generation") != current]
    return next((generation for generation in reversed(marked) if is_good(entries, generation)), None)


def proved_rungs(entries: Iterable[Entry], generation: str) -> dict[str, str]:
    """Instance -> the rung it reached when this generation was last marked good."""
    proved: dict[str, str] = {}
    for entry in entries:
        if entry.get("event") == "good" and entry.get("generation") == generation:
            proved = dict(entry.get("rungs") or {})
    return proved

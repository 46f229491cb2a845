"""What a person reads at 3 a.m. about a failed run: what was seen, in order, what was not, and a cause only where it is mechanical. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .ledger import Entry
from .observe import Unit

LINE = re.compile(r"^\S+ \S+ [^\s\[:]+(?:\[\d+\])?: ?")
"""What journalctl (short-iso) puts before each line: time, host, who."""
TRACEBACK = "Traceback (most recent call last):"
PORT = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)
DISK = re.compile(r"No space left on device|ENOSPC|Disk quota exceeded")
KERNEL = re.compile(r"Out of memory|oom-kill|Killed process|NVRM: Xid")
FULL_MIB = 16
NO_CAUSE = "no mechanical evidence of a cause"
NEVER_CHECKED = (
    "whether an engine generates now: no request was sent for this bundle, a hung engine answers after 20 s or never; what the gate saw is above",
    "the wire between the engines (NIXL, UCX), beyond what the engines themselves logged",
    "the GPUs, beyond what the kernel logged",
)


@dataclass(frozen=True)
class Failure:
    """What the controller saw fail: the message, the instance and rung of the verdict ("" where there was none), the plan as text."""

    message: str
    instance: str
    rung: str
    run: str
    generation: str
    plan: str


def bounded(text: str, limit: int) -> str:
    """At most about `limit` characters: the begin and the end of a long text, and how much is missing between."""
    if len(text) <= limit:
        return text
    head, tail = text[: limit // 3], text[len(text) - 2 * limit // 3 :]
    return f"{head}\n... {len(text) - len(head) - len(tail)} characters left out ...\n{tail}"


def tracebacks(journal: str) -> list[str]:
    """The last line of each traceback, oldest first, each once: what was raised."""
    found: dict[str, None] = {}
    inside = False
    for line in (LINE.sub("", line) for line in journal.splitlines()):
        if TRACEBACK in line:
            inside = True
        elif inside and line[:1].strip():
            found[line.strip()[:300]] = None
            inside = False
    return list(found)


def causes(failure: Failure, units: Mapping[str, Unit], started: Iterable[str], texts: Mapping[str, str], free_mib: Mapping[str, int]) -> list[str]:
    """Mechanical evidence, the failed instance's first; `NO_CAUSE` alone where there is none.

    `started`: the instances this run started, for an end that was asked for is no cause. `texts`: instance -> journal of its start, and
    `kernel`. `free_mib`: mount or directory -> what is free there.
    """
    names = sorted(units, key=lambda name: name != failure.instance)
    found = []
    for name in names:
        journal = texts.get(name, "")
        found += [f"{name}: a traceback in its journal ends with: {line}" for line in tracebacks(journal)]
        found += [f"{name}: its journal says: {line}" for line in _matching(PORT, journal) + _matching(DISK, journal)]
        if name in started:
            found += _ended(name, units[name])
    found += [f"kernel log: {line}" for line in _matching(KERNEL, texts.get("kernel", ""), plain=False)]
    found += [f"disk: {mib} MiB free at {place}" for place, mib in free_mib.items() if mib < FULL_MIB]
    return found or [NO_CAUSE]


def _matching(pattern: re.Pattern[str], text: str, plain: bool = True) -> list[str]:
    lines = [LINE.sub("", line) if plain else line for line in text.splitlines() if pattern.search(line)]
    return list(dict.fromkeys(line.strip()[:300] for line in lines))[-3:]


def _ended(name: str, unit: Unit) -> list[str]:
    if unit.result == "oom-kill":
        return [f"{name}: systemd: the kernel's OOM killer ended it"]
    if unit.result == "start-limit-hit":
        return [f"{name}: systemd gave up starting it (start-limit-hit); the last start before has the reason"]
    running = unit.active_state == "active" or not unit.exit_status
    return [] if running else [f"{name}: systemd: its main process ended with {unit.exit_status} (result {unit.result})"]


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """How generation `one` differs from `other`, by their manifests: one line a knob, flag or fact; secrets by their digests only."""
    mine, theirs = _flat(one), _flat(other)
    found = [
        f"{key}: {mine.get(key, 'absent')}   (there: {theirs.get(key, 'absent')})"
        for key in sorted({*mine, *theirs})
        if mine.get(key) != theirs.get(key)
    ]
    for name in sorted({*one.get("instances", {}), *other.get("instances", {})}):
        for file, part in (("env", "env"), ("config.yaml", "config")):
            digests = [(m.get("instances", {}).get(name) or {}).get("sha256", {}).get(file) for m in (one, other)]
            if digests[0] != digests[1] and not any(line.startswith(f"{name} {part} ") for line in found):
                found.append(f"{name} {part}: a secret value differs")
    return found


def _flat(manifest: Mapping[str, Any]) -> dict[str, str]:
    found = {key: str(manifest.get(key)) for key in ("release", "nonce")}
    found |= {f"machine {key}": str(value) for key, value in (manifest.get("machine") or {}).items()}
    for name, told in manifest.get("instances", {}).items():
        for part in ("env", "config"):
            found |= {f"{name} {part} {key}": json.dumps(value, ensure_ascii=False) for key, value in told[part].items()}
    return found


def history(entries: Sequence[Entry], run: str) -> list[tuple[str, str]]:
    """(time, what) for everything the run did, out of the ledger."""
    shown = ("instance", "state", "rung", "until", "seconds", "outcome", "generation", "why")
    return [
        (e["ts"], " ".join([e["event"], *(f"{key}={e[key]}" if key not in ("instance", "why") else str(e[key]) for key in shown if e.get(key))]))
        for e in entries
        if e.get("run") == run
    ]


def summary(failure: Failure, seen: Iterable[tuple[str, str]], found: Sequence[str], unread: Sequence[str], files: Iterable[str]) -> str:
    """The page to read first. `seen`: (UTC time, what) in any order; it is told in order."""
    parts = {
        "WHAT FAILED": [failure.message, "", f"run {failure.run}, generation {failure.generation}"],
        "WHAT WAS SEEN, IN ORDER (UTC)": [f"{at}  {what}" for at, what in sorted(seen)],
        "MECHANICAL EVIDENCE": list(found),
        "NOT CHECKED, OR COULD NOT BE READ": [f"- {line}" for line in (*unread, *NEVER_CHECKED)],
        "FILES": sorted(files),
    }
    return "\n\n".join("\n".join([title, *(f"  {line}" for text in lines for line in text.split("\n"))]) for title, lines in parts.items()) + "\n"

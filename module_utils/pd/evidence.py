"""Read everything that a failed run leaves to be seen on the node, quickly: every read is bounded in time and size, and none fails the others."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import climb, gates, http, ledger, metrics, node, observe, processes
from .gates import Baseline
from .ledger import Entry
from .node import NoGenerationError, Placed
from .observe import Unit

SECONDS = 4.0
"""How long all reads together may take: they run side by side, and what has not answered by then is told as not read."""
HTTP_SECONDS = 2.0
JOURNAL_LINES = 3000
LEDGER_ENTRIES = 200
PLACES = ("/", "/etc/sglang-pd", "/var/lib/sglang-pd", "/opt/sglang-pd", "/var/cache/sglang-pd", "/tmp", "/dev/shm", "/run")
FAILURES = (OSError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, NoGenerationError)

Work = Mapping[str, Callable[[], Any]]


@dataclass(frozen=True)
class Read:
    """One thing that was read: when (UTC), what it told, or why it could not be read."""

    at: str
    told: Any = None
    error: str = ""


@dataclass(frozen=True)
class Subject:
    """One instance: the generation its process runs (or the wanted one), and the process that this run started, if it started one."""

    member: Placed
    unit: Unit
    started: Baseline | None


def now() -> str:
    """UTC to the millisecond, as the ledger has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def gather(work: Work, seconds: float = SECONDS) -> dict[str, Read]:
    """Do all of `work` at once; after `seconds` what is still out is left behind, in a thread that does not keep the process alive."""
    done: queue.SimpleQueue[tuple[str, Read]] = queue.SimpleQueue()

    def one(name: str, read: Callable[[], Any]) -> None:
        answer = Read(now(), error="its reader failed")
        try:
            answer = Read(now(), read())
        except FAILURES as error:
            answer = Read(now(), error=str(error) or type(error).__name__)
        finally:
            done.put((name, answer))

    for name, read in work.items():
        threading.Thread(target=one, args=(name, read), daemon=True).start()
    found: dict[str, Read] = {}
    deadline = time.monotonic() + seconds
    while len(found) < len(work):
        try:
            name, answer = done.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[name] = answer
    return {name: found.get(name) or Read(now(), error=f"no answer in {seconds:g} s") for name in work}


def subjects(generation: str, entries: Sequence[Entry], run: str) -> list[Subject]:
    """All instances in start order. One that was not reached is asked by the generation that it really runs: its port may differ."""
    found = []
    for member in node.everyone(generation):
        unit = observe.unit(member.unit)
        runs = ((observe.environ(unit.main_pid) if unit.main_pid else None) or {}).get("PD_GENERATION")
        other = runs if runs not in (None, generation) and node.is_whole(runs) else None
        found.append(Subject(_placed(member, other), unit, started(entries, run, member.name)))
    return found


def _placed(member: Placed, other: str | None) -> Placed:
    try:
        return node.placed(member.name, other) if other else member
    except NoGenerationError:
        return member


def started(entries: Iterable[Entry], run: str, instance: str) -> Baseline | None:
    """The process that this run started last as `instance`, out of the ledger."""
    mine = [e for e in entries if e.get("event") == "start" and e.get("run") == run and e.get("instance") == instance]
    return Baseline(**{key: mine[-1][key] for key in ("main_pid", "n_restarts", "invocation")}) if mine else None


def of_machine(entries: Sequence[Entry], run: str) -> Work:
    """What is not of one instance."""
    return {
        "kernel.txt": lambda: kernel(next((e["ts"] for e in entries if e.get("run") == run), None)),
        "disk.json": free_mib,
        "sockets.txt": lambda: observe.run(["ss", "-ltnp"], timeout=HTTP_SECONDS),
        "ledger.jsonl": lambda: tuple(entries[-LEDGER_ENTRIES:]),
    }


def of_instance(subject: Subject) -> Work:
    """What is of one instance: file -> how it is read."""
    member, unit = subject.member, subject.unit
    now_runs = unit.invocation
    first = subject.started.invocation if subject.started else now_runs
    work: dict[str, Callable[[], Any]] = {
        "journal.txt": lambda: journal(member.unit, first),
        "unit.json": lambda: asdict(observe.unit(member.unit)),
        "processes.txt": lambda: processes.table(observe.cgroup_pids(unit.control_group)),
        "rungs.json": lambda: rungs(subject),
        "metrics.txt": lambda: _metrics(member),
    }
    if first != now_runs:
        work["journal-of-the-next-start.txt"] = lambda: journal(member.unit, now_runs)
    asked = {"workers.json": "/workers", "readiness.json": "/readiness"} if member.is_router else {}
    asked = asked or {"loads.json": "/v1/loads?include=all", "server_info.json": "/server_info"}
    work |= {file: _asking(member, path) for file, path in asked.items()}
    if member.is_router:
        work["circuits.json"] = lambda: circuits(_metrics(member))
    return {f"{member.name}/{file}": read for file, read in work.items()}


def _asking(member: Placed, path: str) -> Callable[[], Any]:
    return lambda: _answer(f"{member.url}{path}", node.api_key(member.generation, member.name))


def _answer(url: str, key: str | None) -> Any:
    got = http.ask(url, timeout=HTTP_SECONDS, key=key)
    if got.error:
        raise RuntimeError(got.error)
    return {"status": got.status, "body": got.body}


def _metrics(member: Placed) -> str:
    url = f"{member.metrics_url if member.is_router else member.url}/metrics"
    return str(_answer(url, None if member.is_router else node.api_key(member.generation, member.name))["body"])


def circuits(text: str) -> dict[str, str]:
    """Worker -> state of its circuit, in words (facts 5.3.4: 0 closed, 1 open, 2 half open)."""
    words = {0.0: "closed", 1.0: "open", 2.0: "half open"}
    return {worker: words.get(state, str(state)) for worker, state in metrics.by_label(text, "smg_worker_cb_state", "worker").items()}


def rungs(subject: Subject) -> dict[str, str]:
    """The rungs that can be read without a request: alive, listening, and whether its processes carry what they must."""
    member = subject.member
    unit = observe.unit(member.unit)
    ready, route = climb.listening_answers(member)
    carried = gates.carried(observe.ranks(observe.cgroup_pids(unit.control_group), member.knobs), member.generation, member.knobs)
    told = {"alive": gates.alive(unit, subject.started), "listening": gates.listening(member.role, ready, route)}
    found = {rung: f"{verdict.state}: {verdict.why}" for rung, verdict in told.items()}
    found["carries"] = f"{carried.state}: {carried.why}" if carried else f"all its processes carry {member.generation} and its knobs"
    return found


def journal(unit: str, invocation: str) -> str:
    """One start of a unit, with systemd's own lines about it; where there was none, the unit's last lines."""
    if not invocation:
        return observe.run(["journalctl", "--no-pager", "--output=short-iso", "--lines=50", "--unit", unit], timeout=HTTP_SECONDS)
    match = [f"_SYSTEMD_INVOCATION_ID={invocation}", "+", f"INVOCATION_ID={invocation}"]
    return observe.run(["journalctl", "--no-pager", "--output=short-iso", f"--lines={JOURNAL_LINES}", *match], timeout=HTTP_SECONDS)


def kernel(since: str | None) -> str:
    """The kernel's lines since the run began. Raises RuntimeError where there is no such log, as in a container."""
    if not Path("/dev/kmsg").exists() or not os.access("/dev/kmsg", os.R_OK):
        raise RuntimeError("/dev/kmsg cannot be read here: a container?")
    stamp = f"@{datetime.fromisoformat(since).timestamp() - 60:.0f}" if since else "-10min"
    return observe.run(["journalctl", "--no-pager", "--dmesg", "--output=short-iso", "--lines=500", f"--since={stamp}"], timeout=HTTP_SECONDS)


def free_mib() -> dict[str, int]:
    """MiB that root may still write, at the places a start needs."""
    found = {}
    for place in (place for place in PLACES if Path(place).exists()):
        told = os.statvfs(place)
        found[place] = told.f_bavail * told.f_frsize // 2**20
    return found


def secrets_of(generations: Iterable[str]) -> frozenset[str]:
    """Every secret of these generations' files. Raises NoGenerationError, OSError, ValueError when they cannot be known."""
    return frozenset(secret for generation in generations for member in node.everyone(generation) for secret in member.secrets)


def generations(entries: Sequence[Entry], wanted: str) -> dict[str, str]:
    """`wanted`, `current`, `last good`: those of them that are on the machine."""
    mark = ledger.last_good(entries, wanted)
    told = {"wanted": wanted, "current": node.current_id(), "last good": str(mark["generation"]) if mark else None}
    return {what: generation for what, generation in told.items() if generation and node.is_whole(generation)}

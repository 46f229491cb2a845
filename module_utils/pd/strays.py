"""Processes that speak against a restart: found by cgroup, user, socket and state, never by a name, and never killed here."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from .observe import PROC, cmdline, stat
from .ports import Port
from .problem import Problem

LISTEN = "0A"
USER = "sglang"
"""The services' user; nothing else on the machine runs as it (role `node`)."""
STUCK_SECONDS = 3.0
"""A thread that was not scheduled once in this time while it waits in the kernel is stuck: a load that is only slow is."""


@dataclass(frozen=True)
class Process:
    """One process: who it is, where it belongs (the text of its cgroup file), since when."""

    pid: int
    uid: int
    state: str
    since: str
    cgroup: str
    command: str

    def __str__(self) -> str:
        return f"process {self.pid}, since {self.since}: {self.command[:80] or '(no command line)'}"


def user_id(name: str = USER) -> int | None:
    """The uid of the services' user; None on a machine that has none yet."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def belongs(cgroup: str, units: Collection[str]) -> bool:
    """Whether a /proc/PID/cgroup text is of one of these units (below it, too). The same under cgroup v1 and v2."""
    return any(part in units for line in cgroup.splitlines() for part in line.rpartition(":")[2].split("/"))


def processes(uid: int | None, units: Collection[str]) -> list[Process]:
    """Every process of the user or of the units, but for zombies: they hold nothing."""
    found = []
    for pid in _pids():
        try:
            fields = stat(pid)
            owner, cgroup = (PROC / str(pid)).stat().st_uid, (PROC / str(pid) / "cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] not in "ZX" and (owner == uid or belongs(cgroup, units)):
            found.append(Process(pid, owner, fields[0], _since(int(fields[19])), cgroup, cmdline(pid)))
    return found


def _since(ticks: int) -> str:
    """When a process started; field 22 of its stat counts from the boot."""
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return datetime.fromtimestamp(time.time() - age, UTC).isoformat(timespec="seconds")


def left_over(seen: Iterable[Process], uid: int | None, units: Collection[str], idle: Collection[str]) -> list[Problem]:
    """Processes of the services' user outside every unit of the set, and those in a unit that systemd says does not run (report 071).

    They hold memory, ports or a GPU that the next start needs, and no stop of ours reaches them.
    """
    found = []
    for one in seen:
        if belongs(one.cgroup, idle):
            where = "in the cgroup of a unit that does not run"
        elif one.uid == uid and not belongs(one.cgroup, units):
            where = f"of user {USER}, in no unit of the set"
        else:
            continue
        found.append(Problem("the machine", "left-over process", f"{one} ({where}; cgroup {_own(one.cgroup)})", _advice(one)))
    return found


def _own(cgroup: str) -> str:
    return cgroup.strip().splitlines()[-1].rpartition(":")[2] if cgroup.strip() else "?"


def _advice(one: Process) -> str:
    if (unit := _own(one.cgroup).rpartition("/")[2]).startswith(("sglang-engine@", "sglang-router@")):
        return f"systemctl disable --now {unit}, or put its instance back into the inventory"
    return f"look at it, then: kill {one.pid}"


def stuck(seen: Sequence[Process], sleep: Callable[[float], object] = time.sleep) -> list[Problem]:
    """Threads that wait in the kernel and were not scheduled once while it was looked: no signal ends them.

    Their process cannot be stopped, so a restart would lose what still runs and get nothing for it.
    """
    before = {key for one in seen for key in _waiting(one.pid)}
    if not before:
        return []
    sleep(STUCK_SECONDS)
    found = []
    for one in seen:
        held = [thread for key in _waiting(one.pid) if key in before for thread in [key[1]]]
        if held:
            where = f"waits in the kernel ({_text(one.pid, held[0], 'wchan').strip() or '?'}), thread {held[0]}, since {STUCK_SECONDS:.0f} s at least"
            fix = "look at the kernel's log (dmesg) and the device it waits for; only a reboot ends it"
            found.append(Problem("the machine", "process in state D", f"{one} {where}", fix))
    return found


def _waiting(pid: int) -> Iterator[tuple[int, int, str]]:
    """(pid, thread, how often it was scheduled) of each thread in uninterruptible sleep."""
    try:
        threads = [int(entry.name) for entry in (PROC / str(pid) / "task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for thread in threads:
        status = dict(line.partition(":")[::2] for line in _text(pid, thread, "status").splitlines())
        if status.get("State", "").strip().startswith("D"):
            yield pid, thread, status["voluntary_ctxt_switches"].strip()


def _text(pid: int, thread: int, name: str) -> str:
    try:
        return (PROC / str(pid) / "task" / str(thread) / name).read_text()
    except OSError:
        return ""


def strangers(ports: Iterable[Port], units: Collection[str]) -> list[Problem]:
    """Ports that a process outside the set's units listens on; found by the socket's inode."""
    wanted = {port.number: port for port in ports}
    held = [(number, inode) for number, inode in listening() if number in wanted]
    if not held:
        return []
    owners = _owners({inode for _, inode in held})
    found = []
    for number, inode in held:
        pid = owners.get(inode)
        if pid is not None and belongs(_cgroup(pid), units):
            continue
        who = f"process {pid} ({cmdline(pid)[:60]})" if pid else "a process that cannot be seen"
        port = wanted[number]
        found.append(Problem(port.where, port.name, f"port {number} is held by {who}, not by one of our units", f"stop it, or another {port.name}"))
    return found


def listening() -> list[tuple[int, str]]:
    """(port, inode) of every listening TCP socket."""
    found = []
    for table in ("tcp", "tcp6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                found.append((int(fields[1].rpartition(":")[2], 16), fields[9]))
    return found


def _owners(inodes: set[str]) -> dict[str, int]:
    links = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, int] = {}
    for pid in _pids():
        try:
            descriptors = list((PROC / str(pid) / "fd").iterdir())
        except OSError:
            continue
        for descriptor in descriptors:
            inode = links.get(_link(str(descriptor)))
            if inode is not None:
                found[inode] = pid
    return found


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115  a socket's link has no path behind it
    except OSError:
        return ""


def _cgroup(pid: int) -> str:
    try:
        return (PROC / str(pid) / "cgroup").read_text()
    except OSError:
        return ""


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]

"""What systemd, /proc and the journal say about one instance. I/O only; what it means is judged in gates.py and plan.py."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROC = Path("/proc")
SHOWN = (
    "LoadState", "ActiveState", "SubState", "Result", "MainPID", "NRestarts", "InvocationID", "ControlGroup", "NeedDaemonReload",
    "ExecMainStatus", "ExecMainCode", "ExecMainStartTimestamp", "ExecMainStartTimestampMonotonic", "DropInPaths", "UnitFileState",
    "ExecMainExitTimestampMonotonic", "ActiveExitTimestampMonotonic", "InactiveEnterTimestampMonotonic",
)  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """One unit as `systemctl show` tells it. `active_state` is `absent` where no such unit is loaded.

    `started_at`: seconds on the node's monotonic clock at which its main process started, 0 when it never did. On the same clock, 0 for
    never in this boot: `exited_at`, when that process ended; `left_active_at`, when a stop or a death took the unit out of `active`;
    `ended_at`, when it was last without any process, which for a running unit is the end of the process before.
    """

    name: str
    active_state: str
    sub_state: str
    result: str
    main_pid: int
    n_restarts: int
    invocation: str
    control_group: str
    need_reload: bool
    exit_status: str
    since: str
    started_at: float
    drop_ins: tuple[str, ...]
    enabled: bool
    exited_at: float = 0.0
    left_active_at: float = 0.0
    ended_at: float = 0.0

    @property
    def runs(self) -> bool:
        """Whether it has a process, or is about to get one."""
        return self.active_state in ("active", "activating", "reloading")

    @property
    def was_stopped(self) -> bool:
        """Whether its last process ended because a stop was asked for: then the unit left `active` before the process ended, not after."""
        return self.result != "oom-kill" and self.started_at <= self.left_active_at < self.exited_at


def run(argv: Sequence[str], timeout: float = 8.0, *, may_be_silent: bool = False) -> str:
    """Standard output of a command. Raises RuntimeError that says what was asked and what came back.

    `may_be_silent`: a failure without a word is an empty answer, as that of journalctl when there is no entry to have a cursor.
    """
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"`{' '.join(argv)}` gave no answer in {timeout:.0f} s") from error
    if done.returncode and not (may_be_silent and not done.stdout + done.stderr):
        raise RuntimeError(f"`{' '.join(argv)}` ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def unit(name: str) -> Unit:
    """Ask systemd about one unit, whatever state it is in."""
    return parse_show(name, run(["systemctl", "show", name, "--property", ",".join(SHOWN)]))


def parse_show(name: str, text: str) -> Unit:
    """Read the key=value lines of `systemctl show`."""
    told = dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)
    absent = told.get("LoadState") in ("not-found", "", None)
    return Unit(
        name=name,
        active_state="absent" if absent else told["ActiveState"],
        sub_state=told.get("SubState", ""),
        result=told.get("Result", ""),
        main_pid=int(told.get("MainPID") or 0),
        n_restarts=int(told.get("NRestarts") or 0),
        invocation=told.get("InvocationID", ""),
        control_group=told.get("ControlGroup", ""),
        need_reload=told.get("NeedDaemonReload") == "yes",
        exit_status=_exit(told.get("ExecMainCode", "0"), told.get("ExecMainStatus", "0")),
        since=told.get("ExecMainStartTimestamp", ""),
        started_at=_stamp(told, "ExecMainStart"),
        drop_ins=tuple(told.get("DropInPaths", "").split()),
        enabled=told.get("UnitFileState") == "enabled",
        exited_at=_stamp(told, "ExecMainExit"),
        left_active_at=_stamp(told, "ActiveExit"),
        ended_at=_stamp(told, "InactiveEnter"),
    )


def _stamp(told: Mapping[str, str], what: str) -> float:
    return int(told.get(f"{what}TimestampMonotonic") or 0) / 1e6


def _exit(code: str, status: str) -> str:
    """systemd's ExecMainCode is the waitid() si_code: 1 exited, 2 killed by a signal, 3 dumped core."""
    return {"1": f"exit status {status}", "2": f"killed by signal {status}", "3": f"dumped core on signal {status}"}.get(code, "")


def environ(pid: int) -> dict[str, str] | None:
    """The environment a process was started with (its titles leave it alone under SPT_NOENV=1, facts 2.7); None when it is gone.

    A zombie reads as nothing at all. One whose title was written over its environment is alive: it shows an empty one.
    """
    try:
        raw = (PROC / str(pid) / "environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if not raw:
        return None
    pairs = (part.partition(b"=") for part in raw.split(b"\0") if b"=" in part)
    return {key.decode(errors="replace"): value.decode(errors="surrogateescape") for key, _, value in pairs}


def cmdline(pid: int) -> str:
    """The command line (or title) of a process, empty when it is gone."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat that follow the command: [0] is the state, proc(5)'s field n is [n - 3]. Raises where it is gone."""
    return (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()


def start_time(pid: int) -> str | None:
    """When a process started (field 22): with it a recycled pid is not mistaken for it. None for one that is gone, or a zombie."""
    try:
        fields = stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else fields[19]


def cgroup_pids(control_group: str) -> tuple[int, ...]:
    """Every process of a unit, found by its cgroup: /proc/PID/cgroup reads the same under cgroup v1 and v2."""
    if not control_group:
        return ()
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            lines = (entry / "cgroup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        paths = [line.split(":", 2)[2] for line in lines if line.count(":") >= 2]
        if any(path == control_group or path.startswith(control_group + "/") for path in paths):
            found.append(int(entry.name))
    return tuple(sorted(found))


def journal(name: str, invocation: str, lines: int = 20) -> tuple[str, ...]:
    """The last lines of the unit's present start only: an earlier boot's errors must not count (field report 006)."""
    match = [f"_SYSTEMD_INVOCATION_ID={invocation}"] if invocation else ["--unit", name]
    text = run(["journalctl", "--no-pager", "--output=cat", f"--lines={lines}", *match])
    return tuple(text.splitlines())


def journal_after(invocation: str, cursor: str) -> tuple[tuple[str, ...], str]:
    """The lines of this start that came after a cursor (empty: all of them), and the cursor of the last."""
    after = [f"--after-cursor={cursor}"] if cursor else []
    argv = ["journalctl", "--no-pager", "--quiet", "--output=cat", "--show-cursor", *after, f"_SYSTEMD_INVOCATION_ID={invocation}"]
    lines = run(argv, may_be_silent=True).splitlines()
    mark = "-- cursor: "
    found = [line for line in lines if line.startswith(mark)]
    return tuple(line for line in lines if not line.startswith(mark)), found[-1].removeprefix(mark) if found else cursor


TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    """What a process has used: `cpu` seconds, its own and of the children it has waited for, and bytes `read`, cached or not."""

    name: str
    cpu: float
    read: int


def work(pids: Sequence[int]) -> tuple[Work, ...]:
    """CPU and reading of each process out of /proc: a unit's own accounting is not there under cgroup v1 (lab-facts)."""
    found = []
    for pid in pids:
        try:
            line = (PROC / str(pid) / "stat").read_text()
            told = dict(one.split(": ") for one in (PROC / str(pid) / "io").read_text().splitlines())
        except (FileNotFoundError, ProcessLookupError):
            continue
        title = Path(cmdline(pid).partition(" ")[0]).name or line[line.index("(") + 1 : line.rindex(")")]
        ticks = sum(map(int, line.rpartition(")")[2].split()[11:15]))
        found.append(Work(title, ticks / TICK, int(told["rchar"]) + int(told["read_bytes"])))
    return tuple(found)


def stack(pids: Sequence[int], py_spy: Path, seconds: float = 3.0) -> tuple[str, ...]:
    """What the Python code of these processes is doing; a process that gives no answer in `seconds` says so."""
    said: list[str] = []
    for pid in pids:
        try:
            said += run([str(py_spy), "dump", "--pid", str(pid)], timeout=seconds).splitlines()
        except (RuntimeError, OSError) as error:
            said.append(f"process {pid}: no stack: {error}")
    return tuple(said)


@dataclass(frozen=True)
class Rank:
    """One process of an instance. `has`: those of the names asked for that its environment has, with their values."""

    pid: int
    title: str
    generation: str | None
    has: Mapping[str, str]
    kernels: Mapping[str, Any] | None = None
    """What it reports of its kernels (name -> hooks, knobs, calls); None where it reports nothing."""

    def wrong(self, wanted: Mapping[str, str]) -> dict[str, str | None]:
        """Wanted names with what it has instead (None: absent)."""
        return {name: self.has.get(name) for name, value in wanted.items() if self.has.get(name) != value}


def ranks(pids: Sequence[int], names: Collection[str]) -> tuple[Rank, ...]:
    """Every process, with what its environment has of `names`. A process that is gone meanwhile is left out."""
    found = []
    for pid in pids:
        env = environ(pid)
        if env is not None:
            has = {name: env[name] for name in names if name in env}
            found.append(Rank(pid, cmdline(pid)[:80], env.get("PD_GENERATION"), has, kernels_of(pid, env.get("PD_KERNELS_REPORT"))))
    return tuple(found)


def kernels_of(pid: int, directory: str | None) -> Mapping[str, Any] | None:
    """The report that pd_kernels wrote in this process; None without one. That of an earlier process with the same pid is not it."""
    if directory is None:
        return None
    try:
        told = json.loads((Path(directory) / f"{pid}.json").read_text())
        started = stat(pid)[19]
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    ours = isinstance(told, dict) and told.get("start") == started and isinstance(told.get("kernels"), dict)
    return told["kernels"] if ours else None

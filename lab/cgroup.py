"""A cgroup of its own for each guest and each image build: it names every process that was started, whoever died.

Killing systemd-nspawn does not end the guest (its init is handed to the outer PID 1 and goes on), and a killed build
leaves apt and dpkg behind. The cgroup is the one complete list of what belongs to a machine.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import HostError
from lab.host import run

ROOT = Path("/sys/fs/cgroup")
SUPERVISE = Path(__file__).with_name("supervise.sh")
KILL_SECONDS = 20.0


def outer_is_systemd() -> bool:
    """Whether the outer PID 1 is a systemd, which then owns the cgroup tree."""
    return Path("/run/systemd/system").is_dir() and Path("/proc/1/comm").read_text().strip() == "systemd"


def hierarchies(root: Path = ROOT) -> list[Path]:
    """The trees that carry processes for systemd: pure v2, or v1's `systemd` and hybrid's `unified`."""
    if (root / "cgroup.procs").exists():
        return [root]
    return [path for path in (root / "unified", root / "systemd") if (path / "cgroup.procs").exists()]


@dataclass(frozen=True)
class Cgroup:
    """The group `name` in each hierarchy."""

    name: str
    dirs: tuple[Path, ...]
    scope: bool

    @classmethod
    def of(cls, name: str) -> Cgroup:
        """The group `name`; under an outer systemd a delegated scope, which is how it lends out a part of the tree."""
        scope = outer_is_systemd()
        inner = Path("system.slice", f"{name}.scope") if scope else Path(name)
        return cls(name, tuple(tree / inner for tree in hierarchies()), scope)

    def wrap(self, argv: Iterable[str]) -> list[str]:
        """The command that runs `argv` inside the group, supervised (`supervise.sh`)."""
        if not self.dirs:
            raise HostError(f"{ROOT}: found no cgroup tree (v2, or v1 with name=systemd); no guest boots without one")
        inner = ["sh", str(SUPERVISE), " ".join(map(str, self.dirs)), *argv]
        if not self.scope:
            return inner
        return ["systemd-run", "--quiet", "--scope", "--collect", f"--unit={self.name}", "-p", "Delegate=yes", *inner]

    def spawn(self, argv: Iterable[str], **options: Any) -> subprocess.Popen[str]:
        """Start `argv` in the group, in a session of its own; returns once the group holds it, so that `kill` finds it.

        `options` go to Popen. Killed at any moment, the caller leaves either nothing or a process in the group.
        """
        reader, writer = os.pipe()
        process = None
        try:
            process = subprocess.Popen(
                self.wrap(argv), stdin=writer, stderr=subprocess.STDOUT, start_new_session=True, text=True, **options
            )
            os.close(writer)
            writer = -1
            os.read(reader, 1)  # empty where it died on its way: the caller sees that from the process
        except BaseException:
            if process:
                process.kill()
            raise
        finally:
            os.close(reader)
            if writer >= 0:
                os.close(writer)
        return process

    def pids(self) -> set[int]:
        """Every process in the group and below, zombies not included."""
        found: set[int] = set()
        for top in self.dirs:
            for directory, _, _ in os.walk(top):
                try:
                    found.update(map(int, Path(directory, "cgroup.procs").read_text().split()))
                except OSError:
                    continue  # the group was removed while we looked: nobody is in it
        return found

    def kill(self, clock: Callable[[], float] = time.monotonic) -> None:
        """SIGKILL everything in the group and wait until it is gone. Raises HostError after KILL_SECONDS."""
        deadline = clock() + KILL_SECONDS
        while pids := self.pids():
            for pid in pids:
                _kill_and_wait(pid, deadline - clock())
            if clock() > deadline:
                left = sorted(self.pids())
                raise HostError(f"{self.name}: processes {left} still run {KILL_SECONDS:.0f} s after SIGKILL")

    def remove(self) -> None:
        """Remove the group; it must be empty of processes."""
        if self.scope:
            run(["systemctl", "stop", f"{self.name}.scope"], check=False)  # waits until systemd has let go of it
        for top in self.dirs:
            for directory, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(FileNotFoundError):  # a scope is removed by the outer systemd
                    Path(directory).rmdir()


def _kill_and_wait(pid: int, timeout: float) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        wait_exit(handle, timeout)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)


def wait_exit(pidfd: int, timeout: float) -> bool:
    """Wait up to `timeout` seconds for the process behind `pidfd` to end; whether it did."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(max(0.0, timeout) * 1000))

"""One guest's processes: its files, systemd-nspawn, waiting for it to be up, and its last words when it is not."""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lab.cgroup import wait_exit
from lab.errors import BootError
from lab.host import run
from lab.network import BRIDGE, Network
from lab.record import Record

BOOT_SECONDS = 180.0
"""A boot takes half a second alone; this is for a machine whose cores are busy."""
STOP_SECONDS = 180.0
"""Above the stop timeout of any unit in the guest (an engine may take 20 s, systemd's own limit is 90 s)."""
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


def nspawn_command(record: Record, root: Path) -> list[str]:
    """The command that boots the guest. `--keep-unit --register=no`: it works without a systemd outside (lab-facts)."""
    return [
        "systemd-nspawn",
        f"--directory={root}",
        f"--machine={record.unit}",
        f"--hostname={record.name}",
        "--register=no",
        "--keep-unit",
        f"--network-bridge={BRIDGE}",
        "--resolv-conf=off",
        "--timezone=off",
        "--link-journal=no",
        "--console=read-only",
        "--notify-ready=yes",
        *(bind.option() for bind in record.binds),
        "--boot",
    ]


def identity_files(record: Record, public_key: str) -> dict[str, str]:
    """What makes a fresh overlay this machine, and nobody else's."""
    return {
        "etc/hostname": f"{record.name}\n",
        "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {record.name}\n",
        "etc/machine-id": f"{record.machine_id}\n",
        "root/.ssh/authorized_keys": public_key,
    }


def network_files(record: Record, network: Network, resolv_conf: str) -> dict[str, str]:
    """The guest's address, gateway and name servers, written before each boot."""
    address = f"{record.address}/{network.subnet.prefixlen}"
    return {
        "etc/resolv.conf": resolv_conf,
        "etc/systemd/network/10-lab.network": (
            f"[Match]\nName=host0\n\n[Network]\nAddress={address}\nGateway={network.gateway}\n"
            "LinkLocalAddressing=no\nIPv6AcceptRA=no\nLLDP=no\n"
        ),
    }


MACHINE_OWN = (
    "etc/hostname",
    "etc/hosts",
    "etc/machine-id",
    "etc/resolv.conf",
    "etc/systemd/network/10-lab.network",
    "root/.ssh/authorized_keys",
    "etc/ssh/ssh_host_ed25519_key",
    "etc/ssh/ssh_host_ed25519_key.pub",
    "var/log/journal",
    "var/log/wtmp",
    "var/log/btmp",
    "var/lib/systemd/random-seed",
    "tmp",
    "var/tmp",
)
"""What must not go into an image when a machine's overlay becomes one."""


@contextlib.contextmanager
def notifications(record: Record) -> Iterator[socket.socket]:
    """The socket on which systemd-nspawn passes on what the guest's systemd says. Bind it before the boot it is for."""
    path = record.home / "notify.sock"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def start(record: Record, root: Path) -> int:
    """Start the supervised guest, detached from this process; return its pid."""
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "NOTIFY_SOCKET": str(record.home / "notify.sock"),
    }
    with (record.home / "console.log").open("a") as console:
        command = nspawn_command(record, root)
        process = record.cgroup.spawn(command, stdout=console, cwd="/", env=environment)
    return process.pid


def supervisor(record: Record) -> int | None:
    """The pid of the guest's supervisor, None when the machine does not run."""
    for directory in record.cgroup.dirs:
        with contextlib.suppress(OSError):
            pids = (directory / "loop" / "cgroup.procs").read_text().split()
            if pids:
                return int(pids[0])
    return None


def wait_ready(record: Record, listener: socket.socket, pid: int, clock: Callable[[], float] = time.monotonic) -> None:
    """Wait until the guest's systemd has finished booting. Raises BootError when it ends before, or at the deadline."""
    deadline = clock() + BOOT_SECONDS
    pidfd = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(listener, select.POLLIN)
        poller.register(pidfd, select.POLLIN)
        while (left := deadline - clock()) > 0:
            events = {handle for handle, _ in poller.poll(left * 1000)}
            if listener.fileno() in events and b"READY=1" in listener.recv(4096).split(b"\n"):
                return
            if pidfd in events and listener.fileno() not in events:
                raise BootError(f"{record.name}: the guest ended while it booted\n{last_words(record)}")
    finally:
        os.close(pidfd)
    raise BootError(f"{record.name}: not booted after {BOOT_SECONDS:.0f} s\n{last_words(record)}")


def wait_stopped(record: Record, pid: int) -> None:
    """Wait until a guest that was asked to power off is gone. Raises BootError at the deadline."""
    pidfd = os.pidfd_open(pid)
    try:
        if not wait_exit(pidfd, STOP_SECONDS):
            raise BootError(f"{record.name}: still running {STOP_SECONDS:.0f} s after poweroff\n{last_words(record)}")
    finally:
        os.close(pidfd)


def last_words(record: Record, lines: int = 25) -> str:
    """The end of the guest's console and of its journal, read from outside."""
    console = record.home / "console.log"
    text = ANSI.sub("", console.read_text(errors="replace")) if console.exists() else ""
    said = [f"--- console of {record.name}", *text.splitlines()[-lines:]]
    journal = record.home / "root/var/log/journal"
    if journal.is_dir():
        result = run(["journalctl", "-D", str(journal), "-n", str(lines), "--no-pager", "-q"], check=False)
        said += [f"--- journal of {record.name}", *result.stdout.splitlines()]
    return "\n".join(said)

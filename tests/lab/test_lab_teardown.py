"""Nothing is left behind: after destroy, after Ctrl-C, and after SIGKILL at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lab
from lab import cleanup, guest, paths, record
from lab.cgroup import Cgroup
from lab.progress import Plain
from lab.pytest_plugin import MachineFactory
from lab.record import Record

pytestmark = pytest.mark.host

PRELUDE = """
import os, signal, sys
from lab import guest, machine, network, overlay, record, recipe, image
from lab.progress import Plain

signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell is started with it ignored

def die(number=signal.SIGKILL):
    os.kill(os.getpid(), number)
    signal.pause()

def shown():
    print(record.load(subject.id), flush=True)
    die()
"""


def child(code: str) -> subprocess.Popen[str]:
    """A Python process of its own that uses the lab."""
    argv = [sys.executable, "-c", PRELUDE + code]
    return subprocess.Popen(argv, cwd=paths.REPO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def traces(gone: Record) -> list[str]:
    """What is still there of a machine. Its number may be another machine's by now."""
    found = [str(path) for path in (gone.home, gone.state, *gone.cgroup.dirs) if path.exists()]
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(gone.home) in line]
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = cmdline.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [f"{cmdline}: {words!r}"] if str(gone.home).encode() in words else []
    if not any(other.slot == gone.slot for other in record.records()):
        links = subprocess.run(["ip", "-o", "link"], check=True, capture_output=True, text=True).stdout
        found += [line for line in links.splitlines() if f"vb-{gone.unit}@" in line]
        found += [str(path) for path in Path("/run/systemd/nspawn").glob(f"*/{gone.unit}")]
    return found


def test_destroy_leaves_nothing(machine: lab.Machine) -> None:
    mine = machine.record
    assert len(traces(mine)) >= 7, "a running machine must show in every place that is looked at"
    machine.destroy()
    assert traces(mine) == []
    assert record.load(machine.id) is None
    machine.destroy()


MOMENTS = {
    "recorded": "overlay.mount = lambda *a: shown()",
    "mounted": "guest.start = lambda *a: shown()",
    "starting": "guest.wait_ready = lambda *a: shown()",
    "booted": "",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_machine_of_a_killed_process_is_taken_down_by_the_next_use(moment: str) -> None:
    name = lab.unique_name("killed")
    code = f"subject = machine.Machine({name!r}, progress=Plain())\n{MOMENTS[moment]}\nsubject.boot()\nshown()"
    with child(code) as process:
        said, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    gone = eval(said, {"Record": Record, "Bind": lab.Bind, "Owner": record.Owner})
    assert isinstance(gone, Record)
    cleanup.reap(Plain())
    with paths.locked(f"machine-{gone.id}"):
        assert traces(gone) == []
    assert record.load(gone.id) is None


def test_ctrl_c_while_it_boots_leaves_nothing() -> None:
    name = lab.unique_name("interrupted")
    code = f"""
subject = machine.Machine({name!r}, progress=Plain())
def interrupt(*a):
    print(record.load(subject.id), flush=True)
    die(signal.SIGINT)
guest.wait_ready = interrupt
subject.boot()
"""
    with child(code) as process:
        said, errors = process.communicate()
    assert "KeyboardInterrupt" in errors
    gone = eval(said, {"Record": Record, "Bind": lab.Bind, "Owner": record.Owner})
    assert traces(gone) == []


def test_a_kept_machine_outlives_its_process_and_a_running_test_keeps_its_own(machines: MachineFactory) -> None:
    mine = machines()
    kept = lab.Machine(lab.unique_name("kept"))
    try:
        with child(f"machine.Machine({kept.name!r}, keep=True, progress=Plain()).boot(); die()") as process:
            process.communicate()
        cleanup.reap(Plain())
        assert kept.running()
        assert kept.exec("hostname").stdout == f"{kept.name}\n"
        assert mine.exec("hostname").stdout == f"{mine.name}\n"
    finally:
        kept.destroy()


def test_a_guest_whose_nspawn_was_killed_is_still_taken_down(machine: lab.Machine) -> None:
    mine = machine.record
    supervisor = guest.supervisor(mine)
    assert supervisor is not None
    nspawn = int(Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text())
    os.kill(nspawn, signal.SIGKILL)
    assert machine.exec("true").returncode == 0, "the guest goes on without its nspawn: the reason for the cgroup"
    machine.destroy()
    assert traces(mine) == []


def test_a_killed_image_build_is_ended_and_removed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    digest = f"test{os.getpid()}"
    code = f"""
recipe.base_digest = lambda: {digest!r}
recipe.bootstrap_command = lambda *a: ["sh", "-c", "sleep 1000 & echo up > {fifo}; wait"]
image.ensure_base(Plain())
"""
    with child(code) as process:
        assert fifo.read_text() == "up\n"
        process.kill()
        process.communicate()
    group = Cgroup.of(f"pdlab-build-{digest}")
    cleanup.reap(Plain())
    with paths.locked("image-base"):
        assert group.pids() == set()
        assert not any(path.exists() for path in group.dirs)
        assert list(paths.IMAGES.glob(f"*{digest}*")) == []


@pytest.mark.parametrize("forward", ["0", "1"])
def test_the_last_machine_takes_the_network_with_it(tmp_path: Path, machine: lab.Machine, forward: str) -> None:
    del machine  # its images are what the secluded lab boots from
    name = lab.unique_name("alone")
    argv = ["unshare", "--net", "--mount", "--propagation=private", sys.executable, "-m", "tests.lab.alone"]
    subprocess.run([*argv, name, str(tmp_path), forward], cwd=paths.REPO, check=True, timeout=120)
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["statuses"] == [0, 0, 0, 0, 0]
    before, during, after = told["before"], told["during"], told["after"]
    assert before["ip_forward"] == forward
    assert during["ip_forward"] == "1"
    assert {"pdlab0", "vb-pdlab-2"} <= set(during["links"])
    assert "masquerade" in during["nft"]
    assert during["mounts"] and not before["mounts"]
    assert during["recorded"]
    assert after == before

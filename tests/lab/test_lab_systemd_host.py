"""The outer machine of most newcomers: a fresh Debian with a systemd as PID 1. A lab machine plays its part."""

from __future__ import annotations

from pathlib import Path

import pytest

import lab
from lab import paths
from lab.pytest_plugin import MachineFactory

pytestmark = pytest.mark.host

UP = """
import lab
machine = lab.Machine("inner", keep=True).boot()
print(machine.exec("systemctl is-system-running").stdout, end="")
print(machine.reboot())
"""
DOWN = "import lab; lab.Machine('inner').destroy()"
LEFT = (
    "ip -o link | grep pdlab; nft list tables; mount | grep machines/inner; systemctl list-units --no-legend 'pdlab*'"
)


def test_the_lab_sets_itself_up_under_a_systemd_and_leaves_it_clean(machines: MachineFactory, tmp_path: Path) -> None:
    binds = [
        lab.Bind(str(paths.REPO / "lab"), "/root/repo/lab", readonly=True),
        lab.Bind(str(tmp_path), str(paths.CACHE)),  # an overlay cannot lie on an overlay
        lab.Bind(str(paths.IMAGES), str(paths.IMAGES)),
    ]
    outer = machines(binds=binds)
    up = outer.exec(["env", "-C", "/root/repo", "python3", "-c", UP])
    assert up.stdout == "running\nrunning\n"
    assert "installing mmdebstrap, nftables, systemd-container with apt-get: done" in up.stderr
    running = outer.exec("systemctl list-units --no-legend --plain 'pdlab*'").stdout.split()
    assert running[0].startswith("pdlab-inner-"), "it must outlive the SSH session that made it"
    outer.exec(["env", "-C", "/root/repo", "python3", "-c", DOWN])
    assert outer.exec(LEFT, check=False).stdout == ""

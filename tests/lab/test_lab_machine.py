"""A booted machine: what a user of the API relies on."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import lab
from lab import guest
from lab.pytest_plugin import MachineFactory

pytestmark = pytest.mark.host


def test_it_runs_a_real_systemd_and_real_ssh(machine: lab.Machine) -> None:
    assert machine.exec("systemctl is-system-running").stdout == "running\n"
    assert machine.exec("cat /proc/1/comm; hostname").stdout == f"systemd\n{machine.name}\n"
    assert machine.exec("systemctl --failed --no-legend").stdout == ""
    assert f"{machine.address}/24" in machine.exec("ip -4 -br address show host0").stdout
    assert "Server listening on" in machine.journal(unit="ssh.service", since="-10min")
    assert machine.exec("python3 -c 'import apt, venv, sys; print(sys.version_info[:2])'").stdout == "(3, 11)\n"


def test_exec_gives_status_and_both_streams_and_quotes_lists(machine: lab.Machine) -> None:
    result = machine.exec("echo out; echo err >&2; exit 3", check=False)
    assert (result.returncode, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert machine.exec(["printf", "%s|", "a b", "$HOME", "it's"]).stdout == "a b|$HOME|it's|"
    assert machine.exec("cat", stdin="given").stdout == "given"
    with pytest.raises(lab.ExecError, match=r"`ls /nowhere` ended with exit status 2\n.*No such file"):
        machine.exec(["ls", "/nowhere"])
    with pytest.raises(lab.LabError, match="`sleep 60` did not end within"):
        machine.exec("sleep 60", timeout=0.5)


def test_reboot_is_real_and_keeps_address_files_and_journal(machine: lab.Machine) -> None:
    address, before = machine.address, machine.boot_id()
    machine.exec("echo kept > /root/file; echo gone > /run/file; logger before-the-reboot")
    assert machine.reboot() == "running"
    assert machine.address == address
    assert machine.boot_id() != before
    assert machine.exec("cat /root/file; cat /run/file", check=False).stdout == "kept\n"
    assert "before-the-reboot" in machine.exec("journalctl -b -1 -t root").stdout


def test_two_machines_are_two(machines: MachineFactory) -> None:
    one, two = machines(), machines()
    assert one.address != two.address
    script = "cat /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub; cat /sys/class/net/host0/address"
    assert not set(one.exec(script).stdout.splitlines()) & set(two.exec(script).stdout.splitlines())
    one.exec("systemctl stop ssh.socket ssh.service; touch /root/mine", check=False)
    assert two.exec("systemctl is-active ssh.service; ls /root").stdout == "active\n"


def test_packages_come_through_tls_with_pip_and_with_uv_in_a_bare_service(machine: lab.Machine) -> None:
    machine.exec("python3 -m venv /opt/v && /opt/v/bin/pip -q install uv")
    install = "/opt/v/bin/uv pip install --python /opt/v/bin/python --no-cache iniconfig"
    said = machine.exec(f"systemd-run --quiet --wait --pipe env -i {install} 2>&1").stdout
    assert "+ iniconfig==" in said
    assert "warning" not in said


def test_a_changed_host_key_is_refused(machine: lab.Machine) -> None:
    known_hosts = machine.ssh_config.with_name("known_hosts")
    right = known_hosts.read_text()
    other = machine.ssh_config.with_name("other_key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    for wrong in ("", f"{machine.name} {other.with_suffix('.pub').read_text()}"):
        known_hosts.write_text(wrong)
        result = machine.exec("true", check=False)
        assert result.returncode == 255
        assert "Host key verification failed" in result.stderr
    known_hosts.write_text(right)
    machine.exec("true")


def test_binds_are_shared_and_a_readonly_one_is_readonly(machines: MachineFactory, tmp_path: Path) -> None:
    shared, fixed = tmp_path / "shared", tmp_path / "fixed"
    shared.mkdir()
    fixed.mkdir()
    binds = [lab.Bind(str(shared), "/srv/shared"), lab.Bind(str(fixed), "/srv/fixed", readonly=True)]
    machine = machines(binds=binds)
    machine.exec("echo hello > /srv/shared/file")
    assert (shared / "file").read_text() == "hello\n"
    assert "Read-only file system" in machine.exec("touch /srv/fixed/file", check=False).stderr


def test_a_frozen_machine_is_an_image_for_others(machines: MachineFactory) -> None:
    first = machines()
    name = lab.unique_name("frozen")
    first.exec(
        "echo kept > /etc/kept; rm /etc/issue; rm -r /usr/share/perl5; mkdir /usr/share/perl5; systemctl mask cron"
    )
    identity = "cat /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub"
    frozen_identity = first.exec(identity).stdout
    frozen = first.freeze(name)
    try:
        kept = [path for path in guest.MACHINE_OWN if (frozen.layers[0] / path).exists()]
        assert kept == [], "an image carries nobody's identity, keys or journal"
        second = machines(image=name)
        script = "cat /etc/kept; ls /etc/issue; ls /usr/share/perl5; systemctl is-enabled cron; hostname"
        assert second.exec(script, check=False).stdout == f"kept\nmasked\n{second.name}\n"
        assert not set(second.exec(identity).stdout.splitlines()) & set(frozen_identity.splitlines())
        assert len(second.exec("journalctl --list-boots --no-pager -o cat").stdout.splitlines()) <= 2
        assert first.boot().exec("cat /etc/kept").stdout == "kept\n"
        first.destroy()
        second.destroy()
    finally:
        subprocess.run(["rm", "-r", str(frozen.path)], check=True)


def test_an_unknown_image_is_refused_with_the_ones_there_are(machines: MachineFactory) -> None:
    with pytest.raises(lab.ImageError, match=r"no image 'nothing' .* There are: .*base \("):
        machines(image="nothing")


def test_a_guest_that_cannot_boot_fails_with_its_own_last_words(machines: MachineFactory) -> None:
    machine = machines()
    machine.stop()
    init = machine.record.home / "upper/usr/lib/systemd/systemd"
    init.parent.mkdir(parents=True, exist_ok=True)
    init.write_text("#!/bin/sh\necho I shall not boot\nexit 7\n")
    init.chmod(0o755)
    with pytest.raises(lab.BootError, match=r"the guest ended while it booted\n(?s:.*)I shall not boot"):
        machine.boot()


def test_a_failed_unit_is_named_at_the_first_boot_and_reported_at_a_reboot(machines: MachineFactory) -> None:
    machine = machines()
    unit = "[Service]\nExecStart=/bin/false\n[Install]\nWantedBy=multi-user.target\n"
    machine.exec("cat > /etc/systemd/system/broken.service && systemctl enable broken", stdin=unit)
    assert machine.reboot() == "degraded"
    name = lab.unique_name("degraded")
    frozen = machine.freeze(name)
    try:
        with pytest.raises(lab.BootError, match=re.compile(r"says 'degraded' instead of 'running'\nbroken.service")):
            machines(image=name)
        machine.destroy()
    finally:
        subprocess.run(["rm", "-r", str(frozen.path)], check=True)

"""site.yml on a machine that serves already, and on one that is bare."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab.pytest_plugin import MachineFactory
from tests.support import double
from tests.support.pairs import Pair, serving
from tests.support.project import Project, ledger

pytestmark = pytest.mark.host


def test_second_site_changes_nothing_and_restarts_nothing(pair: Pair) -> None:
    """Done-when 2: changed=0, same processes, and quick, because a no-op run is counted in tasks."""
    before, entries = pair.pids(), len(ledger(pair.machine))
    start = time.monotonic()
    done = pair.project.play("site.yml").ok()
    assert time.monotonic() - start < 90, "20 s alone on the machine; others test beside this one"
    assert done.changed == 0, done.stdout
    assert pair.pids() == before
    assert len(ledger(pair.machine)) == entries
    assert "0 restarts" in done.stdout


def test_site_is_a_health_check(pair: Pair) -> None:
    """An engine that died under a proven generation is a fault to be told, not drift to be restarted away."""
    pair.machine.exec(["systemctl", "stop", "sglang-engine@decode0"])
    done = pair.project.play("site.yml")
    assert done.rc != 0
    told = "\n".join(done.failures())
    assert "decode0" in told and "is inactive" in told
    assert pair.pids()["decode0"] == "0", "site.yml must not start it behind the operator's back"


def test_restart_brings_a_dead_engine_back(pair: Pair) -> None:
    """What the failed health check tells the operator to do works."""
    pair.machine.exec(["systemctl", "stop", "sglang-engine@decode0"])
    pair.project.play("restart-pd.yml").ok()
    pair.project.play("verify.yml").ok()


def test_check_on_a_bare_machine_completes_and_touches_nothing(machines: MachineFactory, tmp_path: Path) -> None:
    """Field report 082: a first --check must not trip over what does not exist yet."""
    machine = machines()
    machine.exec("mkdir -p /srv/fake && echo {} > /srv/fake/config.json")
    before = machine.exec("ls -A /opt /etc/systemd/system /var/lib; getent passwd").stdout
    done = Project(tmp_path, machine, double.VARIABLES).play("site.yml", "--check", "--diff").ok()
    assert "3 restarts: prefill0, decode0, router0" in done.stdout
    assert machine.exec("ls -A /opt /etc/systemd/system /var/lib; getent passwd").stdout == before


def test_the_pair_comes_back_from_a_reboot_by_itself(pair: Pair) -> None:
    """Units are enabled, and verify agrees without anybody having run a playbook."""
    pair.machine.reboot()
    serving(pair.machine)
    done = pair.project.play("verify.yml").ok()
    (told,) = done.results("Climb every rung of every instance")
    assert [row["state"] for row in told["rows"]] == ["READY"] * 3

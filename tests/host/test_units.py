"""The units as systemd understood them: a directive in the wrong section is only a warning, and a default is used instead."""

from __future__ import annotations

import pytest

from tests.support.pairs import Pair

pytestmark = pytest.mark.host
MEANT = {
    "sglang-engine@prefill0": {"KillMode": "mixed", "Type": "exec", "RestartUSec": "20s", "StartLimitBurst": "4", "StartLimitIntervalUSec": "30min"},
    "sglang-engine@decode0": {"KillMode": "mixed", "Type": "exec", "RestartUSec": "20s", "StartLimitBurst": "4", "StartLimitIntervalUSec": "30min"},
    "sglang-router@router0": {"KillMode": "mixed", "Type": "exec", "RestartUSec": "2s", "StartLimitBurst": "10", "StartLimitIntervalUSec": "5min"},
}
ALL = {
    "User": "sglang",
    "Restart": "on-failure",
    "TimeoutStopUSec": "4min 30s",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "CapabilityBoundingSet": "",
    "UnitFileState": "enabled",
    "NeedDaemonReload": "no",
    "DropInPaths": "",
}


@pytest.mark.parametrize("unit", MEANT)
def test_systemd_took_every_directive_as_meant(pair: Pair, unit: str) -> None:
    """Field report 068: effective values against intent, and nothing that systemd-analyze has to say."""
    said = pair.machine.exec(["systemd-analyze", "verify", f"{unit}.service"])
    assert said.stdout + said.stderr == ""
    wanted = {**ALL, **MEANT[unit], **({"LimitMEMLOCK": "infinity"} if "engine" in unit else {})}
    shown = pair.machine.exec(["systemctl", "show", unit, "--property", ",".join(wanted)]).stdout
    assert dict(line.partition("=")[::2] for line in shown.splitlines()) == wanted


def test_a_killed_engine_is_started_again_and_seen_for_what_it_is(pair: Pair) -> None:
    """systemd brings it back after RestartSec; verify says that nobody asked for that restart."""
    before = pair.pids()["decode0"]
    pair.machine.exec(["systemctl", "kill", "--signal=KILL", "sglang-engine@decode0"])
    wait = "until [ $(systemctl show -P NRestarts sglang-engine@decode0) = 1 ] && systemctl is-active -q sglang-engine@decode0; do sleep 0.2; done"
    pair.machine.exec(wait, timeout=60)
    pair.machine.exec("until python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:30001/ready\")' 2>/dev/null; do sleep 0.2; done")
    assert pair.pids()["decode0"] not in (before, "0")
    done = pair.project.play("verify.yml")
    assert "systemd restarted it 1 times" in done.stdout

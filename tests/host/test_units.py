"""The units as systemd understood them: a directive in the wrong section is only a warning, and a default is used instead."""

from __future__ import annotations

import pytest

from tests.support.pairs import Pair

pytestmark = pytest.mark.host
ENGINE = {"Restart": "no", "StartLimitIntervalUSec": "0", "LimitMEMLOCK": "infinity"}
MEANT = {
    "sglang-engine@prefill0": ENGINE,
    "sglang-engine@decode0": ENGINE,
    "sglang-router@router0": {
        **{"Restart": "on-failure", "RestartUSec": "1s", "OOMScoreAdjust": "-500"},
        **{"StartLimitBurst": "10", "StartLimitIntervalUSec": "5min"},
    },
}
ALL = {
    "Type": "exec",
    "KillMode": "mixed",
    "OOMPolicy": "kill",
    "User": "sglang",
    "TimeoutStopUSec": "5min",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "CapabilityBoundingSet": "",
    "UnitFileState": "enabled",
    "NeedDaemonReload": "no",
    "DropInPaths": "",
}
RECOVER = {"Type": "exec", "Restart": "on-failure", "StartLimitBurst": "60", "NeedDaemonReload": "no", "OnFailure": ""}


@pytest.mark.parametrize("unit", MEANT)
def test_systemd_took_every_directive_as_meant(pair: Pair, unit: str) -> None:
    """Field report 068: effective values against intent, and nothing that systemd-analyze has to say."""
    said = pair.machine.exec(["systemd-analyze", "verify", f"{unit}.service"])
    assert said.stdout + said.stderr == ""
    wanted = {**ALL, **MEANT[unit], "OnFailure": f"sglang-recover@{unit.partition('@')[2]}-died.service"}
    shown = pair.machine.exec(["systemctl", "show", unit, "--property", ",".join(wanted)]).stdout
    assert dict(line.partition("=")[::2] for line in shown.splitlines()) == wanted

    assert f"sglang-recover@{unit.partition('@')[2]}-started.service" in pair.machine.exec(["systemctl", "show", unit, "-P", "Wants"]).stdout


def test_the_unit_that_brings_the_set_up(pair: Pair) -> None:
    """systemd takes it as it is meant."""
    said = pair.machine.exec(["systemd-analyze", "verify", "sglang-recover@decode0-died.service"])
    assert said.stdout + said.stderr == ""
    shown = pair.machine.exec(["systemctl", "show", "sglang-recover@decode0-died", "--property", ",".join(RECOVER)]).stdout
    assert dict(line.partition("=")[::2] for line in shown.splitlines()) == RECOVER

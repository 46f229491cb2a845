"""Drop-ins that win over the generation, and what systemd-analyze says."""

from __future__ import annotations

import subprocess

import pytest
from pd import fragments

UNIT = """\
# KillMode=none
[Unit]
StartLimitBurst=4
[Service]
EnvironmentFile=/etc/sglang-pd/current/%i/env
ExecStart=/usr/bin/env ${PD_PYTHON} \\
  Odd=looking \\
  -m sglang.launch_server
KillMode=mixed
; Nice=1
"""


def test_directives_are_neither_comments_nor_continued_lines() -> None:
    told = list(fragments.directives(UNIT))
    assert told == [(3, "StartLimitBurst"), (5, "EnvironmentFile"), (6, "ExecStart"), (9, "KillMode")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("[Service]\nEnvironment=SGLANG_X=0\n", [("2", "Environment")], id="report 064: a knob of an experiment"),
        pytest.param("[Service]\nUnsetEnvironment=SGLANG_X\n", [("2", "UnsetEnvironment")], id="a knob taken away"),
        pytest.param("[Service]\nPassEnvironment=SGLANG_X\n", [("2", "PassEnvironment")], id="a knob from the manager"),
        pytest.param("[Service]\nKillMode=process\n", [("2", "KillMode")], id="report 071: a directive of ours"),
        pytest.param("[Service]\nExecStart=\nExecStart=/bin/x\n", [("2", "ExecStart"), ("3", "ExecStart")], id="another program"),
        pytest.param("[Service]\nMemoryMax=100G\nCPUAffinity=0-31\n", [], id="what only adds may stay"),
        pytest.param("[Service]\n#Environment=A=1\n", [], id="a comment"),
        pytest.param("", [], id="empty"),
    ],
)
def test_report_064_a_drop_in_may_add_but_not_change(text: str, found: list[tuple[str, str]]) -> None:
    path = "/etc/systemd/system/sglang-engine@.service.d/99-test.conf"
    problems = fragments.overrides(UNIT, {path: text})
    assert [(problem.where.removeprefix(f"{path}:"), problem.key) for problem in problems] == found
    assert all(f"rm {path}" in problem.fix for problem in problems)


def test_report_068_what_systemd_says_of_our_units_is_told_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "/etc/systemd/system/sglang-engine@.service:31: Unknown key name 'KillMod' in section 'Service', ignoring.\n"
        "/lib/systemd/system/plymouth-start.service:17: Unit configured to use KillMode=none. This is unsafe.\n"
    )
    monkeypatch.setattr(subprocess, "run", lambda argv, **_: subprocess.CompletedProcess(argv, 0, "", said))
    (problem,) = fragments.verified(["sglang-engine@decode0.service"])
    assert problem.where == "/etc/systemd/system/sglang-engine@.service:31"
    assert "KillMod" in problem.found

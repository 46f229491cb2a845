"""Crash loops, reboots, recoveries that are cut off: the set serves again, or says that it does not, with nobody there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import crash, double
from tests.support.pairs import UNITS, Pair, serving
from tests.support.project import ledger
from tests.support.recovery import KILL, active, acts, recovered, said, until

pytestmark = pytest.mark.host


def test_a_scheduler_killed_as_the_oom_killer_does(pair: Pair) -> None:
    """The biggest process goes, its parent ends itself by SIGKILL (facts 2.5), the set comes back."""
    mark = len(ledger(pair.machine))
    main = pair.pids()["decode0"]
    pair.machine.exec(f"kill -9 $(ps -o pid=,args= --ppid {main} | awk '/scheduler/ {{print $1; exit}}')")
    entries = recovered(pair, mark)
    assert "died: " in entries[0]["why"]
    assert "end done" in acts(entries)
    pair.project.play("verify.yml").ok()


@pytest.mark.parametrize(
    ("broken", "faults"),
    [
        pytest.param("decode0", {"die_at": {"phase": "load"}}, id="dies while loading"),
        pytest.param("prefill0", {"die_at": {"phase": "handshake", "after_s": 1, "signal": "SIGSEGV"}}, id="report 002: dies when its peer connects"),
    ],
)
def test_a_crash_loop_ends_with_everything_stopped_and_verify_says_why(pair: Pair, broken: str, faults: dict[str, Any]) -> None:
    mark = len(ledger(pair.machine))
    double.script(pair.machine, broken, **faults)
    pair.machine.exec(f"{KILL} {UNITS[broken]}", check=False)
    until(lambda: any(e.get("outcome") == "gave up" for e in ledger(pair.machine)[mark:]), 120)
    pair.machine.exec(crash.IDLE, timeout=30)
    entries = ledger(pair.machine)[mark:]
    assert sum(e["event"] == "begin" for e in entries) == 4, "three tries and the end of it"
    assert not set(active(pair)) & {"active", "activating"}
    done = pair.project.play("verify.yml")
    (told,) = [line for line in done.stdout.splitlines() if line.startswith("FAILS set: recovery gave up at")]
    assert f"{broken} " in told and "3 recoveries in 30 min did not help" in told and told.endswith("mend the cause, then: restart-pd.yml")
    double.script(pair.machine, broken)
    pair.project.play("restart-pd.yml").ok()
    assert "recovery gave up" not in pair.project.play("verify.yml").ok().stdout


def test_a_reboot_is_nothing_to_recover_from(pair: Pair) -> None:
    """Everything is enabled, the router waits for the engines; whoever came first has outlived nobody."""
    mark = len(ledger(pair.machine))
    pair.machine.reboot()
    serving(pair.machine)
    pair.machine.exec(crash.IDLE, timeout=30)
    assert ledger(pair.machine)[mark:] == []
    pair.project.play("verify.yml").ok()


def test_a_crash_while_a_co_restart_is_at_work_is_its_own_business(pair: Pair) -> None:
    """The old decode dies while the new prefill loads; the plan starts decode anyway, the recovery leaves a closed set alone."""
    double.script(pair.machine, "prefill0", load_seconds=5)
    mark = len(ledger(pair.machine))
    killed: list[bool] = []

    def handler(event: dict[str, Any]) -> bool:
        data = event.get("event_data", {})
        if not killed and event["event"] == "runner_item_on_ok" and "start prefill0" in str(data.get("res", {}).get("_ansible_item_label")):
            killed.append(True)
            pair.machine.exec(f"{KILL} {UNITS['decode0']}")
        return True

    pair.project.watch("restart-pd.yml", handler).ok()
    pair.machine.exec(crash.IDLE, timeout=30)
    assert killed and "decode0 died: killed by signal 9; but the router is stopped, so the set is closed" in said(pair)
    assert [e["who"] for e in ledger(pair.machine)[mark:] if e["event"] == "begin"] != ["systemd"]
    assert sum(e["event"] == "begin" for e in ledger(pair.machine)[mark:]) == 1
    pair.project.play("verify.yml").ok()


def test_after_a_failed_co_restart_nothing_is_started_behind_the_operators_back(pair: Pair) -> None:
    """Its router is stopped: the set is closed, and stays as the run left it."""
    double.script(pair.machine, "prefill0", die_at={"phase": "load"})
    mark = len(ledger(pair.machine))
    assert pair.project.play("restart-pd.yml", pd_rollback_on_failure=False).rc != 0
    pair.machine.exec(crash.IDLE, timeout=60)
    assert "the router is stopped, so the set is closed" in said(pair)
    assert sum(e["event"] == "begin" for e in ledger(pair.machine)[mark:]) == 1
    assert active(pair)[0] == "failed" and active(pair)[2] == "inactive"


@pytest.mark.parametrize("how", ["killed", "rebooted"])
def test_a_recovery_that_is_cut_off_is_finished(pair: Pair, how: str) -> None:
    """Killed between the start of the engines and their gates; by SIGKILL, or with the machine."""
    double.script(pair.machine, "decode0", load_seconds=4)
    mark = len(ledger(pair.machine))
    pair.machine.exec(f"{KILL} {UNITS['decode0']}")
    until(lambda: "start decode0" in acts(ledger(pair.machine)[mark:]))
    if how == "killed":
        pair.machine.exec("systemctl kill --signal=KILL 'sglang-recover@*'")
    else:
        pair.machine.reboot()
    until(lambda: "end done" in acts(ledger(pair.machine)[mark:]), 90)
    pair.machine.exec(crash.IDLE, timeout=30)
    entries = acts(ledger(pair.machine)[mark:])
    assert entries.count("begin") >= 2 and "takeover" in entries and "end abandoned" in entries
    assert entries.count("start decode0") == 1, "an engine that was loading is left to it"
    pair.project.play("verify.yml").ok()


def test_an_operator_is_told_that_a_recovery_is_at_work(pair: Pair) -> None:
    double.script(pair.machine, "decode0", load_seconds=40)
    mark = len(ledger(pair.machine))
    pair.machine.exec(f"{KILL} {UNITS['decode0']}")
    until(lambda: "start decode0" in acts(ledger(pair.machine)[mark:]))
    done = pair.project.play("restart-pd.yml")
    assert done.rc != 0
    assert "another co-restart is at work: held by systemd since" in "\n".join(done.failures())
    assert "a co-restart is at work now, held by systemd since" in pair.project.play("verify.yml").stdout
    assert "end done" in acts(recovered(pair, mark))

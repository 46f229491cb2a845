"""The same on the real engine, the real NIXL and the real router: what a double cannot prove. One machine, in this order."""

from __future__ import annotations

import shutil

import pytest

from tests.faults import clients
from tests.faults.acts import Act, Arrange, hung, on_node, play, then, unattended
from tests.faults.scenario import Scenario, carry_out
from tests.support.cuts import after, cut_ssh, kill_when, meanwhile
from tests.support.pairs import Pair
from tests.support.project import ROOT, Outcome

pytestmark = pytest.mark.e2e
NEW = "new new new"
CLEAR = "refused: clear the machine first. Nothing was stopped"
WAITS = {"pd_strategy": "overlapped", "pd_serve_deadline": 60, "pd_request_timeout": 15, "pd_settle": 5}
"""Both engines load at once on two cores: 37 s instead of 2 x 23 s (lab-facts)."""
KILL = "systemctl kill --signal=KILL sglang-engine@decode0"


def lab_fault(instance: str, fault: str) -> tuple[Arrange, Arrange]:
    """A failure that was seen on the real pair, as a knob of the generation that is asked for; and group_vars as they were."""
    file = {"prefill0": "prefill.yml", "decode0": "decode.yml"}[instance]

    def undo(pair: Pair) -> None:
        shutil.copy2(ROOT / "group_vars" / file, pair.project.root / "group_vars" / file)

    return lambda pair: pair.project.knob(file, "engine_env", "PD_LAB_FAULT", fault), undo


def refused(arrange: Arrange, undo: Arrange, *says: str, act: Act = play("restart-pd.yml")) -> Scenario:  # noqa: B008  a pure value
    return Scenario(act, "untouched", says, arrange=arrange, undo=undo, echoes=False)


def rolled_back(fault: tuple[Arrange, Arrange], ledger: tuple[str, ...], *says: str) -> Scenario:
    arrange, undo = fault
    return Scenario(play("restart-pd.yml", **WAITS), "rolled back", says, NEW, arrange, (*ledger, "bad", "end failed"), undo, echoes=False)


def serves(act: Act, ledger: tuple[str, ...], *says: str, arrange: Arrange = on_node()) -> Scenario:  # noqa: B008  a pure value
    return Scenario(act, "serves", says, NEW, arrange, (*ledger, "good", "end done"), echoes=False)


def cut_while_loading(pair: Pair) -> Outcome:
    return meanwhile(pair, "restart-pd.yml", after("start decode0"), lambda: cut_ssh(pair, 5), **WAITS)


def killed_while_loading(pair: Pair) -> Outcome:
    assert kill_when(pair, "restart-pd.yml", after("start decode0"), **WAITS).rc != 0
    return Outcome(0, "", [])


def decode_dies_in_the_settle_window(pair: Pair) -> Outcome:
    return meanwhile(pair, "restart-pd.yml", after("gate router0 until serving"), lambda: pair.machine.exec(KILL), **{**WAITS, "pd_settle": 10})


def clients_told(pair: Pair) -> Outcome:
    return Outcome(0, f"clients: {dict(clients.ended(pair))}", [])


def stray(pair: Pair) -> None:
    pair.machine.exec("systemd-run -q --unit stray --uid sglang sleep 3000")


SCENARIOS = {
    "disk full": refused(
        on_node("mount -t tmpfs -o size=8m tmpfs /var/cache/sglang-pd"), on_node("umount /var/cache/sglang-pd"), CLEAR, "/var/cache/sglang-pd: disk",
    ),
    "a left-over process of the services' user": refused(stray, on_node("systemctl stop stray"), CLEAR, "left-over process"),
    "a port taken by a stranger": refused(
        on_node("systemd-run -q --unit stranger python3 -m http.server 30000 --bind 127.0.0.2"), on_node("systemctl stop stranger"),
        CLEAR, r"port 30000 is held by process \d+ \(.*http.server",
    ),
    "8 requests running, nobody to ask": refused(
        lambda pair: clients.start(pair, 8, 96), clients_told, "8 requests are in flight", "-e pd_confirm_over_running=8",
        act=unattended("restart-pd.yml", pd_confirm_over_running=4),
    ),
    "8 requests running, they end before anything stops": serves(
        then(play("restart-pd.yml", **WAITS, pd_drain_timeout=120), clients_told), ("drained",), "clients: {'answered': 8}",
        arrange=lambda pair: clients.start(pair, 8, 48),
    ),
    "SSH breaks while both load": serves(cut_while_loading, ("gate decode0 READY",)),
    "the controller is killed while both load": serves(then(killed_while_loading, play("restart-pd.yml", **WAITS)), ("takeover", "end abandoned")),
    "decode's scheduler hangs, its load report is stale": serves(play("restart-pd.yml", **WAITS), ("drained",), arrange=hung("decode0")),
    "decode dies while loading": rolled_back(
        lab_fault("decode0", "die-while-loading"), ("gate decode0 DEAD",), "decode0 did not reach `working`: DEAD at `alive`", "die-while-loading",
    ),
    "the bootstrap thread dies, and its guard ends the engine": rolled_back(
        lab_fault("prefill0", "bootstrap-thread-dies"), ("gate prefill0 READY", "start router0", "gate router0 DEAD"),
        "router0 did not reach `serving`: DEAD at `settled` .*prefill0 was READY, then died", "bootstrap-thread-dies: NIXL peer set-up fails",
    ),
    "decode dies after READY, in the settle window": Scenario(
        decode_dies_in_the_settle_window, "rolled back", ("did not reach `settled`: DEAD", "decode0"), NEW,
        ledger=("gate router0 READY", "settled decode0 DEAD", "bad", "end failed"), echoes=False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCENARIOS)
def test_a_fault_of_the_real_pair(real: Pair, case: str) -> None:
    carry_out(SCENARIOS[case], real)

"""An engine or the router does not come up as it should: the verdict, what is said of it, and where the pair ends."""

from __future__ import annotations

import pytest

from tests.faults.acts import Arrange, hung, in_generation, play, restart, scripted
from tests.faults.scenario import Scenario, carry_out
from tests.support.cuts import after, meanwhile
from tests.support.pairs import Pair

pytestmark = pytest.mark.host
DIES = {"signal": "SIGKILL", "message": "RuntimeError: CUDA out of memory"}
FAILED = ("begin", "stop router0", "start prefill0", "bad", "start prefill0", "gate router0 READY", "end failed")
"""A generation that fails, and the good one of before brought up once."""
NEW = "new new new"
UNTRIED = "new same new"
"""Prefill failed first: decode was never stopped, and runs the good generation still."""
KILL = "systemctl kill --signal=KILL sglang-engine@decode0"


def rolled_back(
    arrange: Arrange, *says: str, fate: str = NEW, ledger: tuple[str, ...] = FAILED, reports: tuple[str, ...] = (), **waits: int
) -> Scenario:
    """The fault is in the generation that is asked for: the run fails, the good one serves again."""
    return Scenario(play("restart-pd.yml", **waits), "rolled back", says, fate, arrange, ledger, reports=reports)


def serves(arrange: Arrange, *says: str, ledger: tuple[str, ...] = (), reports: tuple[str, ...] = (), **waits: int) -> Scenario:
    """The fault is survived: the run ends well."""
    return Scenario(play("restart-pd.yml", **waits), "serves", says, NEW, arrange, (*ledger, "good", "end done"), reports=reports)


SCENARIOS = {
    "decode dies while loading": rolled_back(
        in_generation("decode0", load_seconds=5, die_at={"phase": "load", "after_s": 1, **DIES}),
        "decode0 did not reach `working`: DEAD at `alive`", "CUDA out of memory", ledger=("gate prefill0 READY", "gate decode0 DEAD", *FAILED[3:]),
    ),
    "decode dies at warm-up": rolled_back(
        in_generation("decode0", warmup_seconds=2, die_at={"phase": "warmup", "after_s": 0.5, **DIES}),
        "decode0 did not reach `working`: DEAD at `alive`", "CUDA out of memory", ledger=("gate decode0 DEAD", *FAILED[3:]), reports=("025",),
    ),
    "decode dies after READY, in the settle window": Scenario(
        lambda pair: meanwhile(pair, "restart-pd.yml", after("gate router0 until serving"), lambda: pair.machine.exec(KILL), pd_settle=15),
        "rolled back", ("did not reach `settled`: DEAD", "decode0"), NEW,
        ledger=("gate router0 READY", "settled decode0 DEAD", *FAILED[3:]), reports=("002",),
    ),
    "prefill dies when decode comes, after it was READY": rolled_back(
        in_generation("prefill0", die_at={"phase": "handshake", "after_s": 3, "signal": "SIGSEGV"}),
        "DEAD", "prefill0", reports=("002", "020"), pd_settle=10,
    ),
    "prefill answers 200 and generates nothing": rolled_back(
        in_generation("prefill0", generates_nothing=True),
        r"0 tokens \(200 without a token proves nothing\)", fate=UNTRIED, reports=("021",), pd_start_deadline=12,
    ),
    "the scheduler hangs, its load report is stale": rolled_back(
        in_generation("decode0", hang_scheduler=True), "decode0 did not reach `working`", reports=("021", "022"), pd_start_deadline=10,
    ),
    "the bootstrap thread is dead": rolled_back(
        in_generation("prefill0", bootstrap_thread_dead=True), "router0 did not reach `serving`", "no answer in 4 s",
        ledger=("gate prefill0 READY", "gate decode0 READY", "start router0", *FAILED[3:]), reports=("001", "013"),
        pd_serve_deadline=15, pd_request_timeout=4,
    ),
    "every transfer fails while health is green": rolled_back(
        in_generation("prefill0", transfer_error=True), "router0 did not reach `serving`", "KVTransferError", reports=("006",), pd_serve_deadline=15,
    ),
    "the router registers no worker": rolled_back(
        in_generation("decode0", slow_health_s=60), "router0 did not reach `serving`", reports=("028", "039"), pd_serve_deadline=15,
    ),
    "200 with finish_reason error and no tokens": rolled_back(
        in_generation("decode0", finish_reason_error=True), "did not reach", "finish_reason|200 without a token", reports=("005",),
        pd_start_deadline=12, pd_serve_deadline=15,
    ),
    "a stream cut without [DONE]": rolled_back(
        in_generation("decode0", stream_cut_after=2), "router0 did not reach `serving`",
        r"(without \[DONE\]|peer closed|incomplete)", pd_serve_deadline=15,
    ),
    "prefill answers 500": rolled_back(
        in_generation("prefill0", answer_status=500), "prefill0 did not reach `working`", "500", fate=UNTRIED, reports=("013",), pd_start_deadline=12,
    ),
    "a silent engine is dead, long before its deadline": rolled_back(
        in_generation("decode0", never_ready="load"), "decode0 did not reach `working`: DEAD", ledger=("gate decode0 DEAD", *FAILED[3:]),
        pd_stall_after=4,
    ),
    "a slow start that compiles for minutes": serves(
        in_generation("decode0", load_seconds=12, load_lines_every_s=1), ledger=("gate decode0 READY",), reports=("070",), pd_stall_after=5,
    ),
    "prefill stays broken: the good generation does not come up either": Scenario(
        restart, "down", ("prefill0 did not reach `working`: DEAD at `alive`", "CUDA out of memory"), "down same down",
        scripted("prefill0", load_seconds=5, die_at={"phase": "load", "after_s": 1, **DIES}), ("gate prefill0 DEAD", "end failed"),
    ),
    "a process that ignores SIGTERM": serves(scripted("decode0", ignore_sigterm=True), ledger=("stop decode0", "stopped decode0")),
    "a drain that never ends": serves(
        scripted("decode0", loads={"num_running_reqs": 53}), "53 requests were cut", ledger=("stop router0", "drained", "stop prefill0"),
        pd_drain_timeout=3,
    ),
    "a hung scheduler is restarted, although its load cannot be measured": serves(
        hung("decode0"), ledger=("drained",), reports=("029",), pd_drain_timeout=5,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCENARIOS)
def test_a_fault_at_start(pair: Pair, case: str) -> None:
    carry_out(SCENARIOS[case], pair)

"""The world changes while a run is under way: the controller dies, the network breaks, the machine reboots, files change."""

from __future__ import annotations

import pytest
from pd import plan

from tests.faults.acts import Act, Arrange, in_generation, on_node, play, scripted, seen, then
from tests.faults.scenario import Scenario, carry_out
from tests.support.cuts import after, cut_ssh, kill_when, meanwhile
from tests.support.pairs import Pair
from tests.support.project import Outcome

pytestmark = pytest.mark.host
NEW = "new new new"
STEPS = (
    *("stop router0", "drain prefill0, decode0"),
    *("stop prefill0", "start prefill0", "gate prefill0 until working"),
    *("stop decode0", "start decode0", "gate decode0 until working"),
    *("start router0", "gate router0 until serving", "watch prefill0, decode0, router0"),
)
"""Every step of a co-restart; a test holds that the plan has no other."""
CLOCK = """
import datetime, time
real = time.time
def offset():
    try:
        return float(open("/run/clock-offset").read() or 0)
    except OSError:
        return 0.0
time.time = lambda: real() + offset()
class Stepped(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
datetime.datetime = Stepped
"""
SITES = "/usr/lib/python3/dist-packages /opt/sglang-pd/ops/lib/python3*/site-packages /opt/sglang-pd/releases/*/engine/lib/python3*/site-packages"


def killed_after(step: str, finish: str = "restart-pd.yml") -> Act:
    """SIGKILL the controller as soon as a step (or a task) is done, so at the begin of the next one; then the same again."""

    def kill(pair: Pair) -> Outcome:
        done = kill_when(pair, "restart-pd.yml", after(step), pd_settle=1)
        assert done.rc != 0
        return Outcome(0, "", [])

    return then(kill, play(finish, pd_settle=1))


def while_running(event: str, change: Arrange) -> Act:
    """A run during which something changes once a step or a task is done."""
    return lambda pair: meanwhile(pair, "restart-pd.yml", after(event), lambda: change(pair))


def cut_after(event: str, seconds: float) -> Act:
    """Every SSH connection breaks that long after a step is done: in the middle of the next."""

    def act(pair: Pair) -> Outcome:
        done = meanwhile(pair, "restart-pd.yml", after(event), lambda: cut_ssh(pair, seconds))
        cut = pair.machine.exec("cat /run/cut").stdout
        assert "sshd" in cut, "no connection was cut"
        return done

    return act


def at_every_step() -> dict[str, Scenario]:
    """The controller is killed once in each place. The same playbook finishes what was begun: no instance is started twice."""
    ledger = ("begin", "takeover", "end abandoned", "begin", "good", "end done")
    found = {
        f"the controller is killed after `{step}`": Scenario(killed_after(step), "serves", (), NEW, ledger=ledger, once=True)
        for step in ("Take the lock", "Switch to the generation", *STEPS[:-1])
    }
    # the last one is all but done: whether `good` is still written is a race, and then the second run is a restart of its own
    return {**found, f"the controller is killed after `{STEPS[-1]}`": Scenario(killed_after(STEPS[-1]), "serves", (), NEW, ledger=ledger[-2:])}


def another_knob(pair: Pair) -> None:
    pair.project.knob("decode.yml", "engine_env", "SGLANG_SM120_MMA_TARGET_CTAS", "256")


def step_clock(seconds: int) -> Act:
    """The wall clock jumps while prefill loads: for our modules and for the engines. A guest has no clock of its own, so their Python has."""

    def act(pair: Pair) -> Outcome:
        pair.machine.exec("cat > /run/zz_stepped.py", stdin=CLOCK)
        pair.machine.exec(f"for d in {SITES}; do cp /run/zz_stepped.py $d/; echo 'import zz_stepped' > $d/zz_stepped.pth; done")
        return meanwhile(
            pair, "restart-pd.yml", after("start prefill0"), lambda: pair.machine.exec(f"echo {seconds} > /run/clock-offset")
        )

    return then(act, seen("/opt/sglang-pd/ops/bin/python -c 'import time; print(\"stepped by\", round(time.time()) - int(\"'$(date +%s)'\"))'"))


SCENARIOS = {
    **at_every_step(),
    "SSH breaks while the router stops": Scenario(cut_after("Switch to the generation", 0.6), "serves", (), NEW, ledger=("good",), once=True),
    "SSH breaks while prefill is started": Scenario(cut_after("stop prefill0", 0.4), "serves", (), NEW, ledger=("good",), once=True),
    "SSH breaks while prefill loads": Scenario(
        cut_after("start prefill0", 2), "serves", ("no connection",), NEW, scripted("prefill0", load_seconds=6), ("good",), once=True,
    ),
    "group_vars change while it runs": Scenario(
        then(while_running("start prefill0", another_knob), play("site.yml", "--check")), "serves",
        ("3 restarts", r"runs \w{12}, wanted is \w{12}"), NEW, ledger=("good", "end done"), once=True,
    ),
    "the clock is set back by an hour": Scenario(step_clock(-3600), "serves", ("stepped by -3[56]",), NEW, ledger=("good", "end done"), once=True),
    "the clock is set forward by a day": Scenario(step_clock(86400), "serves", ("stepped by 86[34]",), NEW, ledger=("good", "end done"), once=True),
    "the last good release is pruned by hand while its successor fails": Scenario(
        while_running("start prefill0", on_node("rm /opt/sglang-pd/releases/*/release.json")), "down",
        ("decode0 did not reach `working`", "Not rolled back: .*release"), "new down down",
        in_generation("decode0", load_seconds=5, die_at={"phase": "load", "after_s": 0.5}), ("gate decode0 DEAD", "bad", "end failed"),
    ),
    "the machine reboots while decode loads": Scenario(
        while_running("start decode0", lambda pair: pair.machine.reboot()), "rolled back",
        ("decode0 did not reach `working`: DEAD at `alive`",), NEW, scripted("decode0", load_seconds=10),
        ledger=("gate decode0 DEAD", "bad", "good", "end failed"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCENARIOS)
def test_the_world_changes_meanwhile(pair: Pair, case: str) -> None:
    carry_out(SCENARIOS[case], pair)


def test_every_step_of_the_plan_is_in_the_loop() -> None:
    """A new kind of step must be killed at, too."""
    seen = {name: plan.Seen("active", "before") for name in ("prefill0", "decode0", "router0")}
    made = plan.plan(seen, "after", False, ["prefill0", "decode0"], ["router0"])
    assert tuple(map(str, made.steps)) == STEPS

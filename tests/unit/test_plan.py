"""The planner: what is restarted, in which order, and why; tables first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import plan
from pd.plan import Seen

NEW, OLD = "new000000000", "old000000000"
ENGINES, ROUTERS = ("prefill0", "decode0"), ("router0",)
NAMES = (*ENGINES, *ROUTERS)
RUNS_NEW, RUNS_OLD = Seen("active", NEW), Seen("active", OLD)
GONE, FAILED, ABSENT = Seen("inactive", None), Seen("failed", None), Seen("absent", None)


def steps(prefill: Seen, decode: Seen, router: Seen, good: bool = False) -> list[str]:
    made = plan.plan(dict(zip(NAMES, (prefill, decode, router), strict=True)), NEW, good, ENGINES, ROUTERS)
    return [str(step) for step in made.steps]


WATCH = "watch prefill0, decode0, router0"
ROUTER_STOP, PREFILL_STOP, DECODE_STOP = (f"stop {name}" for name in ("router0", "prefill0", "decode0"))
PREFILL_UP = ["start prefill0", "gate prefill0 until working"]
DECODE_UP = ["start decode0", "gate decode0 until working"]
ROUTER_UP = ["start router0", "gate router0 until serving", WATCH]
BOTH = "drain prefill0, decode0"
EVERYTHING = [ROUTER_STOP, BOTH, PREFILL_STOP, *PREFILL_UP, DECODE_STOP, *DECODE_UP, *ROUTER_UP]
GATE_PREFILL, GATE_DECODE = PREFILL_UP[1], DECODE_UP[1]
GATES_ONLY = [GATE_PREFILL, GATE_DECODE, *ROUTER_UP[1:]]


@pytest.mark.parametrize(
    ("prefill", "decode", "router", "good", "expected"),
    [
        pytest.param(RUNS_NEW, RUNS_NEW, RUNS_NEW, True, [], id="nothing drifted"),
        pytest.param(RUNS_OLD, RUNS_OLD, RUNS_OLD, False, EVERYTHING, id="a knob was turned"),
        pytest.param(ABSENT, ABSENT, ABSENT, False, [*PREFILL_UP, *DECODE_UP, *ROUTER_UP], id="first install: nothing to drain"),
        pytest.param(
            *(RUNS_NEW, RUNS_OLD, GONE, False),
            [BOTH, GATE_PREFILL, DECODE_STOP, *DECODE_UP, *ROUTER_UP],
            id="killed after prefill: it is gated, not restarted; half of decode's requests would be in it, so it is drained too",
        ),
        pytest.param(RUNS_NEW, GONE, GONE, False, [GATE_PREFILL, *DECODE_UP, *ROUTER_UP], id="killed after decode's stop"),
        pytest.param(RUNS_NEW, RUNS_NEW, GONE, False, [GATE_PREFILL, GATE_DECODE, *ROUTER_UP], id="killed before the router's start"),
        pytest.param(RUNS_NEW, RUNS_NEW, RUNS_NEW, False, GATES_ONLY, id="killed before the last gate: gated, then good"),
        pytest.param(FAILED, RUNS_NEW, RUNS_NEW, True, [], id="dead under a good generation is a fault, not drift"),
        pytest.param(GONE, GONE, GONE, True, [], id="all stopped by hand under a good generation"),
        pytest.param(
            *(FAILED, RUNS_NEW, RUNS_NEW, False),
            [ROUTER_STOP, *PREFILL_UP, GATE_DECODE, *ROUTER_UP],
            id="died while loading, generation never good: no engine is stopped, so none is drained",
        ),
        pytest.param(FAILED, RUNS_OLD, GONE, False, ["drain decode0", *PREFILL_UP, DECODE_STOP, *DECODE_UP, *ROUTER_UP], id="one is up"),
        pytest.param(
            RUNS_NEW, RUNS_NEW, RUNS_OLD, False, [ROUTER_STOP, GATE_PREFILL, GATE_DECODE, *ROUTER_UP], id="router alone drifted"
        ),
        pytest.param(
            *(RUNS_NEW, RUNS_OLD, RUNS_NEW, True),
            [ROUTER_STOP, BOTH, GATE_PREFILL, DECODE_STOP, *DECODE_UP, *ROUTER_UP],
            id="mixed generations: the router is cycled too, its circuits close by nothing else (facts 5.3.4)",
        ),
        pytest.param(
            *(Seen("deactivating", OLD), GONE, GONE, False),
            ["drain prefill0", PREFILL_STOP, *PREFILL_UP, *DECODE_UP, *ROUTER_UP],
            id="still stopping: by hand, it drains and admits; it gets its time, and its end",
        ),
        pytest.param(Seen("activating", NEW), RUNS_NEW, RUNS_NEW, True, [], id="starting with the wanted generation"),
        pytest.param(Seen("activating", None), RUNS_NEW, RUNS_NEW, True, [], id="systemd is restarting it by itself"),
    ],
)
def test_steps(prefill: Seen, decode: Seen, router: Seen, good: bool, expected: list[str]) -> None:
    assert steps(prefill, decode, router, good) == expected


def test_a_process_without_a_generation_is_drift_although_the_wanted_one_is_good() -> None:
    made = plan.plan({**dict.fromkeys(NAMES, RUNS_NEW), "decode0": Seen("active", None)}, NEW, True, ENGINES, ROUTERS)
    assert made.restarts == ("decode0", "router0")
    assert "carries no generation" in made.reasons["decode0"]


def test_every_instance_gets_its_reason() -> None:
    made = plan.plan({"prefill0": RUNS_NEW, "decode0": RUNS_OLD, "router0": RUNS_NEW}, NEW, False, ENGINES, ROUTERS)
    assert made.reasons == {
        "prefill0": f"runs {NEW} already",
        "decode0": f"runs {OLD}, wanted is {NEW}",
        "router0": "its engines restart",
    }
    assert plan.told(made) == [
        f"  prefill0  stays    runs {NEW} already",
        f"  decode0   restart  runs {OLD}, wanted is {NEW}",
        "  router0   restart  its engines restart",
        "  2 restarts: decode0, router0",
    ]


def test_a_dead_instance_of_a_good_generation_is_called_a_fault() -> None:
    made = plan.plan({"prefill0": FAILED, "decode0": RUNS_NEW, "router0": RUNS_NEW}, NEW, True, ENGINES, ROUTERS)
    assert "it died" in made.reasons["prefill0"]
    assert plan.told(made)[-1] == "  0 restarts"


STATES = st.sampled_from(["active", "activating", "deactivating", "inactive", "failed", "absent"])
UP = ("active", "activating", "deactivating")
SEEN = st.builds(Seen, STATES, st.sampled_from([None, NEW, OLD]))


@given(st.fixed_dictionaries(dict.fromkeys((*ENGINES, "decode1", *ROUTERS), SEEN)), st.booleans())
def test_what_holds_of_every_plan(seen: dict[str, Seen], good: bool) -> None:
    engines = (*ENGINES, "decode1")
    made = plan.plan(seen, NEW, good, engines, ROUTERS)
    actions = [(step.action, step.instance) for step in made.steps if step.action not in ("drain", "watch")]
    assert set(made.reasons) == set(seen)
    assert len(set(actions)) == len(actions), "nothing is done twice"
    if not made.steps:
        assert good, "a generation that was not proven good is at least gated"
        return
    assert [name for action, name in actions if action == "gate"] == [*engines, *ROUTERS], "all are gated, in start order"
    for at, (action, name) in enumerate(actions):
        if action == "stop":
            assert ("start", name) in actions[at:], "what is stopped is started later"
        if action == "start":
            assert ("gate", name) in actions[at:], "what is started is gated later"
    if any(name in engines for name in made.restarts):
        assert "router0" in made.restarts
        first = min(at for at, (action, name) in enumerate(actions) if name in engines and action in ("stop", "start"))
        assert ("stop", "router0") not in actions[first:], "the router stops before any engine does"
    assert all(step.started == (step.instance in made.restarts) for step in made.steps if step.action == "gate")
    assert all(step.hard == (step.instance in engines) for step in made.steps if step.action == "stop"), "an engine never drains itself"
    last = made.steps[-1]
    assert (last.action, last.instances) == ("watch", (*engines, *ROUTERS)), "all of them are watched when all are READY"
    drains = [at for at, step in enumerate(made.steps) if step.action == "drain"]
    hard = [at for at, step in enumerate(made.steps) if step.hard]
    assert len(drains) == bool(hard), "one drain, when an engine is stopped"
    if drains:
        assert made.steps[drains[0]].instances == tuple(name for name in engines if seen[name].active_state in UP)
        assert drains[0] < hard[0]
        assert all(at < drains[0] for at, step in enumerate(made.steps) if step.action == "stop" and not step.hard)
    settled = dict.fromkeys(seen, RUNS_NEW)
    assert not plan.plan(settled, NEW, True, engines, ROUTERS).steps, "once it is done there is nothing to do"


def test_overlapped_stops_both_then_lets_both_load() -> None:
    made = plan.plan(dict.fromkeys(NAMES, RUNS_OLD), NEW, False, ENGINES, ROUTERS, strategy="overlapped")
    stops, starts = [ROUTER_STOP, BOTH, PREFILL_STOP, DECODE_STOP], ["start prefill0", "start decode0"]
    assert [str(step) for step in made.steps] == [*stops, *starts, GATE_PREFILL, GATE_DECODE, *ROUTER_UP]
    assert made.restarts == NAMES


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("ordered", {"router0": (), "prefill0": ("prefill0",), "decode0": ("decode0",)}),
        ("overlapped", {"router0": (), "prefill0": (), "decode0": ("prefill0", "decode0")}),
    ],
)
def test_a_stop_carries_the_starts_that_follow_it_directly(strategy: plan.Strategy, expected: dict[str, tuple[str, ...]]) -> None:
    made = plan.plan(dict.fromkeys(NAMES, RUNS_OLD), NEW, False, ENGINES, ROUTERS, strategy=strategy)
    assert {step.instance: step.then for step in made.steps if step.action == "stop"} == expected
    assert not any(step.then for step in made.steps if step.action != "stop")


@given(st.tuples(*[st.sampled_from([RUNS_NEW, RUNS_OLD, GONE, FAILED, ABSENT])] * 3), st.booleans())
def test_the_strategies_differ_in_order_only(seen: tuple[Seen, Seen, Seen], good: bool) -> None:
    """Same steps, same reasons; in both no engine starts before it stopped, and nothing follows the routers' gates."""
    observed = dict(zip(NAMES, seen, strict=True))
    one = plan.plan(observed, NEW, good, ENGINES, ROUTERS, strategy="ordered")
    other = plan.plan(observed, NEW, good, ENGINES, ROUTERS, strategy="overlapped")
    assert sorted(map(str, one.steps)) == sorted(map(str, other.steps))
    assert one.reasons == other.reasons
    for made in (one, other):
        acts = [(step.action, step.instance) for step in made.steps if step.action != "drain"]
        for name in NAMES:
            if ("stop", name) in acts:
                assert acts.index(("stop", name)) < acts.index(("start", name)) < acts.index(("gate", name))

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


EVERYTHING = [
    "stop router0",
    "stop prefill0",
    "start prefill0",
    "gate prefill0 until working",
    "stop decode0",
    "start decode0",
    "gate decode0 until working",
    "start router0",
    "gate router0 until serving",
]
GATES_ONLY = ["gate prefill0 until working", "gate decode0 until working", "gate router0 until serving"]


@pytest.mark.parametrize(
    ("prefill", "decode", "router", "good", "expected"),
    [
        pytest.param(RUNS_NEW, RUNS_NEW, RUNS_NEW, True, [], id="nothing drifted"),
        pytest.param(RUNS_OLD, RUNS_OLD, RUNS_OLD, False, EVERYTHING, id="a knob was turned"),
        pytest.param(
            ABSENT, ABSENT, ABSENT, False, [s for s in EVERYTHING if not s.startswith("stop")], id="first install"
        ),
        pytest.param(
            RUNS_NEW,
            RUNS_OLD,
            GONE,
            False,
            ["gate prefill0 until working", *EVERYTHING[4:]],
            id="killed after prefill: it is gated, not restarted",
        ),
        pytest.param(
            RUNS_NEW, GONE, GONE, False, ["gate prefill0 until working", *EVERYTHING[5:]], id="killed after decode's stop"
        ),
        pytest.param(
            RUNS_NEW,
            RUNS_NEW,
            GONE,
            False,
            [*GATES_ONLY[:2], "start router0", "gate router0 until serving"],
            id="killed before the router's start",
        ),
        pytest.param(RUNS_NEW, RUNS_NEW, RUNS_NEW, False, GATES_ONLY, id="killed before the last gate: gated, then good"),
        pytest.param(FAILED, RUNS_NEW, RUNS_NEW, True, [], id="dead under a good generation is a fault, not drift"),
        pytest.param(GONE, GONE, GONE, True, [], id="all stopped by hand under a good generation"),
        pytest.param(
            FAILED,
            RUNS_NEW,
            RUNS_NEW,
            False,
            ["stop router0", "start prefill0", "gate prefill0 until working", "gate decode0 until working", *EVERYTHING[-2:]],
            id="died while loading, generation never good",
        ),
        pytest.param(
            RUNS_NEW, RUNS_NEW, RUNS_OLD, False, ["stop router0", *GATES_ONLY[:2], *EVERYTHING[-2:]], id="router alone drifted"
        ),
        pytest.param(
            RUNS_NEW,
            RUNS_OLD,
            RUNS_NEW,
            True,
            ["stop router0", "gate prefill0 until working", *EVERYTHING[4:]],
            id="mixed generations: the router is cycled too, its circuits close by nothing else (facts 5.3.4)",
        ),
        pytest.param(
            Seen("deactivating", OLD), GONE, GONE, False, [EVERYTHING[1], *EVERYTHING[2:4], *EVERYTHING[5:]], id="still stopping"
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
SEEN = st.builds(Seen, STATES, st.sampled_from([None, NEW, OLD]))


@given(st.fixed_dictionaries(dict.fromkeys((*ENGINES, "decode1", *ROUTERS), SEEN)), st.booleans())
def test_what_holds_of_every_plan(seen: dict[str, Seen], good: bool) -> None:
    engines = (*ENGINES, "decode1")
    made = plan.plan(seen, NEW, good, engines, ROUTERS)
    actions = [(step.action, step.instance) for step in made.steps]
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
    settled = dict.fromkeys(seen, RUNS_NEW)
    assert not plan.plan(settled, NEW, True, engines, ROUTERS).steps, "once it is done there is nothing to do"


def test_overlapped_stops_both_then_lets_both_load() -> None:
    made = plan.plan(dict.fromkeys(NAMES, RUNS_OLD), NEW, False, ENGINES, ROUTERS, strategy="overlapped")
    assert [str(step) for step in made.steps] == [
        "stop router0",
        "stop prefill0",
        "stop decode0",
        "start prefill0",
        "start decode0",
        "gate prefill0 until working",
        "gate decode0 until working",
        "start router0",
        "gate router0 until serving",
    ]
    assert made.restarts == NAMES


@given(st.tuples(*[st.sampled_from([RUNS_NEW, RUNS_OLD, GONE, FAILED, ABSENT])] * 3), st.booleans())
def test_the_strategies_differ_in_order_only(seen: tuple[Seen, Seen, Seen], good: bool) -> None:
    """Same steps, same reasons; in both no engine starts before it stopped, and nothing follows the routers' gates."""
    observed = dict(zip(NAMES, seen, strict=True))
    one = plan.plan(observed, NEW, good, ENGINES, ROUTERS, strategy="ordered")
    other = plan.plan(observed, NEW, good, ENGINES, ROUTERS, strategy="overlapped")
    assert sorted(map(str, one.steps)) == sorted(map(str, other.steps))
    assert one.reasons == other.reasons
    for made in (one, other):
        acts = [(step.action, step.instance) for step in made.steps]
        for name in NAMES:
            if ("stop", name) in acts:
                assert acts.index(("stop", name)) < acts.index(("start", name)) < acts.index(("gate", name))

"""The truth table: the highest rung reached and never more; what was proven and is not so now makes verify fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pd import show, truth_table
from pd.gates import Http
from pd.gates_serving import Serving
from pd.node import Placed
from pd.observe import Rank
from pd.truth import Everything, Seen
from pd.truth_unattended import Story

from tests.unit.test_gates import UNIT
from tests.unit.test_gates_serving import GOOD

GEN = "0f3c5a9be210"
NOW = 1_700_000_000.0
FRESH = Http(200, {"loads": [{"timestamp": NOW - 3}]})
PROVED = {"prefill0": "working", "decode0": "working", "router0": "serving"}


def seen(name: str, role: str, **knobs: str) -> Seen:
    env = {"PATH": "/bin", "SPT_NOENV": "1", **knobs}
    router = role == "router"
    return Seen(
        member=Placed(name, role, f"sglang-x@{name}.service", "http://127.0.0.1:1", None, None, env, {}, GEN),
        unit=replace(UNIT, name=f"sglang-x@{name}.service"),
        ranks=(Rank(100, "main", GEN, env), Rank(101, "scheduler", GEN, env)),
        ready=Http(200),
        route=Http(200) if role == "prefill" else None,
        load={} if router else {"running": 0},
        loads=None if router else FRESH,
        local=None,
        now=NOW,
    )


QUIET = Story((), "", ())
PREFILL, DECODE, ROUTER = seen("prefill0", "prefill"), seen("decode0", "decode", K="512"), seen("router0", "router")


def table(
    prefill: Seen = PREFILL, decode: Seen = DECODE, router: Seen = ROUTER, served: Serving = GOOD, good: bool = True, **proved: str
) -> dict[str, Any]:
    everything = Everything((prefill, decode, router), {"router0": served})
    return truth_table.judge(everything, GEN, good, {**PROVED, **proved} if good else {}, QUIET)


def reached(told: dict[str, Any]) -> dict[str, str]:
    return {row["instance"]: row["reached"] for row in told["rows"]}


def failing(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["instance"], finding["text"]) for finding in told["findings"] if finding["fails"]]


def notes(told: dict[str, Any]) -> list[str]:
    return [finding["text"] for finding in told["findings"] if not finding["fails"]]


def test_a_pair_that_serves() -> None:
    told = table()
    assert reached(told) == PROVED
    assert told["findings"] == []
    assert [(row["state"], row["moved"], row["load"], row["generation"]) for row in told["rows"]] == [
        ("READY", 40.0, "idle", GEN),
        ("READY", 20.0, "idle", GEN),
        ("READY", None, "", GEN),
    ]


WEDGED = replace(GOOD, replies=(replace(GOOD.replies[0], status=0, error="no answer in 8 s"),), moved={"prefill0": 0.0, "decode0": 0.0})
DEAD = replace(DECODE, unit=replace(UNIT, active_state="failed", main_pid=0, exit_status="killed by signal 9"), ranks=())
ONE_TOKEN = Http(200, {"usage": {"completion_tokens": 1}})


def test_the_wedge_of_lab_facts_fails_although_both_engines_are_healthy() -> None:
    told = table(prefill=replace(PREFILL, local=ONE_TOKEN), decode=replace(DECODE, local=ONE_TOKEN), served=WEDGED)
    assert reached(told) == {**PROVED, "router0": "listening"}
    ((name, text),) = failing(told)
    assert name == "router0"
    assert text.startswith("reached `serving` when 0f3c5a9be210 was proven, now `listening`: request through the router")


def test_an_engine_that_died_fails_with_how_it_ended() -> None:
    told = table(decode=DEAD, served=WEDGED)
    assert reached(told)["decode0"] == "none"
    assert ("decode0", f"reached `working` when {GEN} was proven, now `none`: {UNIT.name} is failed (killed by signal 9)") in [
        (name, text.replace("sglang-x@decode0.service", UNIT.name)) for name, text in failing(told)
    ]


def test_a_generation_that_was_never_proven_fails_once() -> None:
    assert failing(table(good=False)) == [("", f"generation {GEN} was never proven: no run reached its last gate")]


def test_a_rung_that_was_never_reached_is_not_missed() -> None:
    assert failing(table(router=ROUTER, served=WEDGED, router0="listening", prefill0="alive", decode0="alive")) == []


def test_mixed_generations_are_a_finding() -> None:
    stale = replace(DECODE, ranks=(Rank(100, "main", "old000000000", {"K": "511"}),))
    told = table(decode=stale)
    assert [text for name, text in failing(told) if "runs generation old000000000" in text]
    assert ("", f"mixed generations: prefill0 {GEN}, decode0 old000000000, router0 {GEN}") in failing(told)
    assert reached(told)["decode0"] == "listening"


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        pytest.param({"n_restarts": 2}, "systemd restarted it 2 times", id="report 020: nobody asked for that"),
        pytest.param({"need_reload": True}, "its unit file changed on disk", id="report 080"),
        pytest.param({"drop_ins": ("/etc/systemd/system/u.d/x.conf",)}, "drop-ins that are not ours: /etc", id="report 064"),
        pytest.param({"enabled": False}, "is not enabled", id="it would not come back after a reboot"),
    ],
)
def test_what_is_odd_is_noted_and_does_not_fail(changes: dict[str, Any], note: str) -> None:
    told = table(decode=replace(DECODE, unit=replace(DECODE.unit, **changes)))
    assert failing(told) == []
    (text,) = notes(told)
    assert note in text


MAIN, RANK = Rank(100, "main", GEN, {"K": "512"}), Rank(101, "scheduler", GEN, {"K": "512"})


@pytest.mark.parametrize(
    ("ranks", "cell"),
    [
        ((MAIN, RANK), "512 (ranks, 2)"),
        ((MAIN, replace(RANK, has={})), "512 (process, 1 of 2)"),
        ((MAIN, replace(RANK, has={"K": "511"})), "512 (process, 1 of 2)"),
        ((replace(MAIN, has={}), RANK), "512 (rendered, 1 of 2)"),
        ((replace(MAIN, has={}),), "512 (rendered, 0 of 1)"),
        ((), "512 (rendered)"),
    ],
)
def test_a_knob_is_proven_up_to_a_rung(ranks: tuple[Rank, ...], cell: str) -> None:
    (row,) = table(decode=replace(DECODE, ranks=ranks))["knobs"]
    assert (row["knob"], row["cells"]["decode0"]) == ("K", cell)


@pytest.mark.parametrize(
    ("ranks", "cell"),
    [
        (PREFILL.ranks, "absent (2)"),
        ((PREFILL.ranks[0], Rank(101, "scheduler", GEN, {"K": "512"})), "NOT OURS, BUT THERE in 1 of 2"),
        ((), "no process"),
    ],
)
def test_absence_on_the_other_role_is_proven_too(ranks: tuple[Rank, ...], cell: str) -> None:
    (row,) = table(prefill=replace(PREFILL, ranks=ranks))["knobs"]
    assert row["cells"]["prefill0"] == cell


def test_what_the_product_sets_itself_is_no_knob() -> None:
    assert [row["knob"] for row in table()["knobs"]] == ["K"]


def test_it_is_drawn_whole() -> None:
    text = show.table({"generation": GEN, **table(decode=DEAD, served=WEDGED)}, width=200)
    for word in (GEN, "prefill0", "decode0", "router0", "failed", "killed by signal 9", "512 (rendered)", "FAILS decode0: reached"):
        assert word in text, word

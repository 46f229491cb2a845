"""What engines hold: every queue counts, a stale report does not, and what cannot be read is not waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import drain, gates, http, loads, node, observe
from pd.drain import Held
from pd.gates import Http
from pd.node import Placed

from tests.unit.test_gates import GEN, UNIT

NOW = 1_700_000_000.0


def row(stamp: float = NOW, **counts: int) -> dict[str, Any]:
    queues = {key: counts.pop(key) for key in [*counts] if key.endswith("queue_reqs")}
    return {"timestamp": stamp, "num_running_reqs": 0, "num_waiting_reqs": 0, **counts, "disaggregation": queues}


@pytest.mark.parametrize(
    ("body", "requests"),
    [
        pytest.param({"loads": [row()]}, 0, id="idle"),
        pytest.param({"loads": [row(num_running_reqs=53)]}, 53, id="running"),
        pytest.param({"loads": [row(num_waiting_reqs=2)]}, 2, id="waiting"),
        *[pytest.param({"loads": [row(**{queue: 3})]}, 3, id=queue) for queue in (*loads.PD_QUEUES, "decode_retracted_queue_reqs")],
        pytest.param({"loads": [row(num_waiting_reqs=4, decode_prealloc_queue_reqs=3)]}, 4, id="0.5.23 counts that queue as waiting too"),
        pytest.param({"loads": [row(num_waiting_reqs=4, prefill_inflight_queue_reqs=3)]}, 7, id="but not a prefill's transfers"),
        pytest.param({"loads": [{**row(), "queues": {"grammar": 1}}]}, 1, id="waits for its grammar"),
        pytest.param({"loads": [row(num_running_reqs=1), row(num_running_reqs=2)]}, 3, id="two ranks"),
        pytest.param({"loads": [{"timestamp": NOW, "num_running_reqs": None, "disaggregation": None}]}, 0, id="keys without values"),
        pytest.param({"loads": []}, None, id="no rank"),
        pytest.param("<html>", None, id="no report"),
        pytest.param(None, None, id="nothing"),
    ],
)
def test_requests_in_flight(body: Any, requests: int | None) -> None:
    assert loads.in_flight(body) == requests


@pytest.mark.parametrize(
    ("answer", "done", "told"),
    [
        pytest.param(Http(200, {"loads": [row()]}), True, "empty", id="empty"),
        pytest.param(Http(200, {"loads": [row(num_running_reqs=2)]}), False, "2 in flight", id="busy"),
        pytest.param(Http(200, {"loads": [row(NOW - 2)]}), False, "no fresh report yet", id="it says 0, but of before the question"),
        pytest.param(Http(200, {"loads": [row(), row(NOW - 2)]}), False, "no fresh report yet", id="one rank's is old"),
        pytest.param(Http(200, {"loads": [row(NOW - 31)]}), True, "not measured (its report is 31 s old: the scheduler hangs)", id="hung"),
        pytest.param(Http(200, {"loads": [row(NOW - 31, num_running_reqs=9)]}), True, "not measured", id="hung with requests"),
        pytest.param(Http(0, error="refused"), True, "not measured (/v1/loads: refused)", id="dead"),
        pytest.param(Http(401), True, "not measured (/v1/loads: HTTP 401)", id="another key"),
        pytest.param(Http(200, "<html>"), True, "not measured", id="a stranger answers"),
    ],
)
def test_one_engine(answer: Http, done: bool, told: str) -> None:
    held = drain.held("decode", answer, asked=NOW - 1, now=NOW)
    assert held.is_done is done
    assert str(held).startswith(told)


@pytest.mark.parametrize(
    ("prefill", "decode", "left"),
    [(0, 0, 0), (0, 5, 5), (2, 5, 5), (5, 2, 5), (None, 3, 3), (None, None, 0)],
)
def test_a_request_is_in_both_engines_and_counts_once(prefill: int | None, decode: int | None, left: int) -> None:
    assert drain.left([Held("prefill", prefill), Held("decode", decode)]) == left


def test_two_engines_of_a_role_hold_different_requests() -> None:
    assert drain.left([Held("prefill", 1), Held("decode", 2), Held("decode", 3)]) == 5


STOP = {"event": "stop", "run": "r1", "instance": "router0", "boot": 100.0}


@pytest.mark.parametrize(
    ("entries", "begun"),
    [
        ([], 500.0),
        ([STOP], 100.0),
        ([{**STOP, "run": "r0"}], 500.0),
        ([{**STOP, "instance": "prefill0"}], 500.0),
        ([STOP, {**STOP, "boot": 300.0}], 300.0),
    ],
)
def test_the_time_runs_from_the_routers_stop(entries: list[dict[str, Any]], begun: float) -> None:
    assert drain.begun(entries, "r1", ["router0"], 500.0) == begun


def test_what_a_router_was_killed_with_is_remembered() -> None:
    killed = {"event": "killed", "run": "r1", "instance": "router0", "cut": 5}
    assert drain.cut_by_router([STOP, killed, {**killed, "run": "r0"}, {**killed, "cut": None}], "r1") == 5


HELD = st.builds(Held, st.sampled_from(["prefill", "decode"]), st.none() | st.integers(0, 3), st.just("w"), st.booleans())


@given(st.dictionaries(st.sampled_from(["prefill0", "decode0", "decode1"]), HELD, min_size=1), st.booleans())
def test_it_goes_on_when_all_are_empty_or_the_time_is_over(engines: dict[str, Held], over: bool) -> None:
    verdict = drain.verdict(engines, over)
    busy = [h for h in engines.values() if h.requests is not None and (h.requests or not h.fresh)]
    assert (verdict.state == "WAIT") == (bool(busy) and not over)
    assert all(name in verdict.why for name in engines)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Http]]:
    """What each engine says, the last of it for ever; asked at the address of the generation its process carries."""
    said: dict[str, list[Http]] = {}
    carried = Placed("decode0", "decode", UNIT.name, "http://old", None, None, {}, {}, "old")
    monkeypatch.setattr(node, "placed", lambda name, generation: carried if generation == "old" else Placed(
        name, "decode", UNIT.name, "http://new", None, None, {}, {}, generation
    ))  # fmt: skip
    monkeypatch.setattr(node, "api_key", lambda _generation, _name: None)
    monkeypatch.setattr(observe, "unit", lambda _name: UNIT)
    monkeypatch.setattr(observe, "environ", lambda _pid: {"PD_GENERATION": "old"})

    def ask(url: str, **_: Any) -> Http:
        queue = said[url.removesuffix("/v1/loads?include=all")]
        return queue.pop(0) if len(queue) > 1 else queue[0]

    monkeypatch.setattr(http, "ask", ask)
    monkeypatch.setattr(drain, "POLL_SECONDS", 0.01)
    return said


FAR = 4e9
IDLE, BUSY, REFUSED = Http(200, {"loads": [row(FAR)]}), Http(200, {"loads": [row(FAR, num_running_reqs=2)]}), Http(0, error="refused")


def test_it_is_asked_where_its_process_listens_until_it_is_empty(answers: dict[str, list[Http]]) -> None:
    answers["http://old"] = [BUSY, BUSY, IDLE]
    assert drain.wait(["decode0"], GEN, FAR, 5.0) == {"decode0": Held("decode", 0)}


def test_one_failed_read_is_not_believed_two_are(answers: dict[str, list[Http]]) -> None:
    answers["http://old"] = [REFUSED, BUSY, IDLE]
    assert drain.wait(["decode0"], GEN, FAR, 5.0)["decode0"].requests == 0
    answers["http://old"] = [REFUSED]
    assert drain.wait(["decode0"], GEN, FAR, 5.0)["decode0"].why == "/v1/loads: refused"


def test_a_call_ends_with_its_seconds_and_with_the_budget(answers: dict[str, list[Http]]) -> None:
    answers["http://old"] = [BUSY]
    for until, seconds in ((FAR, 0.05), (0.0, 60.0)):
        assert drain.wait(["decode0"], GEN, until, seconds)["decode0"].requests == 2


@pytest.mark.parametrize(
    ("pid", "environ", "why"),
    [(0, None, "it has no process"), (7, {}, "process 7 carries no generation"), (7, None, "process 7 carries no generation")],
)
def test_an_engine_without_a_known_address_is_not_measured(
    answers: dict[str, list[Http]], monkeypatch: pytest.MonkeyPatch, pid: int, environ: dict[str, str] | None, why: str
) -> None:
    assert not answers
    monkeypatch.setattr(observe, "unit", lambda name: observe.parse_show(name, f"LoadState=loaded\nActiveState=active\nMainPID={pid}\n"))
    monkeypatch.setattr(observe, "environ", lambda _pid: environ)
    assert drain.wait(["decode0"], GEN, FAR, 5.0)["decode0"].why == why


def test_the_real_engines_wedge_is_not_empty() -> None:
    """tests/samples: one request in the prefill's bootstrap queue for ever, the health green."""
    samples = Path(__file__).parents[1] / "samples"
    for role in ("prefill", "decode"):
        answer = Http(200, http._body((samples / f"{role}-loads-wedged.json").read_text()))
        stamp = min(loads.stamps(answer.body))
        assert drain.held(role, answer, stamp - 1, stamp + 1).requests == 1
        idle = Http(200, http._body((samples / f"{role}-loads.json").read_text()))
        stamp = min(loads.stamps(idle.body))
        assert drain.held(role, idle, stamp - 1, stamp + 1).is_done
    assert gates.LOADS_FRESH_SECONDS > drain.HUNG_SECONDS

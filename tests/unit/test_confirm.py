"""Whether a restart is asked about: how many requests it would cut, and what is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import confirm

THREE = ("prefill0", "decode0", "router0")


@pytest.mark.parametrize(
    ("load", "count"),
    [
        pytest.param({"prefill0": {"running": 0}, "decode0": {"running": 53}, "router0": {"active": 53}}, 53, id="53 running are 53, not 106"),
        pytest.param(
            {"prefill0": {"running": 0, "prefill_bootstrap_queue_reqs": 6, "prefill_inflight_queue_reqs": 4}, "decode0": {"running": 1}},
            10,
            id="report 031: a busy prefill reports 0 running",
        ),
        pytest.param({"prefill0": {"running": 0}, "decode0": {"running": 2, "decode_transfer_queue_reqs": 4}}, 6, id="queues count"),
        pytest.param({"prefill0": {"waiting": 5, "prefill_bootstrap_queue_reqs": 5}, "decode0": {"running": 2}}, 5, id="waiting has the queue in it"),
        pytest.param({"prefill0": {"running": 0}, "decode0": {"running": 0}, "router0": {"active": 7}}, 7, id="only the router knows of them"),
        pytest.param({"prefill0": {"running": 0}, "decode0": {"running": 0}, "router0": {}}, 0, id="a router that does not answer holds none"),
        pytest.param({"prefill0": {}, "decode0": {"running": 53}}, None, id="an engine that does not answer"),
        pytest.param({}, None, id="nothing could be read"),
    ],
)
def test_how_many_requests_are_in_flight(load: dict[str, dict[str, int]], count: int | None) -> None:
    assert confirm.requests(load, ["prefill0"], ["decode0"]) == count


@pytest.mark.parametrize(
    ("count", "over", "restarts", "asked"),
    [(53, 0, THREE, False), (53, 53, THREE, False), (53, 52, THREE, True), (53, 10, (), False), (None, 10, THREE, False), (1, 1, THREE, False)],
)
def test_it_asks_only_when_more_run_and_something_restarts(count: int | None, over: int, restarts: tuple[str, ...], asked: bool) -> None:
    assert (confirm.question(count, over, 41.0, restarts) is not None) is asked


def test_the_question_has_the_number_the_outage_and_the_way_on() -> None:
    text = confirm.question(53, 10, 41.0, THREE)
    assert text == (
        "53 requests are in flight, more than pd_confirm_over_running (10). Restarting prefill0, decode0, router0 stops service for about 41 s."
    )
    assert "an unknown time" in str(confirm.question(53, 10, None, THREE))
    assert confirm.refusal(text, 53).endswith("-e pd_confirm_over_running=53 (or 0: never ask)")


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_the_value_that_is_named_really_lets_it_go_on(count: int, over: int) -> None:
    if confirm.question(count, over, None, THREE):
        assert confirm.question(count, count, None, THREE) is None


@pytest.mark.parametrize(("given_", "number"), [(0, 0), ("60", 60), (" 7 ", 7)])
def test_the_limit_is_a_number_also_from_the_command_line(given_: object, number: int) -> None:
    assert confirm.limit(given_) == number


@pytest.mark.parametrize("given_", ["many", -1, "", None, 1.5])
def test_a_limit_that_is_no_number_is_refused(given_: object) -> None:
    with pytest.raises(ValueError, match=r"pd_confirm_over_running: found .*; write a number"):
        confirm.limit(given_)

"""Whoever ends a request that is in flight must be the one who counts it: the times that have to fit."""

from __future__ import annotations

from typing import Any

import pytest
from pd.inventory import check

from tests.unit.specs import VARS, spec

ARGS = VARS["router0"]["router_args"]


@pytest.mark.parametrize(
    ("changes", "key", "found", "fix"),
    [
        ({"pd_drain_timeout": 180}, "router_args.shutdown-grace-period-secs", "180 s, not above", "shutdown-grace-period-secs: 210"),
        (
            {"pd_drain_timeout": 300, "router_args": {**ARGS, "shutdown-grace-period-secs": 240}},
            *("router_args.shutdown-grace-period-secs", "240 s, not above pd_drain_timeout (300 s)", "shutdown-grace-period-secs: 330"),
        ),
        ({"pd_drain_timeout": 170, "pd_stop_timeout": 170}, "pd_stop_timeout", "170 s, not above", "pd_stop_timeout: 260"),
    ],
)
def test_a_time_that_another_one_cuts_short_is_named(changes: dict[str, Any], key: str, found: str, fix: str) -> None:
    (problem,) = check(spec(router0=changes))
    assert problem.key == key
    assert found in problem.found
    assert problem.fix.startswith(fix)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"pd_drain_timeout": 179, "pd_stop_timeout": 270},
        {"pd_drain_timeout": 240, "pd_stop_timeout": 330, "router_args": {**ARGS, "shutdown-grace-period-secs": 241}},
    ],
)
def test_times_that_fit(changes: dict[str, Any]) -> None:
    assert check(spec(router0=changes)) == []

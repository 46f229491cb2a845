"""Rules on the time that requests in flight are given: whoever ends them must be the one who counts them."""

from __future__ import annotations

from collections.abc import Iterator

from .problem import Problem
from .spec import ROUTER, Spec, instance_args, number

ROUTER_GRACE_SECONDS = 180
"""The router's own default for shutdown-grace-period-secs (sglang-facts 5.1)."""
GRACE = "shutdown-grace-period-secs"


def drain_fits(spec: Spec) -> Iterator[Problem]:
    """The router cuts by itself when its grace is over, systemd at TimeoutStopSec; neither says what it cut (sglang-facts 5.3)."""
    for router in spec.of(ROUTER):
        drain, stop = number(router.vars.get("pd_drain_timeout")), number(router.vars.get("pd_stop_timeout"))
        given = instance_args(router).get(GRACE, ROUTER_GRACE_SECONDS)
        grace = number(given)
        if drain is None:
            continue
        if grace is not None and grace <= drain:
            found = f"{given} s, not above pd_drain_timeout ({drain} s): the router would cut what is in flight, uncounted"
            yield Problem(spec.where_arg(router, GRACE), f"router_args.{GRACE}", found, f"{GRACE}: {drain + 30}, or a shorter pd_drain_timeout")
        if stop is not None and stop <= drain:
            found = f"{stop} s, not above pd_drain_timeout ({drain} s): systemd would cut what is in flight, uncounted"
            yield Problem(spec.where(router, "pd_stop_timeout"), "pd_stop_timeout", found, f"pd_stop_timeout: {drain + 90}")

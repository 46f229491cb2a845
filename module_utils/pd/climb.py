"""One short look up the ladder, on the node: observe a rung, judge it, go on to the next. A lower rung that fails ends the climb."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from . import gates, gates_serving, http, node, observe, outstanding, serving
from .gates import Baseline, Verdict
from .node import Placed

POLL_SECONDS = 0.1
LOCAL = {"text": "1 + 1 =", "sampling_params": {"max_new_tokens": 1, "temperature": 0}, "bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
"""SGLang's own warm-up address: any engine with a real backend serves it alone, without its peer (facts 2.3)."""


class Climber:
    """The climb of one instance; `baseline` None means: whatever runs now is taken, nothing is gated."""

    def __init__(self, member: Placed, until: str, baseline: Baseline | None, request_timeout: float) -> None:
        self.member = member
        self.until = until
        self.baseline = baseline
        self.timeout = request_timeout
        self.key = node.api_key(member.generation, member.name)
        self.unit = observe.unit(member.unit)
        self.reached = "none"
        self.is_out = False
        """Whether the last look ended at a probe that has not answered yet."""

    def climb(self, patience: float) -> Verdict:
        """Judge rung after rung up to `until`; `patience` is how long one outstanding probe may be waited for here."""
        self.unit = observe.unit(self.member.unit)
        self.reached, self.is_out = "none", False
        verdict = gates.alive(self.unit, self.baseline)
        for rung in gates.LADDER[self.member.role]:
            if rung != "alive":
                verdict = self._rung(rung, patience)
            if verdict.state != "READY":
                return verdict
            self.reached = rung
            if rung == self.until:
                break
        return verdict

    def _rung(self, rung: str, patience: float) -> Verdict:
        return {"listening": self._listening, "working": self._working, "serving": self._serving}[rung](patience)

    def _listening(self, _patience: float) -> Verdict:
        ready, route = listening_answers(self.member)
        return gates.listening(self.member.role, ready, route)

    def _working(self, patience: float) -> Verdict:
        member = self.member
        wanted = member.knobs
        processes = observe.ranks(observe.cgroup_pids(self.unit.control_group), wanted)
        told = outstanding.ask(self._key("local"), lambda: _http_json(self._local()), patience)
        self.is_out = told is None
        local = None if told is None else gates.Http(**told) if "status" in told else gates.Http(0, error=str(told.get("error")))
        loads = http.ask(f"{member.url}/v1/loads?include=all", timeout=3, key=self.key)
        return gates.working(local, processes, member.generation, wanted, loads=loads, now=time.time())

    def _local(self) -> gates.Http:
        return http.ask(f"{self.member.url}/generate", LOCAL, timeout=max(self.timeout, 25.0), key=self.key)

    def _serving(self, patience: float) -> Verdict:
        engines = [m for m in node.everyone(self.member.generation) if not m.is_router]

        def work() -> dict[str, Any]:
            return serving.as_json(serving.look(self.member, engines, self.key, self.timeout))

        told = outstanding.ask(self._key("serving"), work, patience)
        self.is_out = told is None
        if told is not None and "error" in told:
            return Verdict("WAIT", "serving", f"the probe itself failed: {told['error']}")
        return gates_serving.judge(None if told is None else gates_serving.from_json(told), len(engines))

    def _key(self, kind: str) -> str:
        return f"{self.member.name}-{self.unit.invocation[:12]}-{kind}"


def listening_answers(member: Placed) -> tuple[gates.Http, gates.Http | None]:
    """What rung 2 asks: /ready (a router: /liveness), and of a prefill whether all its ranks have registered (facts 2.2, 6.1)."""
    ready = http.ask(f"{member.url}/{'liveness' if member.is_router else 'ready'}", timeout=3)
    if member.role != "prefill":
        return ready, None
    ranks = "prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
    return ready, http.ask(f"{member.url.rpartition(':')[0]}:{member.bootstrap_port}/route?{ranks}", timeout=3)


def _http_json(got: gates.Http) -> dict[str, Any]:
    return {"status": got.status, "body": got.body, "error": got.error}


def wait(climber: Climber, seconds: float, clock: Callable[[], float] = time.monotonic) -> Verdict:
    """Climb every 100 ms until READY, DEAD or `seconds` are over: one short call on the node."""
    deadline = clock() + seconds
    answered: Verdict | None = None
    while True:
        verdict = climber.climb(patience=max(0.0, min(2.0, deadline - clock())))
        if verdict.state == "WAIT" and not climber.is_out:
            answered = verdict
        if verdict.state != "WAIT" or clock() >= deadline:
            # a probe that is out says less than the answer to the one before it
            return answered if answered and climber.is_out and answered.rung == verdict.rung else verdict
        time.sleep(POLL_SECONDS)


def wait_stopped(unit: str, seconds: float, clock: Callable[[], float] = time.monotonic) -> tuple[Verdict, observe.Unit, str]:
    """Wait for a unit to be inactive, as `wait` does for a rung; READY then means stopped."""
    deadline = clock() + seconds
    while True:
        seen = observe.unit(unit)
        left = observe.cgroup_pids(seen.control_group)
        if seen.active_state in ("inactive", "failed", "absent") and not left:
            return Verdict("READY", "stopped", f"{unit} is {seen.active_state}"), seen, "stopped"
        if clock() >= deadline:
            return Verdict("WAIT", "stopped", f"{unit} is {seen.active_state}, {len(left)} processes left"), seen, "none"
        time.sleep(POLL_SECONDS)

"""One short look up the ladder, on the node: observe a rung, judge it, go on to the next. A lower rung that fails ends the climb."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import gates, gates_serving, http, lock, node, observe, outstanding, phases, serving
from .gates import Baseline, Effort, Verdict
from .node import Placed

POLL_SECONDS = 0.1
COMPILERS = ("cc1plus", "cicc", "ninja", "nvcc", "ptxas")
"""What runs below an engine while it compiles its kernels."""
LOCAL = {"text": "1 + 1 =", "sampling_params": {"max_new_tokens": 1, "temperature": 0}, "bootstrap_host": "2.2.2.2", "bootstrap_room": 0}
"""SGLang's own warm-up address: any engine with a real backend serves it alone, without its peer (facts 2.3)."""


class Climber:
    """The climb of one instance; `baseline` None means: whatever runs now is taken, nothing is gated.

    `peers`: the processes of other instances that were READY before; a router does not serve with others in their place.
    """

    def __init__(
        self, member: Placed, until: str, baseline: Baseline | None, request_timeout: float, peers: Mapping[str, Baseline] | None = None
    ) -> None:
        self.member = member
        self.until = until
        self.baseline = baseline
        self.timeout = request_timeout
        self.peers = peers or {}
        self.key = node.api_key(member.generation, member.name)
        self.unit = observe.unit(member.unit)
        self.reached = "none"
        self.is_out = False
        """Whether the last look ended at a probe that has not answered yet."""
        self.listens = False
        """Whether anything answered at its port, with whatever status."""

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
        self.listens = ready.status != 0
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
        units = {m.name: observe.unit(m.unit) for m in engines if m.name in self.peers}
        still = gates.settled({name: self.peers[name] for name in units}, units)
        if still.state == "DEAD":
            return still

        def work() -> dict[str, Any]:
            return serving.as_json(serving.look(self.member, engines, self.key, self.timeout))

        told = outstanding.ask(self._key("serving"), work, patience)
        self.is_out = told is None
        if told is not None and "error" in told:
            return Verdict("WAIT", "serving", f"the probe itself failed: {told['error']}")
        return gates_serving.judge(None if told is None else gates_serving.from_json(told), len(engines))

    def effort(self, last: Effort | None) -> Effort:
        """What it has done up to now, in numbers that can be compared with those of an earlier look."""
        used = observe.work(observe.cgroup_pids(self.unit.control_group))
        compilers = [one for one in used if one.name in COMPILERS]
        lines, cursor = observe.journal_after(self.unit.invocation, last.cursor if last else "")
        return Effort(
            at=round(lock.boottime(), 2),
            lines=(last.lines if last else 0) + len(phases.telling(lines)),
            cursor=cursor,
            cpu=round(sum(one.cpu for one in used), 2),
            read=sum(one.read for one in used),
            compilers=tuple(sorted({one.name for one in compilers})),
            compiling=round(sum(one.cpu for one in compilers), 2),
            reached=self.reached,
        )

    def stack(self) -> list[str]:
        """What its Python code is doing, the main process first and then its schedulers, without secrets."""
        pids = observe.cgroup_pids(self.unit.control_group)
        schedulers = [pid for pid in pids if observe.cmdline(pid).startswith("sglang::scheduler")]
        python = (observe.environ(self.unit.main_pid) or {}).get("PD_PYTHON", "")
        said = observe.stack([self.unit.main_pid, *schedulers[:1]], Path(python).with_name("py-spy"))
        return phases.redact(said, self.member.secrets)

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

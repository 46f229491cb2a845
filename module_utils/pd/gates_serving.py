"""Rung 4, the verdict. HTTP 200 alone proves nothing: tokens, a finish reason, [DONE], and counters that moved do. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .gates import Http, Verdict

CLOSED = 0.0
"""smg_worker_cb_state of a closed circuit; 1 is open, 2 half open (facts 3)."""
NORMAL_END = ("stop", "length")


@dataclass(frozen=True)
class Reply:
    """One answer through the router. `done`: whether [DONE] came; None for an answer in one piece."""

    status: int
    content: str | None = None
    finish_reason: str | None = None
    tokens: int = 0
    done: bool | None = None
    error: str = ""
    seconds: float = 0.0

    def trouble(self) -> str | None:
        """What is missing for this to be a real answer."""
        if self.status != 200:
            return self.error or f"HTTP {self.status}"
        if self.tokens < 1:
            return f"200 with no token (finish_reason {self.finish_reason})"
        if self.content is None:
            return f"200 without a content (finish_reason {self.finish_reason})"
        if self.finish_reason not in NORMAL_END:
            return f"finish_reason {self.finish_reason}"
        if self.done is False:
            return "the stream ended without [DONE]"
        return None


@dataclass(frozen=True)
class Serving:
    """What the router and a request through it showed. `moved`: tokens that each engine's own counter advanced by."""

    readiness: Http
    workers: tuple[Mapping[str, Any], ...]
    circuits: Mapping[str, float]
    replies: tuple[Reply, ...]
    moved: Mapping[str, float]

    def router_trouble(self, engines: int) -> str | None:
        """Why the router could not serve even if the engines were perfect."""
        if self.readiness.status != 200:
            return f"router /readiness: {self.readiness}"
        if len(self.workers) < engines:
            return f"the router has {len(self.workers)} of {engines} workers"
        sick = [str(w.get("url")) for w in self.workers if not w.get("is_healthy")]
        if sick:
            return f"the router holds {', '.join(sick)} for unhealthy"
        unread = [str(w.get("url")) for w in self.workers if w.get("url") not in self.circuits]
        if unread:
            return f"the circuit of {', '.join(unread)} cannot be read from the router's metrics"
        tripped = [worker for worker, state in self.circuits.items() if state != CLOSED]
        if tripped:
            return f"circuit open: {', '.join(tripped)} (/readiness does not show it; a router restart closes it)"
        return None


def judge(serving: Serving | None, engines: int) -> Verdict:
    """READY when both requests were really answered by both engines; else WAIT and why: the deadline decides, not one failure."""
    if serving is None:
        return Verdict("WAIT", "serving", "the request through the router is still out")
    trouble = serving.router_trouble(engines)
    if trouble is None:
        for reply in serving.replies:
            trouble = trouble or _with(reply, reply.trouble())
    if trouble is None and len(serving.replies) < 2:
        trouble = "only one request was made"
    if trouble is None:
        still = [name for name, tokens in serving.moved.items() if tokens <= 0]
        trouble = f"{', '.join(still)} did not move its token counter: the answer came from elsewhere" if still else None
    if trouble is None and len(serving.moved) < engines:
        trouble = f"only {len(serving.moved)} of {engines} token counters were read"
    if trouble:
        return Verdict("WAIT", "serving", trouble)
    took = ", ".join(f"{reply.seconds:.1f} s" for reply in serving.replies)
    moved = ", ".join(f"{name} +{tokens:.0f}" for name, tokens in serving.moved.items())
    return Verdict("READY", "serving", f"answered in {took}; tokens {moved}")


def _with(reply: Reply, trouble: str | None) -> str | None:
    return f"request through the router: {trouble} (after {reply.seconds:.1f} s)" if trouble else None


def from_json(told: Mapping[str, Any]) -> Serving:
    """The observation back from the file of `outstanding`. Raises TypeError when it is none."""
    return Serving(
        Http(**told["readiness"]),
        tuple(told["workers"]),
        dict(told["circuits"]),
        tuple(Reply(**reply) for reply in told["replies"]),
        dict(told["moved"]),
    )

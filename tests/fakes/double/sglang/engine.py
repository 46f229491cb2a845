"""The state of one engine and the life of a request in it (sglang-facts 2.2 to 2.5).

What the real engine counts is derived here from where each request stands, so /v1/loads, the gauges and the drain
cannot disagree.
"""

import argparse
import asyncio
import enum
import re
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from .faults import Faults, FaultSource
from .metrics import Metrics
from .processes import Children

T = TypeVar("T")
FAKE_HOST = "2.2.2.2"
"""The bootstrap host that means: serve this locally, without a peer (sglang-facts 2.3)."""


class Status(enum.Enum):
    """SGLang's ServerStatus."""

    STARTING = "Starting"
    UP = "Up"
    UNHEALTHY = "UnHealthy"


class Stage(enum.Enum):
    """Where a request stands; each but PAUSED is a counter of /v1/loads."""

    PAUSED = ""
    WAITING = "num_waiting_reqs"
    RUNNING = "num_running_reqs"
    BOOTSTRAP = "prefill_bootstrap_queue_reqs"
    INFLIGHT = "prefill_inflight_queue_reqs"
    PREALLOC = "decode_prealloc_queue_reqs"
    TRANSFER = "decode_transfer_queue_reqs"


class RequestError(Exception):
    """An answer other than 200: HTTP status and SGLang's message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Aborted(Exception):  # noqa: N818 - an outcome, not an error
    """The request was aborted by /abort_request, by a pause, or because its client left."""


@dataclass
class Request:
    """One generation; `tokens` is its whole answer, decided by the prompt alone."""

    rid: str
    prompt: str
    max_tokens: int
    stream: bool = False
    ignore_eos: bool = False
    host: str | None = None
    port: int | None = None
    room: int | None = None
    stage: Stage = Stage.PAUSED
    finish: str = ""
    sent: int = 0
    began: float = field(default_factory=time.monotonic)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def prompt_tokens(self) -> int:
        """A word is a token here."""
        return max(1, len(self.prompt.split()))

    @property
    def remote(self) -> bool:
        """Does it need the other engine?"""
        return self.room is not None and self.host != FAKE_HOST


class Peer(Protocol):
    """The other half of a PD pair, as seen from this role."""

    async def before(self, request: Request) -> None:
        """Until this role may compute: the handshake on prefill, the KV transfer on decode."""

    async def after(self, request: Request) -> None:
        """After it has computed: the KV transfer on prefill, nothing on decode."""


def answer(prompt: str, max_tokens: int, ignore_eos: bool) -> tuple[list[str], str]:
    """The tokens and the finish reason: `repeat: X` is answered by X, anything else by its own last line.

    Joined, the tokens are the text. `ignore_eos` repeats the answer up to `max_tokens`.
    """
    asked = re.findall(r"repeat:[ \t]*([^\n]+)", prompt, re.IGNORECASE)
    lines = prompt.strip().splitlines()
    text = asked[-1].strip() if asked else f"The double was asked: {lines[-1] if lines else 'nothing'}"
    tokens = re.findall(r"\s*\S+", text)
    while ignore_eos and len(tokens) < max_tokens:
        tokens += [f" {tokens[0]}", *tokens[1:]]
    return tokens[:max_tokens], "length" if len(tokens) > max_tokens or ignore_eos else "stop"


@dataclass
class Engine:
    """What the HTTP application, the lifecycle and the peers share."""

    args: argparse.Namespace
    faults: FaultSource
    children: Children
    metrics: Metrics
    peer: Peer | None = None
    status: Status = Status.STARTING
    draining: bool = False
    last_output: float = 0.0
    """When any token last came, monotonic seconds: what /health looks at."""
    requests: dict[str, Request] = field(default_factory=dict)
    running: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared while paused."""

    def __post_init__(self) -> None:
        self.running.set()

    @property
    def mode(self) -> str:
        """`prefill`, `decode` or `null`."""
        return str(self.args.disaggregation_mode)

    def is_healthy(self) -> bool:
        """/ping's answer."""
        return not self.draining and self.status is Status.UP

    def is_ready(self) -> bool:
        """/ready's answer."""
        return self.running.is_set() and self.is_healthy()

    def loads(self) -> dict[str, float]:
        """Every counter that a fault can override, true or overridden."""
        counts = Counter(request.stage.value for request in self.requests.values())
        used = sum(r.prompt_tokens + r.sent for r in self.requests.values() if r.stage is not Stage.PAUSED)
        true = {stage.value: float(counts[stage.value]) for stage in Stage if stage.value}
        true |= {"num_used_tokens": used, "token_usage": used / self.args.max_total_tokens, "gen_throughput": 0.0}
        return {**true, **self.faults.current().loads}

    async def abortable(self, request: Request, what: Awaitable[T]) -> T:
        """`what`, or Aborted as soon as the request is."""
        work, stop = asyncio.ensure_future(what), asyncio.ensure_future(request.aborted.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise Aborted
            return work.result()
        finally:
            work.cancel()
            stop.cancel()

    def abort(self, rid: str = "", *, everything: bool = False) -> None:
        """Abort one request or all; an unknown rid is ignored, as there."""
        for request in self.requests.values():
            if everything or request.rid == rid:
                request.aborted.set()

    async def probe(self) -> None:
        """/health's own generation: one token from the scheduler, no peer, no metrics."""
        await self.running.wait()
        await self.ask_scheduler()
        self.last_output = time.monotonic()

    async def ask_scheduler(self) -> None:
        """A round trip to rank 0."""
        async for _ in self.children.tokens(f"ask_{time.monotonic_ns()}", 1, 0.0):
            return

    async def generate(self, request: Request) -> AsyncIterator[str]:
        """The answer's tokens as they come; `request.finish` afterwards. Raises RequestError."""
        faults = self.faults.current()
        self.requests[request.rid] = request
        try:
            await self.abortable(request, self.running.wait())
            self._admit(request)
            peer = self.peer if request.remote else None
            if peer:
                await self.abortable(request, peer.before(request))
            held = []
            async with aclosing(self._compute(request, faults)) as computed:
                async for token in computed:
                    if peer and self.mode == "prefill":
                        held.append(token)
                    else:
                        yield token
            if peer:
                await self.abortable(request, peer.after(request))
            for token in held:
                yield token
        except Aborted:
            request.finish = "abort"
        finally:
            self.requests.pop(request.rid, None)
            self.metrics.finished(request)

    def _admit(self, request: Request) -> None:
        request.stage = Stage.WAITING
        if self.mode != "null" and request.room is None:
            raise RequestError(
                400,
                f"Invalid request: Disaggregated request received without bootstrap room id. req.rid={request.rid!r}",
            )

    async def _compute(self, request: Request, faults: Faults) -> AsyncGenerator[str, None]:
        """Rank 0's tokens; a prefill computes one, of a local request too, and the rest would be decode's."""
        tokens, request.finish = answer(request.prompt, request.max_tokens, request.ignore_eos)
        if self.mode == "prefill":
            tokens, request.finish = tokens[:1], "length"
        if faults.generates_nothing or faults.finish_reason_error:
            tokens, request.finish = [], "error" if faults.finish_reason_error else "stop"
        request.stage = Stage.RUNNING
        async with aclosing(self.children.tokens(request.rid, len(tokens), faults.token_seconds)) as source:
            for token in tokens:
                await self.abortable(request, anext(source))
                await self.abortable(request, self.running.wait())
                self.last_output = time.monotonic()
                request.sent += 1
                self.metrics.token(request, time.monotonic() - request.began)
                yield token

"""Where the guards are put in, in a scheduler (SGLang 0.5.23)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import Counter

from ..kernel import Context, Hook
from .inflight import Queue
from .threads import end_engine, watched

PREFILL = "sglang.srt.disaggregation.prefill.SchedulerDisaggregationPrefillMixin.process_disagg_prefill_inflight_queue"
DECODE = "sglang.srt.disaggregation.decode.SchedulerDisaggregationDecodeMixin.process_decode_queue"
"""Each is called once a pass of its role's loop, idle or not, before the queues are polled."""
THREADS = (
    "sglang.srt.disaggregation.nixl.conn.NixlKVManager._start_bootstrap_thread",
    "sglang.srt.disaggregation.nixl.conn.NixlKVManager._start_decode_listener_thread",
)
QUEUES = ("prefill bootstrap", "prefill in-flight", "decode prealloc", "decode transfer")


def hooks(context: Context, limit: float, clock: Callable[[], float] = time.monotonic) -> Sequence[Hook]:
    """`limit`: seconds that a request may wait for its peer in one queue."""
    from sglang.srt.runtime_context import get_parallel  # noqa: PLC0415  the tests of the rest need no SGLang

    queues = {name: Queue(name, limit) for name in QUEUES}
    counter = Counter("pd_inflight_aborted", "Requests ended by pd_kernels guards: no answer from the peer in time", ["queue"])
    for name in QUEUES:
        counter.labels(name)

    def look(name: str, entries: Sequence[tuple[Any, Any]]) -> None:
        for request in queues[name].look(entries, clock()):
            counter.labels(name).inc()
            context.count(f"aborted in {name}")
            sys.stderr.write(f"pd_kernels: guards: {request.rid} aborted after {limit:g} s in the {name} queue\n")

    def prefill(scheduler: Any, *_args: Any, **_kwargs: Any) -> None:
        if decides(get_parallel()):
            waiting = scheduler.disagg_prefill_bootstrap_queue.queue
            look("prefill bootstrap", [(request, request.disagg_kv_sender) for request in waiting])
            look("prefill in-flight", [(request, request.disagg_kv_sender) for request in scheduler.disagg_prefill_inflight_queue])

    def decode(scheduler: Any, *_args: Any, **_kwargs: Any) -> None:
        if decides(get_parallel()):
            for name, queue in (
                ("decode prealloc", scheduler.disagg_decode_prealloc_queue.queue),
                ("decode transfer", scheduler.disagg_decode_transfer_queue.queue),
            ):
                look(name, [(entry.req, entry.kv_receiver) for entry in queue if entry.kv_receiver is not None])

    return [
        Hook(PREFILL, "before", prefill),
        Hook(DECODE, "before", decode),
        *(Hook(target, "around", watched(end_engine)) for target in THREADS),
    ]


def decides(ranks: Any) -> bool:
    """One rank of an attention group decides, and the others follow: every poll is reduced to the lowest status, and Failed is that."""
    return bool(ranks.attn_tp_rank == 0 and ranks.attn_cp_rank == 0)

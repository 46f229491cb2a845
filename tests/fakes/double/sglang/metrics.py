"""The metrics of sglang-facts section 3, with the labels of the real collectors and counters that move."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

if TYPE_CHECKING:
    from .engine import Request

_LATENCY = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_GAUGES = {
    "num_running_reqs": "num_running_reqs",
    "num_queue_reqs": "num_waiting_reqs",
    "num_used_tokens": "num_used_tokens",
    "token_usage": "token_usage",
    "gen_throughput": "gen_throughput",
    "num_prefill_bootstrap_queue_reqs": "prefill_bootstrap_queue_reqs",
    "num_prefill_inflight_queue_reqs": "prefill_inflight_queue_reqs",
    "num_decode_prealloc_queue_reqs": "decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs": "decode_transfer_queue_reqs",
}
"""Gauge (without `sglang:`) -> the counter of /v1/loads it shows."""
_CONSTANTS = {
    "cache_hit_rate": 0.0,
    "num_grammar_queue_reqs": 0.0,
}


class Metrics:
    """One registry per engine; a labelled series appears when it first moves, as there."""

    def __init__(self, args: argparse.Namespace) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped there
        self.registry = CollectorRegistry()
        mode = args.disaggregation_mode
        self._tokenizer = {
            "model_name": args.served_model_name,
            "engine_type": "unified" if mode == "null" else mode,
        }
        self._scheduler = {**self._tokenizer, "tp_rank": "0", "pp_rank": "0", "moe_ep_rank": "0"}
        rank, front = list(self._scheduler), list(self._tokenizer)
        self._constants = {**_CONSTANTS, "max_total_num_tokens": float(args.max_total_tokens)}
        self._gauges = {name: self._gauge(name, rank) for name in (*_GAUGES, *self._constants)}
        self._prompt = self._counter("prompt_tokens_total", [*front, "is_streaming"])
        self._generated = self._counter("generation_tokens_total", [*front, "is_streaming"])
        self._requests = self._counter("num_requests_total", [*front, "is_streaming"])
        self._aborted = self._counter("num_aborted_requests_total", front)
        self._first = self._histogram("time_to_first_token_seconds", [*front, "is_streaming"])
        self._e2e = self._histogram("e2e_request_latency_seconds", [*front, "is_streaming"])
        self._realtime = self._counter("realtime_tokens_total", [*rank, "mode"])
        self._bootstrap_failed = self._counter("num_bootstrap_failed_reqs_total", rank)
        self._transfer_failed = self._counter("num_transfer_failed_reqs_total", rank)
        self._transfer_ms = self._histogram("kv_transfer_latency_ms", rank)
        self._startup = self._gauge("startup_time_seconds", [*front, "phase"])
        self._http = self._counter("http_requests_total", ["endpoint", "method"])
        self._http_done = self._counter("http_responses_total", ["endpoint", "status_code", "method"])
        self._http_active = self._gauge("http_requests_active", ["endpoint", "method"])

    def _gauge(self, name: str, labels: list[str]) -> Gauge:
        return Gauge(f"sglang:{name}", name, labels, registry=self.registry)

    def _counter(self, name: str, labels: list[str]) -> Counter:
        return Counter(f"sglang:{name}", name, labels, registry=self.registry)

    def _histogram(self, name: str, labels: list[str]) -> Histogram:
        return Histogram(f"sglang:{name}", name, labels, buckets=_LATENCY, registry=self.registry)

    def started(self, seconds: float) -> None:
        """Once, when the ranks have loaded."""
        self._startup.labels(**self._tokenizer, phase="load_weight").set(seconds)
        for name, value in self._constants.items():
            self._gauges[name].labels(**self._scheduler).set(value)

    def token(self, request: "Request", elapsed_s: float) -> None:
        """A token of `request` came, `elapsed_s` after the request."""
        if request.sent == 1:
            streaming = str(request.stream).lower()
            if self._tokenizer["engine_type"] != "prefill":
                self._first.labels(**self._tokenizer, is_streaming=streaming).observe(elapsed_s)
            self._prompt.labels(**self._tokenizer, is_streaming=streaming).inc(request.prompt_tokens)
            self._realtime.labels(**self._scheduler, mode="prefill_compute").inc(request.prompt_tokens)
        elif self._tokenizer["engine_type"] != "prefill":
            self._realtime.labels(**self._scheduler, mode="decode").inc()

    def finished(self, request: "Request") -> None:
        """The request has left the engine, in whatever way."""
        streaming = str(request.stream).lower()
        if request.finish in ("", "abort"):
            self._aborted.labels(**self._tokenizer).inc()
            return
        self._requests.labels(**self._tokenizer, is_streaming=streaming).inc()
        self._generated.labels(**self._tokenizer, is_streaming=streaming).inc(request.sent)

    def bootstrap_failed(self) -> None:
        """A handshake failed or timed out."""
        self._bootstrap_failed.labels(**self._scheduler).inc()

    def transfer_failed(self) -> None:
        """A KV transfer failed or timed out."""
        self._transfer_failed.labels(**self._scheduler).inc()

    def transferred(self, seconds: float) -> None:
        """A KV transfer took that long."""
        self._transfer_ms.labels(**self._scheduler).observe(seconds * 1000)

    def http_begin(self, endpoint: str, method: str) -> None:
        """A request came in."""
        self._http.labels(endpoint, method).inc()
        self._http_active.labels(endpoint, method).inc()

    def http_end(self, endpoint: str, method: str, status: int) -> None:
        """Its response is complete, or its client gone (499)."""
        self._http_active.labels(endpoint, method).dec()
        self._http_done.labels(endpoint, str(status), method).inc()

    def text(self, loads: Mapping[str, float]) -> bytes:
        """The exposition, its queue gauges set from `loads`."""
        for gauge, counter in _GAUGES.items():
            self._gauges[gauge].labels(**self._scheduler).set(loads[counter])
        return generate_latest(self.registry)

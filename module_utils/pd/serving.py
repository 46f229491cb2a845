"""Rung 4, the I/O: ask the router what it sees, then ask it something and look whether both engines' own counters moved."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from . import http, metrics
from .gates import completion_tokens
from .gates_serving import Reply, Serving
from .node import Placed

COUNTER = {"prefill": "sglang:prompt_tokens_total", "decode": "sglang:generation_tokens_total"}
"""The engine's own count of what it did for the request: a prefill reads prompts, a decode writes tokens (facts 3)."""


CHUNK_TOKENS = 8192
"""SGLang's own chunked_prefill_size on a GPU of 90 to 160 GiB (facts 1.4)."""


def look(router: Placed, engines: Sequence[Placed], key: str | None, timeout: float) -> Serving:
    """Readiness, workers and circuits; requests only when those are in order, since a failed one opens circuits (facts 5.3.4)."""
    readiness = http.ask(f"{router.url}/readiness", timeout=3)
    workers = http.ask(f"{router.url}/workers", timeout=3, key=key)
    told = http.ask(f"{router.metrics_url}/metrics", timeout=3)
    serving = Serving(readiness, _workers(workers.body), metrics.by_label(told.body, "smg_worker_cb_state", "worker"), (), {})
    if serving.router_trouble(len(engines)):
        return serving
    before = {e.name: counter(e, key) for e in engines}
    model = str(engines[0].config.get("served-model-name", "default"))
    nonce = secrets.token_hex(4)
    replies = [_request(router.url, model, f"{nonce} Say yes.", 4, stream=False, timeout=timeout, key=key)]
    if not replies[0].trouble():
        replies.append(_request(router.url, model, f"{nonce} {_chunks(engines)}", 8, stream=True, timeout=timeout, key=key))
    moved = {e.name: _advance(before[e.name], counter(e, key)) for e in engines}
    return Serving(serving.readiness, serving.workers, serving.circuits, tuple(replies), moved)


def _advance(before: float | None, after: float | None) -> float:
    return 0.0 if before is None or after is None else max(0.0, after - before)


def _chunks(engines: Sequence[Placed]) -> str:
    """A prompt that a prefill must cut: a quarter longer than its chunk, at about five tokens a sentence."""
    sizes = [int(e.config.get("chunked-prefill-size") or CHUNK_TOKENS) for e in engines if e.role == "prefill"]
    return "Count up from one. " * (max(sizes, default=CHUNK_TOKENS) // 4)


def as_json(serving: Serving) -> dict[str, Any]:
    """The observation in a form that a file can carry between two short calls."""
    return asdict(serving)


def counter(engine: Placed, key: str | None = None) -> float | None:
    """The engine's own token counter; None when it cannot be read: what was not seen before and after did not move."""
    told = http.ask(f"{engine.url}/metrics", timeout=3, key=key)
    return metrics.total(told.body, COUNTER[engine.role]) if told.status == 200 else None


def _workers(body: Any) -> tuple[Mapping[str, Any], ...]:
    found = body.get("workers") if isinstance(body, dict) else body
    return tuple(w for w in found if isinstance(w, dict)) if isinstance(found, list) else ()


def _request(url: str, model: str, prompt: str, tokens: int, *, stream: bool, timeout: float, key: str | None) -> Reply:
    import httpx  # noqa: PLC0415  not on a bare host

    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_tokens": tokens}
    body |= {"temperature": 0, "ignore_eos": True, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True}
    start = time.monotonic()
    try:
        with http.client(timeout, key) as client, client.stream("POST", f"{url}/v1/chat/completions", json=body) as got:
            if got.status_code != 200:
                got.read()
                return Reply(got.status_code, error=got.text[:300], seconds=time.monotonic() - start)
            reply = _streamed(got.iter_lines()) if stream else _whole(json.loads(got.read()))
    except httpx.TimeoutException:
        return Reply(0, error=f"no answer in {timeout:.0f} s", seconds=time.monotonic() - start)
    except (httpx.HTTPError, json.JSONDecodeError) as error:
        return Reply(0, error=f"{type(error).__name__}: {error}", seconds=time.monotonic() - start)
    return Reply(**{**asdict(reply), "seconds": time.monotonic() - start})


def _whole(body: Any) -> Reply:
    choice = next(iter(_choices(body)), {})
    return Reply(200, _text(choice.get("message")), choice.get("finish_reason"), completion_tokens(body), None)


def _choices(body: Any) -> list[dict[str, Any]]:
    """An answer may lack every key, and still come with status 200 (field report 005)."""
    found = body.get("choices") if isinstance(body, dict) else None
    return [choice for choice in found if isinstance(choice, dict)] if isinstance(found, list) else []


def _text(message: Any) -> str | None:
    found = message if isinstance(message, dict) else {}
    content = found.get("content")
    return found.get("reasoning_content") if content is None else content


def _streamed(lines: Iterable[str]) -> Reply:
    content: str | None = None
    finish: str | None = None
    tokens = 0
    for line in lines:
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return Reply(200, content, finish, tokens, True)
        event = json.loads(data)
        tokens = completion_tokens(event) or tokens
        for choice in _choices(event):
            piece = _text(choice.get("delta"))
            content = content if piece is None else (content or "") + piece
            finish = choice.get("finish_reason") or finish
    return Reply(200, content, finish, tokens, False)

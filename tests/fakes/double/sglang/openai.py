"""The OpenAI endpoints and the native /generate: bodies in the real engine's shapes (its openai/protocol.py)."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from .engine import Engine, Request, RequestError

_EOS = 2
_CHAT_LIMIT = 512


class Cut(Exception):  # noqa: N818 - scripted
    """The stream ends here, without its end."""


def error(status: int, message: str, kind: str = "") -> JSONResponse:
    """SGLang's error object."""
    return JSONResponse(_error(status, message, kind), status)


def _error(status: int, message: str, kind: str = "") -> dict[str, Any]:
    return {"object": "error", "message": message, "type": kind or str(status), "param": None, "code": status}


def _text(messages: list[dict[str, Any]]) -> str:
    """The conversation as one prompt; the parts of a list content that are not text are dropped."""
    lines = []
    for message in messages:
        content = message.get("content") or ""
        parts = content if isinstance(content, list) else [{"text": content}]
        lines += [part.get("text", "") for part in parts]
    return "\n".join(lines)


def _request(body: dict[str, Any], prompt: str, limit: int, params: dict[str, Any]) -> Request:
    rid = body.get("rid") or uuid.uuid4().hex
    return Request(
        rid=rid,
        prompt=prompt,
        max_tokens=int(limit),
        stream=bool(body.get("stream")),
        ignore_eos=bool(params.get("ignore_eos")),
        host=body.get("bootstrap_host"),
        port=body.get("bootstrap_port"),
        room=body.get("bootstrap_room"),
    )


async def _collect(engine: Engine, request: Request, http: HttpRequest) -> str:
    """The whole text; the request is aborted when its client hangs up."""

    async def gone() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass
        request.aborted.set()

    watch = asyncio.ensure_future(gone())
    try:
        return "".join([token async for token in engine.generate(request)])
    finally:
        watch.cancel()


def _usage(request: Request) -> dict[str, Any]:
    return {
        "prompt_tokens": request.prompt_tokens,
        "total_tokens": request.prompt_tokens + request.sent,
        "completion_tokens": request.sent,
        "prompt_tokens_details": None,
        "reasoning_tokens": 0,
        "completion_tokens_details": None,
    }


def _versions(request: Request) -> list[dict[str, Any]]:
    return [{"version": "default", "start": 0, "end": request.sent}]


def _sse(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


class OpenAI:
    """Both OpenAI endpoints: they differ in how a prompt is given and a choice is written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def chat(self, http: HttpRequest) -> Response:
        """POST /v1/chat/completions."""
        body = await http.json()
        if not isinstance(body.get("messages"), list):
            return error(400, "messages: field required", "Bad Request")
        limit = body.get("max_completion_tokens") or body.get("max_tokens") or _CHAT_LIMIT
        request = _request(body, _text(body["messages"]), limit, body)
        return await self._answer(http, request, body, chat=True)

    async def completions(self, http: HttpRequest) -> Response:
        """POST /v1/completions."""
        body = await http.json()
        prompt = body.get("prompt", "")
        text = prompt if isinstance(prompt, str) else "\n".join(map(str, prompt))
        request = _request(body, text, body.get("max_tokens") or 16, body)
        return await self._answer(http, request, body, chat=False)

    async def _answer(self, http: HttpRequest, request: Request, body: dict[str, Any], chat: bool) -> Response:
        faults = self._engine.faults.current()
        if faults.answer_status:
            return error(faults.answer_status, "scripted answer_status")
        model = str(body.get("model", self._engine.args.served_model_name))
        if request.stream:
            options = body.get("stream_options") or {}
            usage = bool(options.get("include_usage"))
            return StreamingResponse(self._stream(request, model, chat, usage), media_type="text/event-stream")
        try:
            text = await _collect(self._engine, request, http)
        except RequestError as problem:
            return error(problem.status, str(problem), "BadRequest" if problem.status == 400 else "")
        if request.finish == "error":
            choice = {"index": 0, "finish_reason": "error", "message": {"role": "assistant"}}
            return JSONResponse({"choices": [choice], "usage": {"completion_tokens": 0}})
        return JSONResponse(
            {
                **self._head(request, model, "chat.completion" if chat else "text_completion"),
                "choices": [_choice(request, text, chat)],
                "usage": _usage(request),
                "metadata": {"weight_version": "default", "weight_versions": _versions(request)},
            }
        )

    def _head(self, request: Request, model: str, kind: str) -> dict[str, Any]:
        return {"id": request.rid, "object": kind, "created": int(time.time()), "model": model}

    async def _stream(self, request: Request, model: str, chat: bool, usage: bool) -> AsyncIterator[bytes]:
        head = self._head(request, model, "chat.completion.chunk" if chat else "text_completion")
        cut_after = self._engine.faults.current().stream_cut_after

        def chunk(finish: str | None = None, **content: str) -> bytes:
            choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": finish}
            choice["matched_stop"] = _EOS if finish == "stop" else None
            delta = {"reasoning_content": None, **content}
            choice |= {"delta": delta} if chat else {"text": content.get("content", "")}
            return _sse({**head, "choices": [choice]})

        try:
            async for token in self._engine.generate(request):
                if chat and request.sent == 1:
                    yield chunk(role="assistant", content="")
                if request.sent - 1 == cut_after:
                    raise Cut(f"scripted stream_cut_after={cut_after}")
                yield chunk(content=token)
            yield chunk(finish=request.finish)
            if usage:
                yield _sse({**head, "choices": [], "usage": _usage(request)})
        except RequestError as problem:
            yield _sse({"error": _error(problem.status, str(problem), HTTPStatus(problem.status).name)})
        yield b"data: [DONE]\n\n"


def _choice(request: Request, text: str, chat: bool) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "reasoning_content": None}
    return {
        "index": 0,
        **({"message": message} if chat else {"text": text}),
        "logprobs": None,
        "finish_reason": request.finish,
        "matched_stop": _EOS if request.finish == "stop" else None,
    }


async def generate(engine: Engine, http: HttpRequest) -> Response:
    """POST /generate: `text` or `input_ids`, one prompt."""
    body = await http.json()
    if status := engine.faults.current().answer_status:
        return error(status, "scripted answer_status")
    params = body.get("sampling_params") or {}
    prompt = body.get("text") or " ".join(map(str, body.get("input_ids") or []))
    request = _request(body, prompt, params.get("max_new_tokens", 128), params)
    if body.get("stream"):
        return StreamingResponse(_generate_stream(engine, request), media_type="text/event-stream")
    try:
        text = await _collect(engine, request, http)
    except RequestError as problem:
        if problem.status == 400:
            return JSONResponse({"error": {"message": str(problem)}}, 400)
        return error(problem.status, str(problem))
    return JSONResponse(_native(request, text, request.finish, engine.mode == "prefill"))


def _native(request: Request, text: str, finish: str, prefill: bool) -> dict[str, Any]:
    reason: dict[str, Any] | None = {"type": finish} if finish else None
    if reason is not None:
        length = 0 if prefill else request.max_tokens
        reason |= {"stop": {"matched": _EOS}, "length": {"length": length}}.get(finish, {})
    return {
        "text": text,
        "output_ids": list(range(request.sent)),
        "meta_info": {
            "id": request.rid,
            "finish_reason": reason,
            "prompt_tokens": request.prompt_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "completion_tokens": request.sent,
            "reasoning_tokens": 0,
            "cached_tokens": 0,
            "cached_tokens_details": None,
            "dp_rank": None,
            "queue_time": 0.0,
            "weight_versions": _versions(request),
            "e2e_latency": time.monotonic() - request.began,
        },
    }


async def _generate_stream(engine: Engine, request: Request) -> AsyncIterator[bytes]:
    text, prefill = "", engine.mode == "prefill"
    cut_after = engine.faults.current().stream_cut_after
    try:
        async for token in engine.generate(request):
            if request.sent - 1 == cut_after:
                raise Cut(f"scripted stream_cut_after={cut_after}")
            text += token
            yield _sse(_native(request, text, "", prefill))
        yield _sse(_native(request, text, request.finish, prefill))
    except RequestError as problem:
        final = _native(request, text, "abort", prefill)
        final["meta_info"]["finish_reason"] |= {"message": str(problem), "status_code": problem.status}
        yield _sse(final)
    yield b"data: [DONE]\n\n"

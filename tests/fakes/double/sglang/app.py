"""The HTTP surface of an engine: health, reports and control (sglang-facts 2.1, 2.2, 2.6)."""

import asyncio
import functools
import json
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import reports
from .engine import Engine, Status
from .openai import OpenAI, error, generate

log = logging.getLogger("sglang")
_OPEN = ("/health", "/ready", "/metrics")
_ADMIN = ("/flush_cache", "/abort_request", "/pause_generation", "/continue_generation", "/freeze_gc")


def allowed(method: str, path: str, header: str, api_key: str | None, admin_key: str | None) -> bool:
    """The rules of sglang-facts 2.6. The admin key opens no normal endpoint, nor the api key an admin one."""
    if method == "OPTIONS" or path.startswith(_OPEN):
        return True
    key = (admin_key or api_key) if path in _ADMIN else api_key
    scheme, _, token = header.partition(" ")
    return not key or (scheme.lower() == "bearer" and secrets.compare_digest(token, key))


class Front:
    """What every request passes: authentication, and the HTTP metrics."""

    def __init__(self, app: ASGIApp, engine: Engine) -> None:
        self._app, self._engine = app, engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        args, metrics = self._engine.args, self._engine.metrics
        path, method, status = scope["path"], scope["method"], 499
        header = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        metrics.http_begin(path, method)
        try:
            if allowed(method, path, header, args.api_key, args.admin_api_key):
                await self._app(scope, receive, watched)
            else:
                await JSONResponse({"error": "Unauthorized"}, 401)(scope, receive, watched)
        finally:
            metrics.http_end(path, method, status)


async def ready(engine: Engine, _: Request) -> Response:
    """GET /ready: flags only."""
    return Response(status_code=200 if engine.is_ready() else 503)


async def ping(engine: Engine, _: Request) -> Response:
    """GET /ping: a paused engine is well."""
    return Response(status_code=200 if engine.is_healthy() else 503)


async def health(engine: Engine, request: Request) -> Response:
    """GET /health: a real token, looked for once a second; without one in 20 s the engine is unhealthy."""
    if engine.draining:
        log.info("Health check request received during shutdown. Returning 503.")
        return Response(status_code=503)
    if engine.status is Status.STARTING:
        return Response(status_code=503)
    off = os.environ.get("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION", "").lower() in ("false", "0", "no", "n")
    if off and request.url.path == "/health":
        return Response(status_code=200)
    await asyncio.sleep(engine.faults.current().slow_health_s)
    limit = engine.faults.current().health_timeout_s or float(os.environ.get("SGLANG_HEALTH_CHECK_TIMEOUT", "20"))
    began = time.monotonic()
    probe = asyncio.ensure_future(engine.probe())
    try:
        while time.monotonic() < began + limit:
            await asyncio.sleep(engine.faults.current().health_poll_s)
            if engine.last_output > began:
                engine.status = Status.UP
                return Response(status_code=200)
    finally:
        probe.cancel()
    log.error("Health check failed. Server couldn't get a response from detokenizer for last %d seconds.", limit)
    engine.status = Status.UNHEALTHY
    return Response(status_code=503)


async def server_info(engine: Engine, _: Request) -> Response:
    """GET /server_info: hangs with the scheduler, which it asks."""
    await engine.ask_scheduler()
    return JSONResponse(reports.server_info(engine))


async def model_info(engine: Engine, _: Request) -> Response:
    """GET /model_info."""
    return JSONResponse(reports.model_info(engine))


async def models(engine: Engine, _: Request) -> Response:
    """GET /v1/models."""
    return JSONResponse(reports.models(engine))


async def loads(engine: Engine, request: Request) -> Response:
    """GET /v1/loads?include=...: shared memory, so it answers whatever the scheduler does."""
    try:
        return JSONResponse(reports.loads(engine, request.query_params.get("include")))
    except ValueError as problem:
        return error(400, str(problem))


async def metrics(engine: Engine, _: Request) -> Response:
    """GET /metrics, with --enable-metrics only."""
    body = engine.metrics.text(engine.loads())
    return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")


async def flush_cache(engine: Engine, _: Request) -> Response:
    """400 unless idle."""
    if engine.requests:
        return PlainTextResponse("Flush cache failed.\n", 400)
    return PlainTextResponse("Cache flushed.\nPlease check backend logs for more details. ")


async def abort_request(engine: Engine, request: Request) -> Response:
    """{rid} or {abort_all}."""
    body = await request.json()
    engine.abort(body.get("rid", ""), everything=bool(body.get("abort_all")))
    return Response(status_code=200)


async def pause_generation(engine: Engine, request: Request) -> Response:
    """{mode: abort | retract | in_place}; the first two modes differ in what becomes of running requests."""
    mode = json.loads(await request.body() or b"{}").get("mode", "abort")
    engine.running.clear()
    if mode == "abort":
        engine.abort(everything=True)
    return JSONResponse({"message": "Generation paused successfully.", "status": "ok"})


async def continue_generation(engine: Engine, _: Request) -> Response:
    """Undo a pause."""
    engine.running.set()
    return JSONResponse({"message": "Generation continued successfully.", "status": "ok"})


async def freeze_gc(_: Engine, __: Request) -> Response:
    """The warm-up's last call."""
    return Response(status_code=200)


Handler = Callable[[Engine, Request], Awaitable[Response]]
_ROUTES: list[tuple[str, Handler, tuple[str, ...]]] = [
    ("/ready", ready, ("GET",)),
    ("/health", health, ("GET",)),
    ("/health_generate", health, ("GET",)),
    ("/ping", ping, ("GET",)),
    ("/server_info", server_info, ("GET",)),
    ("/get_server_info", server_info, ("GET",)),
    ("/model_info", model_info, ("GET",)),
    ("/get_model_info", model_info, ("GET",)),
    ("/v1/models", models, ("GET",)),
    ("/v1/loads", loads, ("GET",)),
    ("/generate", generate, ("POST", "PUT")),
    ("/flush_cache", flush_cache, ("GET", "POST")),
    ("/abort_request", abort_request, ("POST",)),
    ("/pause_generation", pause_generation, ("POST",)),
    ("/continue_generation", continue_generation, ("POST",)),
    ("/freeze_gc", freeze_gc, ("GET", "POST")),
]


def application(engine: Engine) -> ASGIApp:
    """The ASGI application of an engine."""
    openai = OpenAI(engine)
    routes = [Route(path, functools.partial(call, engine), methods=methods) for path, call, methods in _ROUTES]
    routes += [
        Route("/v1/chat/completions", openai.chat, methods=["POST"]),
        Route("/v1/completions", openai.completions, methods=["POST"]),
    ]
    if engine.args.enable_metrics:
        routes.append(Route("/metrics", functools.partial(metrics, engine)))
    return Front(Starlette(routes=routes), engine)

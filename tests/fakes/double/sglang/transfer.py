"""The wire between the two roles (sglang-facts 6.1, 6.2): bootstrap server, handshake, transfer, heartbeat.

The handshake and the KV go over one TCP connection a request, to the rank address that /route gives:
`{"room": N}` there, `{"room": N}` or `{"room": N, "error": text}` back. A refused or lost connection is not an
error, because the real one (ZMQ, then NIXL) does not notice either: the decode then waits for its heartbeat to
fail, or for SGLANG_DISAGGREGATION_WAITING_TIMEOUT.
"""

import asyncio
import http.client
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .engine import Engine, Request, RequestError, Stage

log = logging.getLogger("sglang")
_ENSURE_ATTEMPTS = 15
_ENSURE_RETRY_S = 1.0
_REGISTER_ATTEMPTS = 5


def setting(name: str, default: float) -> float:
    """A numeric SGLang variable; a bad value means the default, as there (sglang-facts 4.1)."""
    try:
        return float(os.environ.get(name, default))
    except ValueError:
        log.warning("Invalid value for %s, using default %r", name, default)
        return default


def _http(address: str, method: str, path: str, body: dict[str, Any] | None, timeout_s: float) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


@dataclass
class PrefillPeer:
    """Prefill's half: waits for the decode's handshake of a room, and answers it when the KV is there."""

    engine: Engine
    on_handshake: Callable[[], None] = lambda: None
    """Called at each handshake, before anything is answered."""
    _rooms: dict[int, asyncio.Future[asyncio.StreamWriter]] = field(default_factory=dict)
    _writers: dict[str, asyncio.StreamWriter] = field(default_factory=dict)
    """Request id -> its decode's connection, from the handshake to the transfer."""
    _server: asyncio.Server | None = None
    _dead: bool = False

    async def listen(self) -> tuple[str, int]:
        """Open the rank port; the address that goes into /route."""
        host = os.environ.get("SGLANG_HOST_IP") or os.environ.get("HOST_IP") or "127.0.0.1"
        self._server = await asyncio.start_server(self._connected, host, 0)
        return host, self._server.sockets[0].getsockname()[1]

    async def register(self, port: int, rank: tuple[str, int]) -> None:
        """PUT every rank's row to /route: 5 attempts, then an error in the journal and nothing else."""
        args = self.engine.args
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(args.host, args.host)
        for tp_rank in range(args.tp_size):
            row = {
                "attn_tp_size": args.tp_size, "attn_tp_rank": tp_rank, "attn_cp_size": 1, "attn_cp_rank": 0,
                "attn_dp_size": 1, "attn_dp_rank": 0, "pp_size": 1, "pp_rank": 0,
                "system_dp_size": 1, "system_dp_rank": 0, "rank_ip": rank[0], "rank_port": rank[1],
                "page_size": args.page_size or 1, "kv_cache_dtype": args.kv_cache_dtype, "kv_layout": None,
                "load_balance_method": "follow_bootstrap_room", "prefill_http_port": args.port,
                "decode_allocation_policy": args.disaggregation_decode_allocation_policy,
            }  # fmt: skip
            await self._register(f"{host}:{port}", row)

    async def _register(self, address: str, row: dict[str, Any]) -> None:
        for attempt in range(1, _REGISTER_ATTEMPTS + 1):
            try:
                status, _ = await asyncio.to_thread(_http, address, "PUT", "/route", row, 5)
                if status == 200:
                    return
                problem = f"status {status}"
            except OSError as error:
                problem = str(error)
            log.warning("Prefill register attempt %d/%d failed: %s", attempt, _REGISTER_ATTEMPTS, problem)
            await asyncio.sleep(min(2.0 ** (attempt - 1), 30.0))
        log.error("Prefill instance failed to register to bootstrap server after %d retries", _REGISTER_ATTEMPTS)

    def _room(self, room: int) -> asyncio.Future[asyncio.StreamWriter]:
        return self._rooms.setdefault(room, asyncio.get_running_loop().create_future())

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if line and not self._is_dead():
            room = int(json.loads(line)["room"])
            self.on_handshake()
            arrived = self._room(room)
            if not arrived.done():
                arrived.set_result(writer)
            await reader.read()
            if self._rooms.get(room) is arrived and arrived.result() is writer:
                del self._rooms[room]
        else:
            await reader.read()
        writer.close()

    def _is_dead(self) -> bool:
        """lab-facts, faults: the thread dies with a traceback at the peer set-up, and nothing else shows it."""
        wanted = self.engine.faults.current().bootstrap_thread_dead
        if wanted and not self._dead:
            log.error(
                "Exception in thread Thread-5 (bootstrap_thread):\nTraceback (most recent call last):\n"
                '  File "sglang/srt/disaggregation/nixl/conn.py", line 2301, in bootstrap_thread\n'
                "nixl._bindings.nixlBackendError: NIXL_ERR_BACKEND"
            )
        self._dead = wanted
        return wanted

    async def before(self, request: Request) -> None:
        """Until the decode has shaken hands. Raises RequestError(500) after the bootstrap timeout."""
        request.stage = Stage.BOOTSTRAP
        limit = setting("SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT", 300)
        room = request.room or 0
        try:
            self._writers[request.rid] = await asyncio.wait_for(self._room(room), limit)
        except TimeoutError:
            self.engine.metrics.bootstrap_failed()
            reason = f"timed out after {limit:.1f}s in KVPoll.Bootstrapping"
            raise _failed("Prefill bootstrap", request, reason) from None
        finally:
            self._rooms.pop(room, None)

    async def after(self, request: Request) -> None:
        """Hand the KV over. Raises RequestError(500) when the decode has gone."""
        request.stage = Stage.INFLIGHT
        faults, began = self.engine.faults.current(), time.monotonic()
        writer = self._writers.pop(request.rid)
        await asyncio.sleep(faults.transfer_seconds)
        error = "scripted transfer_error" if faults.transfer_error else ""
        if not writer.is_closing():
            writer.write(json.dumps({"room": request.room} | ({"error": error} if error else {})).encode() + b"\n")
        elif not error:
            error = "the decode instance closed the connection"
        if error:
            self.engine.metrics.transfer_failed()
            raise _failed("Prefill transfer", request, error)
        self.engine.metrics.transferred(time.monotonic() - began)


@dataclass
class DecodePeer:
    """Decode's half: finds the prefill, waits for the KV, and watches the prefill's heartbeat."""

    engine: Engine
    _routes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Bootstrap address -> cached rank address; kept until a heartbeat or a waiting timeout drops it."""
    _lost: dict[str, asyncio.Event] = field(default_factory=dict)
    _misses: dict[str, int] = field(default_factory=dict)

    async def before(self, request: Request) -> None:
        """Until the KV has come. Raises RequestError(500): no route, a lost prefill, or the waiting timeout."""
        request.stage = Stage.PREALLOC
        address = f"{request.host}:{request.port or 8998}"
        route = await self._ensure(address, request)
        request.stage = Stage.TRANSFER
        limit = setting("SGLANG_DISAGGREGATION_WAITING_TIMEOUT", 300)
        lost = self._lost.setdefault(address, asyncio.Event())
        came = asyncio.ensure_future(self._receive(route, request))
        gone = asyncio.ensure_future(lost.wait())
        try:
            done, _ = await asyncio.wait({came, gone}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        finally:
            came.cancel()
            gone.cancel()
        if came in done and "error" not in came.result():
            return
        self.engine.metrics.transfer_failed()
        if came in done:
            raise _failed("Decode transfer", request, came.result()["error"])
        if gone in done:
            raise _failed("Decode transfer", request, _lost_text(address))
        self._routes.pop(address, None)
        raise _failed("Decode transfer", request, f"timed out after {limit:.1f}s in KVPoll.WaitingForInput")

    async def after(self, request: Request) -> None:
        """Decode owes its peer nothing."""

    async def _ensure(self, address: str, request: Request) -> dict[str, Any]:
        """The prefill's rank address, from the cache or from /route, 15 attempts 1 s apart."""
        for _ in range(_ENSURE_ATTEMPTS):
            if address in self._routes:
                return self._routes[address]
            if await self._fetch(address):
                continue
            await asyncio.sleep(_ENSURE_RETRY_S)
        text = f"Could not fetch prefill parallel info from {address} after {_ENSURE_ATTEMPTS} attempts"
        log.error(text)
        self.engine.metrics.bootstrap_failed()
        raise _failed("Decode handshake", request, text)

    async def _fetch(self, address: str) -> bool:
        query = "/route?prefill_dp_rank={0}&prefill_cp_rank={0}&target_tp_rank={0}&target_pp_rank={0}"
        try:
            status, text = await asyncio.to_thread(_http, address, "GET", query.format(-1), None, 5)
            if status != 200:
                log.error("Failed to get prefill server info: %s, %s", status, text)
                return False
            self._check(json.loads(text))
            status, text = await asyncio.to_thread(_http, address, "GET", query.format(0), None, 5)
        except OSError as error:
            log.error("Error fetching prefill server info from bootstrap: %s", error)
            return False
        self._routes[address] = json.loads(text)
        return True

    def _check(self, info: dict[str, Any]) -> None:
        """The real scheduler raises, which ends the engine (sglang-facts 6.1)."""
        ours = {"page_size": self.engine.args.page_size or 1, "kv_cache_dtype": self.engine.args.kv_cache_dtype}
        for name, value in ours.items():
            if info[name] != value:
                self.engine.children.crash(
                    f"{name} mismatch: prefill server has {name}={info[name]}, but decode server has {name}={value}."
                )

    async def _receive(self, route: dict[str, Any], request: Request) -> dict[str, Any]:
        """The prefill's answer; never returns when there is none."""
        writer = None
        try:
            reader, writer = await asyncio.open_connection(route["rank_ip"], route["rank_port"])
            writer.write(json.dumps({"room": request.room}).encode() + b"\n")
            line = await reader.readline()
            if line:
                return dict(json.loads(line))
        except OSError as error:
            log.debug("room %s: %s", request.room, error)
        finally:
            if writer:
                writer.close()
        await asyncio.Event().wait()
        raise AssertionError("waits for ever")

    async def heartbeat(self) -> None:
        """GET /health of every known prefill; two misses in a row drop it and fail its rooms."""
        while True:
            await asyncio.sleep(max(setting("SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL", 5.0), 2.0))
            for address in list(self._routes):
                try:
                    status, _ = await asyncio.to_thread(_http, address, "GET", "/health", None, 3)
                except OSError:
                    status = 0
                self._misses[address] = 0 if status == 200 else self._misses.get(address, 0) + 1
                if status != 200:
                    log.info("Attempting to reconnect to %s...", address)
                if self._misses[address] >= max(setting("SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE", 2), 1):
                    self._drop(address)

    def _drop(self, address: str) -> None:
        self._routes.pop(address, None)
        self._misses.pop(address, None)
        self._lost.pop(address, asyncio.Event()).set()
        log.error(_lost_text(address))


def _lost_text(address: str) -> str:
    return f"Lost connection with prefill instance (bootstrap_addr: {address})"


def _failed(what: str, request: Request, reason: str) -> RequestError:
    """Logged as the real one logs it, and the 500 that the client gets."""
    text = (
        f"{what} failed for request rank=0 req.rid={request.rid!r} req.bootstrap_room={request.room} "
        f"with exception KVTransferError(bootstrap_room={request.room}): {reason}"
    )
    log.error(text)
    return RequestError(500, text)

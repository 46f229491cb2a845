"""The bootstrap server of a prefill (sglang-facts 6.1): rank registry and the heartbeat's /health. No auth."""

import contextlib
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .faults import FaultSource

log = logging.getLogger("sglang")
_IDS = ("prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank")


class Server(uvicorn.Server):  # type: ignore[misc]  # untyped base
    """uvicorn without its signal handlers: an engine's signals are the engine's (sglang-facts 2.5)."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture nothing."""
        yield


@dataclass
class Bootstrap:
    """The registry; `ranks[tp]` is where a rank listens."""

    faults: FaultSource
    info: dict[str, Any] = field(default_factory=dict)
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)

    async def serve(self, host: str, port: int) -> None:
        """Serve until cancelled. A port in use is only logged, as there."""
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            log.error(
                "Server error: [Errno %s] error while attempting to bind on address %s", error.errno, (host, port)
            )
            listener.close()
            return
        app = Starlette(
            routes=[
                Route("/health", self._health),
                Route("/route", self._get, methods=["GET"]),
                Route("/route", self._put, methods=["PUT"]),
                Route("/register_dp_rank", self._health, methods=["POST"]),
                Route("/query_dp_ranks", self._query, methods=["POST"]),
            ]
        )
        log.info("CommonKVBootstrapServer started successfully on %s:%s", host, port)
        await Server(uvicorn.Config(app, log_config=None, access_log=False)).serve(sockets=[listener])

    async def _health(self, _: Request) -> Response:
        return PlainTextResponse("OK")

    async def _query(self, request: Request) -> Response:
        rooms = (await request.json())["bootstrap_rooms"]
        return JSONResponse({str(room): 0 for room in rooms})

    async def _put(self, request: Request) -> Response:
        row = await request.json()
        self.ranks[row["attn_tp_rank"]] = {"rank_ip": row["rank_ip"], "rank_port": int(row["rank_port"])}
        self.info = {
            "attn_tp_size": row["attn_tp_size"],
            "attn_cp_size": row["attn_cp_size"],
            "dp_size": row["attn_dp_size"],
            "pp_size": row["pp_size"],
            "page_size": row["page_size"],
            "kv_cache_dtype": row["kv_cache_dtype"],
            "follow_bootstrap_room": True,
            "enable_dsa_cache_layer_split": False,
            "decode_allocation_policy": "early",
            "enable_kv_cache_sharding": False,
            "prefill_http_port": row["prefill_http_port"],
            "target_tp_rank": None,
            "target_tp_ranks": None,
            "target_cp_ranks": None,
            "target_pp_ranks": None,
            "required_dst_info_num": None,
            "required_prefill_response_num": None,
        }
        return PlainTextResponse("OK")

    async def _get(self, request: Request) -> Response:
        """All four ids -1: the topology, or 503; ids of a rank: its address, or 404."""
        ids = [request.query_params.get(name) for name in _IDS]
        if not all(ids):
            return PlainTextResponse("Missing inputs for bootstrap server.", 400)
        if not self.info or len(self.ranks) < self.info["attn_tp_size"] or self.faults.current().route_503:
            text = f"Prefill server not fully registered yet ({len(self.ranks)} workers registered)."
            return PlainTextResponse(text, 503)
        dp, cp, tp, pp = (int(i or 0) for i in ids)
        if (dp, cp, tp, pp) == (-1, -1, -1, -1):
            return JSONResponse(self.info)
        if tp not in self.ranks:
            text = f"Bootstrap info not found for dp_rank={dp} cp_rank={cp} tp_rank={tp} pp_rank={pp}"
            return PlainTextResponse(text, 404)
        return JSONResponse(self.ranks[tp])

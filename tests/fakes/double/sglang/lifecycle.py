"""From start to exit (sglang-facts 2.2, 2.4, 2.5): phases, warm-up, drain, scripted death."""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Coroutine

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from .app import application
from .bootstrap import Bootstrap, Server
from .engine import FAKE_HOST, Engine, Request, Status
from .faults import FaultError, Faults, FaultSource
from .metrics import Metrics
from .processes import Children
from .ranks import Load, configure_logging
from .transfer import DecodePeer, PrefillPeer, setting

log = logging.getLogger("sglang")
_TICK_S = 0.05


class Lifecycle:
    """One engine process, from its arguments to its exit code."""

    def __init__(self, args: argparse.Namespace, faults: FaultSource) -> None:
        children = Children(on_exit=self._child_ended)
        self._engine = Engine(args, faults, children, Metrics(args))
        self._faults, self._args, self._children = faults, args, children
        self._phases: dict[str, float] = {}
        self._server: Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._dying = False
        self._death = faults.current().die_at
        self._death_told = 0.0

    async def run(self) -> int:
        """The exit code of a drained engine; every other end kills the process."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGQUIT, self._sigquit)
        log.info("server_args=%s", vars(self._args))
        script = self._faults.current()
        load = Load(script.load_seconds, script.load_lines_every_s, script.never_ready == "load", script.compile_seconds)
        self._children.start(self._args.tp_size, load)
        self._spawn(self._watch_faults())
        prefill = await self._start_peer()
        self._enter("load")
        began = time.monotonic()
        await self._children.wait_ready()
        self._engine.metrics.started(time.monotonic() - began)
        log.info(
            "max_total_num_tokens=%d, chunked_prefill_size=%s, max_running_requests=%d, context_len=8192",
            *(self._args.max_total_tokens, self._args.chunked_prefill_size, self._args.max_running_requests),
        )
        if prefill:
            await prefill.register(self._args.disaggregation_bootstrap_port, await prefill.listen())
        self._spawn(self._warm_up())
        await self._serve()
        self._children.kill()
        return 0

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    def _enter(self, phase: str) -> None:
        self._phases.setdefault(phase, time.monotonic())

    async def _start_peer(self) -> PrefillPeer | None:
        """The bootstrap server before the load, as there; or the decode's heartbeat."""
        engine = self._engine
        if engine.mode == "decode":
            engine.peer = decode = DecodePeer(engine)
            self._spawn(decode.heartbeat())
        if engine.mode != "prefill":
            return None
        engine.peer = prefill = PrefillPeer(engine, on_handshake=lambda: self._enter("handshake"))
        port = self._args.disaggregation_bootstrap_port
        self._spawn(Bootstrap(self._faults).serve(self._args.host, port))
        self._enter("bootstrap")
        return prefill

    async def _serve(self) -> None:
        """uvicorn, until the drain stops it. A port in use is uvicorn's exit 3, after the load, as there."""
        texts = {"default": "%(message)s", "access": '%(client_addr)s - "%(request_line)s" %(status_code)s'}
        for name, text in texts.items():
            LOGGING_CONFIG["formatters"][name]["fmt"] = f"[%(asctime)s] %(levelprefix)s {text}"
            LOGGING_CONFIG["formatters"][name]["datefmt"] = "%Y-%m-%d %H:%M:%S"
        config = uvicorn.Config(
            application(self._engine),
            host=self._args.host,
            port=self._faults.current().listen_port or self._args.port,
            timeout_keep_alive=int(setting("SGLANG_TIMEOUT_KEEP_ALIVE", 5)),
        )
        self._server = Server(config)
        await self._server.serve()

    async def _warm_up(self) -> None:
        """The PD warm-up: 8 tokens served locally; then the engine is up."""
        while self._server is None or not self._server.started:
            await asyncio.sleep(_TICK_S)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._sigterm)
        self._enter("warmup")
        if not self._args.skip_server_warmup:
            log.info("Start of pd disaggregation warmup ...")
            await asyncio.sleep(self._faults.current().warmup_seconds)
            while self._faults.current().never_ready == "warmup":
                await asyncio.sleep(_TICK_S)
            warm = Request("warmup", "10 11 12 13", 8, ignore_eos=True, host=FAKE_HOST, room=0)
            async for _ in self._engine.generate(warm):
                pass
            log.info("End of disaggregation warmup")
        self._engine.status = Status.UP
        self._enter("ready")
        log.info("The server is fired up and ready to roll!")

    async def _watch_faults(self) -> None:
        """Carry a changed script to where it acts: the scheduler, and death."""
        hanging = False
        while True:
            try:
                script = self._faults.current()
            except FaultError as error:
                log.error("%s", error)
                self._exit(2)
            if script.hang_scheduler != hanging:
                hanging = script.hang_scheduler
                self._children.hang(hanging)
            self._die_if_due(script)
            await asyncio.sleep(_TICK_S)

    def _die_if_due(self, script: Faults) -> None:
        death = script.die_at
        if death != self._death:
            self._death, self._death_told = death, time.monotonic()
        began = self._phases.get(death.phase) if death else None
        if death is None or began is None or self._dying or time.monotonic() < began + death.after_s:
            return
        over = death.phase == "handshake" or (death.phase != "ready" and self._engine.status is Status.UP)
        if over and began < self._death_told:  # it was told after that phase: meant for the next process
            return
        self._dying = True
        if death.exit is None and death.signal == "SIGKILL":
            self._children.crash(death.message)
            return
        log.error(
            'Traceback (most recent call last):\n  File "sglang/srt/double.py", line 1, in load\n%s', death.message
        )
        if death.exit is not None:
            self._exit(death.exit)
        os.kill(os.getpid(), signal.Signals[death.signal])

    def _child_ended(self, name: str, pid: int, code: int | None) -> None:
        """SGLang's subprocess watchdog; while loading, its parent gives up with an exception instead."""
        if code == 0 or self._dying:
            return
        if not self._server:
            log.error(
                "Traceback (most recent call last):\nRuntimeError: Rank 0 scheduler died during initialization "
                "(exit code: %s). If exit code is -9 (SIGKILL), a common cause is the OS OOM killer.", code,
            )  # fmt: skip
            self._exit(1)
        log.error("Subprocess %s (pid=%d) crashed with exit code %s. Triggering SIGQUIT...", name, pid, code)
        os.kill(os.getpid(), signal.SIGQUIT)

    def _sigquit(self) -> None:
        """A child failed: kill the tree, this process last (systemd sees 9/KILL)."""
        log.error("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self._children.kill()
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def _sigterm(self) -> None:
        if self._faults.current().ignore_sigterm or self._engine.draining:
            return
        log.warning("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self._engine.draining = True
        self._spawn(self._drain())

    async def _drain(self) -> None:
        """No upper bound, and new requests are still admitted (sglang-facts 2.5)."""
        while True:
            await asyncio.sleep(self._faults.current().drain_poll_s)
            if self._engine.status is Status.UNHEALTHY:
                log.error("Signal SIGTERM received while health check failed. Force exiting.")
                break
            if os.environ.get("SGL_FORCE_SHUTDOWN", "").lower() in ("true", "1"):
                log.error("Signal SIGTERM received while force shutdown flag set. Force exiting.")
                break
            rids = list(self._engine.requests)
            log.info("Gracefully exiting... Remaining number of requests %d. Remaining requests %s.", len(rids), rids)
            if not rids:
                break
        await asyncio.sleep(self._faults.current().stop_seconds)
        assert self._server is not None
        self._children.kill()
        self._server.should_exit = True
        self._server.force_exit = True

    def _exit(self, code: int) -> None:
        self._children.kill()
        sys.stderr.flush()
        os._exit(code)


def main(args: argparse.Namespace, faults: FaultSource) -> int:
    """Run the engine; its exit code."""
    configure_logging()
    return asyncio.run(Lifecycle(args, faults).run())

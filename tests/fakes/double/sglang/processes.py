"""The engine's hold on its children: one scheduler per TP rank and the detokenizer (sglang-facts 2.4, 2.5, 2.7).

They are spawned as SGLang spawns them, take its process titles (which overwrite /proc/PID/environ unless SPT_NOENV
is set), and die with their parent.
"""

import asyncio
import logging
import multiprocessing
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from .ranks import Load, child

log = logging.getLogger("sglang")


@dataclass
class Children:
    """The parent's hold on its children: tokens in, commands out."""

    on_exit: Callable[[str, int, int | None], None]
    """Called with name, pid and exit code when a child ends by itself."""
    timestamp: float = 0.0
    """The load snapshot's, in seconds since the epoch; stale when rank 0 hangs."""
    processes: list[tuple[str, BaseProcess]] = field(default_factory=list)
    _conns: list[Connection] = field(default_factory=list)
    _ready: list[asyncio.Event] = field(default_factory=list)
    _tokens: dict[str, asyncio.Queue[None]] = field(default_factory=dict)

    def start(self, tp_size: int, load: Load) -> None:
        """Spawn the ranks and the detokenizer."""
        for rank in range(tp_size):
            suffix = f" TP{rank}" if tp_size > 1 else ""
            title = f"sglang::scheduler{suffix.replace(' ', '_')}"
            self._spawn(f"scheduler_{rank}", title, suffix, load, answers=rank == 0)
        self._spawn("detokenizer", "sglang::detokenizer", "", None, answers=False)

    def _spawn(self, name: str, title: str, prefix: str, load: Load | None, answers: bool) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=child, args=(title, prefix, theirs, load, answers), daemon=True)
        process.start()
        theirs.close()
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), self._drain, ours, ready)
        loop.add_reader(process.sentinel, self._ended, name, process)
        self.processes.append((name, process))
        self._conns.append(ours)
        if load is not None:
            self._ready.append(ready)

    def _ended(self, name: str, process: BaseProcess) -> None:
        asyncio.get_running_loop().remove_reader(process.sentinel)
        process.join()
        self.on_exit(name, process.pid or 0, process.exitcode)

    def _drain(self, conn: Connection, ready: asyncio.Event) -> None:
        try:
            while conn.poll():
                self._message(conn.recv(), ready)
        except (EOFError, ConnectionResetError):
            asyncio.get_running_loop().remove_reader(conn.fileno())

    def _message(self, message: tuple[Any, ...], ready: asyncio.Event) -> None:
        match message:
            case ("ready", timestamp) | ("beat", timestamp):
                self.timestamp = timestamp
                ready.set()
            case ("token", rid) if rid in self._tokens:
                self._tokens[rid].put_nowait(None)

    async def wait_ready(self) -> None:
        """Until every rank has loaded."""
        await asyncio.gather(*(ready.wait() for ready in self._ready))

    async def tokens(self, rid: str, count: int, pace_s: float) -> AsyncGenerator[int, None]:
        """The indices 0..count-1, each when rank 0 has emitted it."""
        queue = self._tokens[rid] = asyncio.Queue()
        self._tell(("job", rid, count, pace_s))
        try:
            for index in range(count):
                await queue.get()
                yield index
        finally:
            del self._tokens[rid]
            self._tell(("abort", rid))

    def hang(self, hanging: bool) -> None:
        """Rank 0 stops answering, or answers again."""
        self._tell(("hang", hanging))

    def crash(self, message: str) -> None:
        """Rank 0 raises: the real engine's way to die."""
        self._tell(("die", message))

    def _tell(self, message: tuple[Any, ...]) -> None:
        try:
            self._conns[0].send(message)
        except BrokenPipeError:
            log.warning("scheduler_0 is gone, not told: %s", message[0])

    def kill(self) -> None:
        """End all of them, expected: no crash is reported."""
        self.on_exit = lambda *_: None
        for _, process in self.processes:
            process.kill()

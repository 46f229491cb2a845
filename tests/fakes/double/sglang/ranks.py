"""A child of the engine: a scheduler rank or the detokenizer. Imports little, because each child starts anew.

Rank 0 is the source of every token, so a scheduler that is killed, stopped or told to hang takes the engine down in
the way the real one does (sglang-facts 2.4, 2.5, 2.7).
"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

log = logging.getLogger("sglang")
_BEAT_S = 0.2
_PR_SET_PDEATHSIG = 1


def configure_logging(prefix: str = "") -> None:
    """SGLang's own line format; the journal then looks alike."""
    logging.basicConfig(
        level="INFO", format=f"[%(asctime)s{prefix}] %(message)s", datefmt="%Y-%m-%d %H:%M:%S", force=True
    )


@dataclass(frozen=True)
class Load:
    """How a rank loads its weights: seconds, seconds between progress lines (0: silent), and seconds of compiling before it."""

    seconds: float
    line_every_s: float
    forever: bool
    compile_s: float = 0.0


@dataclass
class Scheduler:
    """The loop of one rank. It owns no policy: the parent says what to emit, and when to hang or die."""

    conn: Connection
    load: Load
    answers: bool
    hanging: bool = False
    jobs: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    """rid -> tokens left, seconds per token, when the next is due (monotonic)."""

    def run(self) -> None:
        """Load, report ready, then serve until the parent goes away."""
        self._load()
        self.conn.send(("ready", time.time()))
        while True:
            due = [when for _, _, when in self.jobs.values()] if not self.hanging else []
            wait = min([_BEAT_S, *(when - time.monotonic() for when in due)]) if self.answers else None
            self._receive(None if wait is None else max(wait, 0.0))
            if not self.hanging:
                self._emit()

    def _load(self) -> None:
        if self.answers and self.load.compile_s:
            _compile(self.load.compile_s)
        began = time.monotonic()
        log.info("Load weight begin. avail mem=94.50 GB")
        while (elapsed := time.monotonic() - began) < self.load.seconds or self.load.forever:
            left = 60.0 if self.load.forever else self.load.seconds - elapsed
            self._receive(min(left, self.load.line_every_s or left))
            if self.load.line_every_s:
                share = 0.0 if self.load.forever else min(elapsed / self.load.seconds, 1.0)
                log.info("Loading safetensors checkpoint shards: %3.0f%% Completed", share * 100)
        log.info(
            "Load weight end. elapsed=%.2f s, type=LlamaForCausalLM, avail mem=94.20 GB, mem usage=0.30 GB.",
            time.monotonic() - began,
        )

    def _receive(self, timeout: float | None) -> None:
        if not self.conn.poll(timeout):
            return
        match self.conn.recv():
            case ("die", message):
                raise RuntimeError(message)
            case ("hang", hanging):
                self.hanging = hanging
            case ("job", rid, tokens, pace):
                self.jobs[rid] = (tokens, pace, time.monotonic() + pace)
            case ("abort", rid):
                self.jobs.pop(rid, None)

    def _emit(self) -> None:
        """Send what is due: tokens, and the load snapshot's timestamp."""
        now = time.monotonic()
        for rid, (left, pace, when) in list(self.jobs.items()):
            if when > now:
                continue
            self.conn.send(("token", rid))
            if left <= 1:
                del self.jobs[rid]
            else:
                self.jobs[rid] = (left - 1, pace, when + pace)
        if self.answers:
            self.conn.send(("beat", time.time()))


def _compile(seconds: float) -> None:
    """A child with a compiler's name that works a little, all the time."""
    code = f"import time\nend = time.monotonic() + {seconds}\nwhile time.monotonic() < end: sum(range(100_000)); time.sleep(0.05)"
    subprocess.run(["cicc", "-S", "-c", code], executable=sys.executable, check=True)


def child(title: str, prefix: str, conn: Connection, load: Load | None, answers: bool) -> None:
    """The entry of every child; an exception ends it the way SGLang's schedulers end (SIGQUIT to the parent)."""
    # Imported here: only the children have a title, and the parent's environment must stay readable.
    import setproctitle  # noqa: PLC0415  in the child only

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    setproctitle.setproctitle(title)
    configure_logging(prefix)
    try:
        if load is None:
            conn.recv()
        else:
            Scheduler(conn, load, answers).run()
    except EOFError:
        return
    except RuntimeError:
        log.exception("Scheduler hit an exception:")
        os.kill(parent, signal.SIGQUIT)

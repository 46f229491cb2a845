"""What a test asks the double to do wrong: `PD_DOUBLE` (JSON) and `PD_DOUBLE_FILE` (a JSON file that may change).

The file wins over the variable, key by key. It is read again whenever it changes, so write it with a rename. Under
the units' environment it is `/run/pd-double/$PD_INSTANCE.json` unless the variable names another.
An unknown key or a wrong type is refused: a misspelt fault that does nothing would make a test pass for no reason.
"""

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

PHASES = ("load", "bootstrap", "warmup", "ready", "handshake")
LOADS = (
    "num_running_reqs",
    "num_waiting_reqs",
    "num_used_tokens",
    "token_usage",
    "gen_throughput",
    "prefill_bootstrap_queue_reqs",
    "prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
)


class FaultError(ValueError):
    """The script is not one this double knows; the message names source, key, value and what is allowed."""


@dataclass(frozen=True)
class Death:
    """Die `after_s` seconds into a phase: by exit code, or by a signal (the real engine SIGKILLs itself)."""

    phase: str
    after_s: float = 0.0
    exit: int | None = None
    signal: str = "SIGKILL"
    message: str = "RuntimeError: scripted death"


@dataclass(frozen=True)
class Faults:
    """The script, all defaults meaning a healthy engine. Times in seconds."""

    load_seconds: float = 0.0
    load_lines_every_s: float = 0.0
    """0: the load is silent, as a big model's can be."""
    compile_seconds: float = 0.0
    """A compiler runs below rank 0 for that long before the load, and nothing is printed: a cold JIT cache."""
    warmup_seconds: float = 0.0
    never_ready: str = ""
    """`load`: the port never opens; `warmup`: it answers 503 for ever."""
    die_at: Death | None = None
    """`handshake` counts from the first decode that connects, the others from the phase's start."""
    listen_port: int = 0
    """Listen on this API port whatever the configuration says; 0: obey."""
    bootstrap_thread_dead: bool = False
    """Prefill's first handshake kills its bootstrap thread: health stays 200, every PD request hangs."""
    route_503: bool = False
    hang_scheduler: bool = False
    slow_health_s: float = 0.0
    health_poll_s: float = 1.0
    """How often /health looks for its token; the real engine's 1 s."""
    health_timeout_s: float = 0.0
    """When /health gives up; 0: SGLANG_HEALTH_CHECK_TIMEOUT, or the real engine's 20 s."""
    generates_nothing: bool = False
    finish_reason_error: bool = False
    answer_status: int = 0
    """Answer every generation with this HTTP status, e.g. 500, which opens router circuits."""
    transfer_error: bool = False
    """The KV transfer fails on the prefill: KVTransferError in both journals, 500 for both legs."""
    stream_cut_after: int = -1
    """Cut a stream after this many content chunks, without [DONE]; -1: never."""
    token_seconds: float = 0.0
    transfer_seconds: float = 0.0
    loads: Mapping[str, float] = field(default_factory=dict)
    """Reported instead of the true numbers, in /v1/loads and in the gauges."""
    env_shown: Mapping[str, str | None] = field(default_factory=dict)
    """What /server_info shows instead of the process's own environment; null: absent."""
    ignore_sigterm: bool = False
    drain_poll_s: float = 5.0
    """How often the drain looks for remaining requests; the real engine's 5 s."""
    stop_seconds: float = 0.0


def parse(text: str, source: str) -> Faults:
    """The script in `text`; `source` names the variable or file in errors. Raises FaultError."""
    return _build(_object(text, source), source)


def _object(text: str, source: str) -> dict[str, Any]:
    try:
        value = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        raise FaultError(f'{source}: not JSON: {error}; write an object such as {{"load_seconds": 2}}') from error
    if not isinstance(value, dict):
        raise FaultError(f"{source}: found a {type(value).__name__}; write a JSON object")
    return value


def _build(script: Mapping[str, Any], source: str) -> Faults:
    known = {f.name: f.default for f in fields(Faults)}
    values: dict[str, Any] = {}
    for key, value in script.items():
        if key not in known:
            raise FaultError(f"{source}: unknown fault {key!r}; known: {', '.join(sorted(known))}")
        values[key] = _checked(key, value, known[key], source)
    return Faults(**values)


def _checked(key: str, value: Any, default: Any, source: str) -> Any:
    """`value` in the type of the fault's default, or FaultError."""
    if key == "die_at":
        return None if value is None else _death(value, source)
    if key == "never_ready" and value not in ("", "load", "warmup"):
        raise FaultError(f'{source}: never_ready={value!r}; write "load" or "warmup"')
    if key in ("loads", "env_shown"):
        return _mapping(key, value, source)
    numeric = isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool)
    if type(value) is not type(default) and not numeric:
        raise FaultError(f"{source}: {key}={value!r}; write a {type(default).__name__}")
    return value


def _mapping(key: str, value: Any, source: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FaultError(f"{source}: {key}={value!r}; write an object")
    for name, entry in value.items():
        if key == "loads" and (name not in LOADS or not isinstance(entry, int | float)):
            raise FaultError(f"{source}: loads.{name}={entry!r}; write a number for one of: {', '.join(LOADS)}")
        if key == "env_shown" and not (entry is None or isinstance(entry, str)):
            raise FaultError(f"{source}: env_shown.{name}={entry!r}; write a string or null")
    return value


def _death(value: Any, source: str) -> Death:
    known = {f.name for f in fields(Death)}
    if not isinstance(value, dict) or not known.issuperset(value) or value.get("phase") not in PHASES:
        raise FaultError(
            f'{source}: die_at={value!r}; write {{"phase": one of {", ".join(PHASES)}, '
            '"after_s": 0, "exit": 1 or "signal": "SIGKILL", "message": text}'
        )
    death = Death(**value)
    if death.signal not in signal.Signals.__members__:
        raise FaultError(f'{source}: die_at.signal={death.signal!r}; write a name such as "SIGSEGV"')
    return death


class FaultSource:
    """The script as it stands now: the variable, overlaid by the file each time the file has changed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._base = _object(environ.get("PD_DOUBLE", ""), "PD_DOUBLE")
        default = f"/run/pd-double/{environ['PD_INSTANCE']}.json" if environ.get("PD_INSTANCE") else ""
        path = environ.get("PD_DOUBLE_FILE", default)
        self._path = Path(path) if path else None
        self._stamp: tuple[int, int] | None = None
        self._faults = _build(self._base, "PD_DOUBLE")
        self.current()

    def current(self) -> Faults:
        """Raises FaultError when the file has become one this double does not know. An absent file is no fault."""
        if self._path is None:
            return self._faults
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                source = f"PD_DOUBLE_FILE {self._path}"
                self._faults = _build({**self._base, **_object(self._path.read_text(), source)}, source)
                self._stamp = stamp
        except FileNotFoundError:
            self._faults, self._stamp = _build(self._base, "PD_DOUBLE"), None
        return self._faults

"""Faults for tests, chosen by the environment variable `PD_LAB_FAULT` of one engine.

Each is a failure that was seen on the real pair, entered at the place where it happens by itself.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .patching import wrap

VARIABLE = "PD_LAB_FAULT"


@dataclass(frozen=True)
class Fault:
    """A function of SGLang, and what happens instead when it is called."""

    module: str
    path: str
    happen: Callable[[], None]

    def install(self) -> None:
        wrap(self.module, self.path, lambda _original: self._instead)

    def _instead(self, *_args: Any, **_kwargs: Any) -> None:
        self.happen()


def _peer_setup_fails() -> None:
    raise RuntimeError(f"{VARIABLE}=bootstrap-thread-dies: NIXL peer set-up fails here")


def _loading_fails() -> None:
    raise RuntimeError(f"{VARIABLE}=die-while-loading: the weights cannot be loaded")


def _loading_hangs() -> None:
    threading.Event().wait()


FAULTS: Mapping[str, Fault] = {
    # Prefill: the thread that sets up NIXL peers dies, /health stays 200 on both engines, every request hangs.
    "bootstrap-thread-dies": Fault(
        "sglang.srt.disaggregation.nixl.conn", "NixlKVManager._add_remote_peer", _peer_setup_fails
    ),
    "die-while-loading": Fault("sglang.srt.model_loader.loader", "DefaultModelLoader.load_model", _loading_fails),
    # No log line, no CPU time, no port: an engine that would load until the end of days.
    "never-ready": Fault("sglang.srt.model_loader.loader", "DefaultModelLoader.load_model", _loading_hangs),
}


def chosen(environ: Mapping[str, str]) -> Fault | None:
    """The fault that `environ` asks for, if any.

    Raises:
        SystemExit: the value names no fault. A test must not pass because of a typo.
    """
    name = environ.get(VARIABLE)
    if name is None:
        return None
    if name not in FAULTS:
        raise SystemExit(f"{VARIABLE}={name!r} is not a fault. It is one of: {', '.join(FAULTS)}; or unset it.")
    return FAULTS[name]

"""An idle engine that gives its cores away.

A scheduler in PD mode polls without pause, `--sleep-on-idle` or not, and so does the progress thread of its NIXL agent:
two threads at 100 % in an engine at rest. A GPU host has cores for that. On the lab's two, a pair at rest would leave
nothing to the engine that is just starting. With these pauses an idle engine takes 13 % of a core.
"""

import time
from collections.abc import Callable
from typing import Any

from .patching import wrap

PAUSE_S = 0.005  # a request meets a handful of these: small beside the 70 ms and more that it takes
PROGRESS_DELAY_US = 2000


def install() -> None:
    """End every pass of the scheduler's loop that computed nothing, and every poll of NIXL, in a short sleep."""
    wrap("sglang.srt.managers.scheduler", "Scheduler.on_idle", _then_pause)
    wrap("nixl._bindings", "nixlAgent", _with_delay)


def _then_pause(on_idle: Callable[[Any], None]) -> Callable[[Any], None]:
    def on_idle_then_pause(scheduler: Any) -> None:
        on_idle(scheduler)
        time.sleep(PAUSE_S)

    return on_idle_then_pause


def _with_delay(make_agent: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    def make_agent_with_delay(name: str, config: Any) -> Any:
        config.pthrDelay = PROGRESS_DELAY_US
        return make_agent(name, config)

    return make_agent_with_delay

"""SGLang plugin of the lab: host memory instead of GPU memory, and faults that can be switched on.

SGLang runs `register` in the main process, the scheduler and the detokenizer. `SystemExit` is the only exception it
does not swallow (sglang-facts 7.2), so everything that must not go unnoticed raises that.
"""

import os
import sys

from . import faults, hostmem, idle


def register() -> None:
    """Install the stand-ins, and the fault of `PD_LAB_FAULT` if it is set.

    Raises:
        SystemExit: the engine is not a CPU engine, the fault is unknown, or a target has moved in SGLang or NIXL.
    """
    if os.environ.get("SGLANG_USE_CPU_ENGINE") != "1":
        raise SystemExit(
            "pdstack-lab-standins is installed in this engine's venv, but SGLANG_USE_CPU_ENGINE is not 1. "
            "It belongs on lab machines only: build the release without it."
        )
    fault = faults.chosen(os.environ)
    # Only a scheduler holds weights and KV cache. The others would pay the imports and use none of it.
    if "sglang.srt.managers.scheduler" in sys.modules:
        hostmem.install()
        idle.install()
        if fault is not None:
            fault.install()

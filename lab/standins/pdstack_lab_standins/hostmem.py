"""KV cache in host memory: what NIXL and CUDA do for GPU memory, done for RAM (sglang-facts 6.4, lab-facts)."""

from collections.abc import Callable
from typing import Any

from .patching import wrap


def install() -> None:
    """Make NIXL register what SGLang calls VRAM as DRAM, and leave host buffers unpinned."""
    wrap("nixl._api", "nixl_agent.__init__", _dram_for_vram)
    wrap("sglang.srt.mem_cache.pool_host.common", "_cuda_host_register", _nothing)


def _dram_for_vram(init: Callable[..., None]) -> Callable[..., None]:
    def init_then_map(agent: Any, *args: Any, **kwargs: Any) -> None:
        init(agent, *args, **kwargs)
        agent.nixl_mems["VRAM"] = agent.nixl_mems["DRAM"]

    return init_then_map


def _nothing(_register: Callable[..., None]) -> Callable[..., None]:
    def leave_unpinned(*_args: Any, **_kwargs: Any) -> None:
        return None

    return leave_unpinned

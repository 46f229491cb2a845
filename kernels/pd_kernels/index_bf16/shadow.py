"""The shadow pool: bf16 keys beside SGLang's e4m3 ones, page for page, and the hooks that fill, read and move them.

SGLang keeps its own pool as it is, so everything that is not hooked goes on working. Refused at start, with what to change: HiCache and
the fp4 indexer (they would move or fill pages that have no shadow), and page or head sizes that the kernels do not have.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
from collections.abc import Callable
from typing import Any

import torch

from pd_kernels.index_bf16.op import IndexKernels
from pd_kernels.index_bf16.shapes import CTAS_PER_SM, DIM, FP8_KEY_BYTES, KEY_BYTES, PAGE, RATIO, choose_chunks
from pd_kernels.kernel import Hook

logger = logging.getLogger("pd_kernels.index_bf16")

POOL = "sglang.srt.mem_cache.deepseek_v4_memory_pool.DeepSeekV4IndexerPool"
LAYOUT = "sglang.srt.mem_cache.deepseek_v4_memory_pool.DeepSeekV4TokenToKVPool.pd_kv_layout"
BUDGET = "sglang.srt.model_executor.pool_configurator.DSV4PoolConfigurator._compressed_bytes_per_full_token"
STORE = "sglang.kernels.ops.attention.dsv4.compress.compress_norm_rope_store"
LOGITS = "sglang.srt.layers.attention.dsv4.indexer.fp8_paged_mqa_logits_torch_sm120"
ENVIRONMENT = {
    "SGLANG_OPT_DSV4_NONPAGED_INDEXER": "0",  # it gathers e4m3 keys and scores them elsewhere
    "SGLANG_OPT_USE_TILELANG_INDEXER": "0",  # SGLang's first choice on sm_120, ahead of the function that is hooked
    "SGLANG_FP8_PAGED_MQA_LOGITS_TORCH": "1",  # the function that is hooked (sglang-facts 8.4)
}
"""What makes SGLang come by the hooks. SGLang sets two of them itself before a scheduler starts, so what was there is overwritten, and logged."""
DATA_SHEET_BANDWIDTH = 1.79e12
"""Bytes per second of an RTX PRO 6000, for the cost line only."""


def hooks(kernels: IndexKernels) -> list[Hook]:
    """The six hooks around one shadow. Sets `ENVIRONMENT`; call it in a scheduler, before SGLang reads it."""
    for name, value in ENVIRONMENT.items():
        was = os.environ.get(name)
        if was != value:
            logger.warning("index_bf16 sets %s=%s (was %s)", name, value, was)
        os.environ[name] = value
    shadow = Shadow(kernels)
    return [
        Hook(f"{POOL}._create_buffer", "after", shadow.create),
        Hook(f"{POOL}.contiguous_page_row_buffers", "after", shadow.moved),
        Hook(LAYOUT, "after", named),
        Hook(BUDGET, "after", shadow.budget),
        Hook(STORE, "around", shadow.store),
        Hook(LOGITS, "around", shadow.logits),
    ]


def refusal(*, hicache: bool, fp4: bool, page: int, dim: int) -> str | None:
    """Why there can be no shadow of a pool; None when there can."""
    if hicache:
        return "index_bf16 does not go with HiCache, which would bring pages back without their bf16 keys: drop --enable-hierarchical-cache or it"
    if fp4:
        return "index_bf16 does not go with the fp4 indexer: drop --enable-deepseek-v4-fp4-indexer or it"
    if (page, dim) != (PAGE, DIM):
        return f"index_bf16 is for pages of {PAGE} keys of {DIM}, this pool has pages of {page} keys of {dim}"
    return None


def named(result: str, _pool: Any) -> str:
    """AFTER `pd_kv_layout`: PD peers compare it, so an engine without the op is refused at the handshake instead of being sent
    one kind of page for another."""
    return f"{result},index_bf16"


def cost(pages: int, layers: int, rows: int = 64, tokens: int = 32768) -> str:
    """The line at start: memory from the pool's own size, time from arithmetic."""
    memory = pages * PAGE * layers * KEY_BYTES
    more = rows * (tokens // RATIO) * (KEY_BYTES - FP8_KEY_BYTES)
    return (
        f"index_bf16: {memory / 2**30:.2f} GiB for bf16 index keys ({pages} pages x {layers} layers, {KEY_BYTES} B a key beside {FP8_KEY_BYTES}); "
        f"a step of {rows} rows of {tokens} tokens reads {more / 1e6:.0f} MB more a layer, {more / DATA_SHEET_BANDWIDTH * 1e6:.0f} us at "
        f"{DATA_SHEET_BANDWIDTH / 1e12:.2f} TB/s (arithmetic, not measured)"
    )


class Shadow:
    """bf16 pages by the address of the e4m3 buffer that they stand beside."""

    def __init__(self, kernels: IndexKernels) -> None:
        self._kernels = kernels
        self.pages: dict[int, torch.Tensor] = {}
        self._slots: int | None = None

    def create(self, _result: None, pool: Any) -> None:
        """AFTER `_create_buffer`: as many bf16 pages as the pool has, in the same memory region. ValueError where there can be none."""
        from sglang.srt.constants import GPU_MEMORY_TYPE_KV_CACHE  # noqa: PLC0415  an engine only
        from sglang.srt.runtime_context import get_memory  # noqa: PLC0415  an engine only

        hicache = bool(get_memory().enable_hierarchical_cache)
        why = refusal(hicache=hicache, fp4=pool.use_fp4_indexer, page=pool.page_size, dim=pool.index_head_dim)
        if why:
            raise ValueError(why)
        buffers = pool.index_k_with_scale_buffer
        with contextlib.ExitStack() as region:
            region.enter_context(pool.memory_saver_adapter.region(GPU_MEMORY_TYPE_KV_CACHE))
            if pool.custom_mem_pool:
                region.enter_context(torch.cuda.use_mem_pool(pool.custom_mem_pool))
            for buffer in buffers:
                made = torch.zeros(buffer.shape[0], PAGE, DIM, dtype=torch.bfloat16, device=buffer.device)
                self.pages[buffer.data_ptr()] = made
        logger.warning(cost(buffers[0].shape[0], len(buffers)) if buffers else "index_bf16: a pool without layers")

    def moved(self, result: list[torch.Tensor], pool: Any) -> list[torch.Tensor]:
        """AFTER `contiguous_page_row_buffers`: PD sends these by page, so a decode engine gets the prompt's bf16 keys too."""
        mine = [self.pages[buffer.data_ptr()] for buffer in pool.index_k_with_scale_buffer]
        return [*result, *(page.view(torch.uint8).flatten(1) for page in mine)]

    def budget(self, result: float, _configurator: Any, ratio: int) -> float:
        """AFTER `_compressed_bytes_per_full_token`: a bf16 key for every four tokens, or SGLang would allot memory that is gone."""
        return result + KEY_BYTES / RATIO if ratio == RATIO else result

    def store(self, original: Callable[..., None], kv: torch.Tensor, plan: Any, **given: Any) -> None:
        """AROUND `compress_norm_rope_store`: SGLang's key first, then ours from the same input."""
        original(kv, plan, **given)
        pages = self.pages.get(given["kvcache"].data_ptr()) if kv.shape[-1] == DIM else None
        if pages is None:
            return
        self._kernels.store(
            kv,
            plan[1],
            norm_weight=given["norm_weight"],
            norm_eps=given["norm_eps"],
            freqs=torch.view_as_real(given["freq_cis"]).flatten(-2),
            out_loc=given["out_loc"],
            pages=pages,
            ratio=plan.compress_ratio,
            decode=plan.is_decode,
        )

    def logits(self, original: Callable[..., torch.Tensor], *called: Any, **named: Any) -> torch.Tensor:
        """AROUND the logits of the C4 indexer: from our pages, [rows, columns] fp32; another cache than ours goes to SGLang's."""
        given = inspect.signature(original).bind(*called, **named).arguments
        pages = self.pages.get(given["kvcache_fp8"].data_ptr())
        if pages is None:
            return original(*called, **named)
        q, columns = given["q_fp8"], int(given["max_seq_len"])
        return self._kernels.logits(
            q.squeeze(1),
            given["weight"].float().contiguous(),
            pages,
            given["seq_lens"].reshape(-1).to(torch.int32),
            given["page_table"].to(torch.int32),
            columns=columns,
            chunks=choose_chunks(q.shape[0], columns, self._running(q.device)),
        )

    def _running(self, device: torch.device) -> int:
        """CTAs of the logits kernel that run at a time."""
        if self._slots is None:
            sms = torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
            self._slots = sms * CTAS_PER_SM
        return self._slots

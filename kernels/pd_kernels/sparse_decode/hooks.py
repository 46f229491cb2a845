"""Where K1 is put into SGLang 0.5.23: around the sm_120 decode, and around the question whether heads must be padded (sglang-facts 8.2).

Whatever K1 does not take goes to SGLang as if K1 were not there, padding included.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..kernel import Context, Hook

MODULE = "sglang.kernels.ops.attention.flash_mla_sm120"
DECODE = f"{MODULE}.flash_mla_with_kvcache_sm120"
PROBE = f"{MODULE}.flashinfer_dsv4_decode_supports_num_heads"
OP = "pd_kernels.sparse_decode.op"
TARGET, ROWS = "SGLANG_SM120_MMA_TARGET_CTAS", "SGLANG_SM120_MMA_MAX_ROWS"
MOST_ROWS = 256
"""Rows up to which the op splits well; prefill comes here too, with thousands (kernels.md 2), and is SGLang's."""
PADDED_HEADS = 64
"""What SGLang pads to where FlashInfer does not have the head count (models/deepseek_v4.py:1215)."""
NAMES: Mapping[str, str] = {
    "q": "q",
    "k_cache": "k_cache",
    "indices": "indices",
    "topk_length": "topk_length",
    "attn_sink": "attn_sink",
    "head_dim_v": "head_dim_v",
    "softmax_scale": "softmax_scale",
    "extra_k_cache": "extra_k_cache",
    "extra_indices_in_kvcache": "extra_indices",
    "extra_topk_length": "extra_topk_length",
}
"""SGLang's keywords -> the op's."""


def arguments(call: Mapping[str, Any]) -> dict[str, Any] | None:
    """A call of SGLang's in the op's names; None for one with a keyword that is not known here, so that nothing is dropped."""
    if not call.keys() <= NAMES.keys() or not {"q", "k_cache", "indices", "head_dim_v"} <= call.keys():
        return None
    optional = dict.fromkeys(("topk_length", "attn_sink", "softmax_scale"))
    return {**optional, **{NAMES[name]: value for name, value in call.items()}}


def hooks(context: Context) -> Sequence[Hook]:
    """Both hooks, with the knobs of this process."""
    op, stock = importlib.import_module(OP), importlib.import_module(MODULE)
    target, limit = context.knobs.get(TARGET, 0), context.knobs.get(ROWS, MOST_ROWS)

    def decode(original: Callable[..., Any], *args: Any, **call: Any) -> Any:
        told = None if args else arguments(call)
        if told is not None and told["q"].shape[0] <= limit and op.takes(**told):
            context.count("sparse_decode")
            return op.sparse_decode(**told, target_ctas=target)
        context.count("left to SGLang")
        return original(*args, **call) if args else stock_decode(stock, original, call)

    def probe(original: Callable[..., bool], num_heads: int, num_tokens: int) -> bool:
        return num_tokens <= limit or original(num_heads, num_tokens)

    return [Hook(DECODE, "around", decode), Hook(PROBE, "around", probe)]


def stock_decode(stock: Any, original: Callable[..., Any], call: Mapping[str, Any]) -> Any:
    """SGLang's own decode. Where `probe` kept heads unpadded that FlashInfer does not have, they are padded here, and the padding dropped."""
    rows, heads = call["q"].shape[0], call["q"].shape[-2]
    has = inspect.unwrap(stock.flashinfer_dsv4_decode_supports_num_heads)
    small = rows <= stock.SM120_DECODE_MAX_TOKENS and heads < PADDED_HEADS and stock._sm120_default_backend == "flashinfer"
    if not small or has(heads, rows):
        return original(**call)
    pad = importlib.import_module("torch").nn.functional.pad
    more, sink = PADDED_HEADS - heads, call.get("attn_sink")
    padded = {"q": pad(call["q"], (0, 0, 0, more)), "attn_sink": None if sink is None else pad(sink, (0, more))}
    out, *rest = original(**{**call, **padded})
    return (out[..., :heads, :], *rest)

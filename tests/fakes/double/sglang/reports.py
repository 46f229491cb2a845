"""What the engine says about itself: /server_info, /model_info, /v1/models, /v1/loads (sglang-facts 2.6, 2.7, 3)."""

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import __version__
from .engine import Engine

CONTEXT_LEN = 8192
_CORE = ("num_running_reqs", "num_waiting_reqs", "num_used_tokens", "token_usage", "gen_throughput")
_DISAGG = (
    "prefill_bootstrap_queue_reqs",
    "prefill_inflight_queue_reqs",
    "decode_prealloc_queue_reqs",
    "decode_transfer_queue_reqs",
)
SECTIONS = {"core", "memory", "spec", "lora", "disagg", "queues", "all"}


def server_info(engine: Engine) -> dict[str, Any]:
    """The resolved arguments with their secrets, as the real one leaks them, and rank 0's state."""
    args = {k: v for k, v in vars(engine.args).items() if k != "config"}
    return {
        **args,
        "status": "ready",
        "max_total_num_tokens": engine.args.max_total_tokens,
        "max_req_input_len": CONTEXT_LEN - 6,
        "startup_time": startup_time(engine),
        "kv_events": None,
        "internal_states": [_internal_state(engine, args)],
        "version": __version__,
        "frontend": "python",
    }


def startup_time(engine: Engine) -> dict[str, float]:
    """Seconds by phase."""
    load = engine.faults.current().load_seconds
    return {"load_weight": load, "kv_cache_allocation": 0.0, "scheduler_e2e": load, "tokenizer_e2e": load}


def _internal_state(engine: Engine, args: dict[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = {
        **args,
        "world_size": engine.args.tp_size,
        "effective_max_running_requests_per_dp": engine.args.max_running_requests,
        "last_gen_throughput": 0.0,
        "memory_usage": {
            "weight": 0.3,
            "kvcache": 0.1,
            "startup_available": 94.2,
            "token_capacity": engine.args.max_total_tokens,
            "token_capacity_swa": None,
            "graph": {"prefill": 0.0, "decode": 0.0},
        },
        "disaggregation_mode": engine.mode,
    }
    if os.environ.get("SGLANG_EXPOSE_OWN_ENV_VARS", "").lower() in ("true", "1", "yes", "y"):
        state["env_vars"] = _env_vars(engine)
    return state


def _env_vars(engine: Engine) -> dict[str, str]:
    """Registered names only: UCX_*, SGLANG_HOST_IP and the like are not shown (sglang-facts 2.7)."""
    registered = (Path(__file__).parent / "env_names.txt").read_text().split()
    shown: dict[str, str | None] = {name: os.environ[name] for name in registered if name in os.environ}
    shown |= engine.faults.current().env_shown
    return {name: value for name, value in sorted(shown.items()) if value is not None}


def model_info(engine: Engine) -> dict[str, Any]:
    """Static: the double has no model."""
    args = engine.args
    return {
        "model_path": args.model_path,
        "served_model_name": args.served_model_name,
        "tokenizer_path": args.tokenizer_path,
        "is_generation": True,
        "preferred_sampling_params": None,
        "weight_version": "default",
        "load_format": args.load_format,
        "reasoning_parser": args.reasoning_parser,
        "tool_call_parser": args.tool_call_parser,
        "disaggregation_mode": engine.mode,
        "has_image_understanding": False,
        "has_audio_understanding": False,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
    }


def models(engine: Engine) -> dict[str, Any]:
    """OpenAI's list, with the one model."""
    name = engine.args.served_model_name
    card = {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": CONTEXT_LEN,
    }
    return {"object": "list", "data": [card]}


def loads(engine: Engine, include: str | None) -> dict[str, Any]:
    """The snapshot, `timestamp` of the entry being rank 0's own. ValueError for an unknown section."""
    wanted = {section.strip() for section in include.split(",")} if include else {"all"}
    if not wanted <= SECTIONS:
        raise ValueError(f"Invalid include sections: {wanted - SECTIONS}. Valid options: {sorted(SECTIONS)}")
    counts = engine.loads()
    # as in 0.5.23's load_inquirer: what stands in these queues waits too, what a prefill transfers does not
    waiting = counts["num_waiting_reqs"] + sum(counts[name] for name in _DISAGG if name != "prefill_inflight_queue_reqs")
    entry: dict[str, Any] = {
        "timestamp": engine.children.timestamp,
        "dp_rank": 0,
        **{name: _number(counts[name]) for name in _CORE},
        "num_waiting_reqs": _number(waiting),
        "num_waiting_uncached_tokens": 0,
        "num_total_tokens": _number(counts["num_used_tokens"]),
        "num_active_tokens": _number(counts["num_used_tokens"]),
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": engine.args.max_total_tokens,
        "max_running_requests": engine.args.max_running_requests,
        "cache_hit_rate": 0.0,
        "utilization": -1.0 if engine.mode == "prefill" else 0.0,
        "total_prefill_uncached_tokens": 0,
        "total_prefill_busy_us": 0,
        "decode_moments": None,
    }
    if wanted & {"memory", "all"}:
        entry["memory"] = {
            "weight_gb": 0.3, "kv_cache_gb": 0.1, "graph_gb": 0.0, "token_capacity": engine.args.max_total_tokens,
        }  # fmt: skip
    if wanted & {"disagg", "all"}:
        entry["disaggregation"] = {
            "mode": engine.mode,
            **{name: _number(counts[name]) for name in _DISAGG},
            "decode_retracted_queue_reqs": 0,
            "kv_transfer_speed_gb_s": 0.0,
            "kv_transfer_latency_ms": 0.0,
        }
    if wanted & {"queues", "all"}:
        queued = _number(counts["num_waiting_reqs"])
        entry["queues"] = {"waiting": queued, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0}
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": __version__,
        "accelerator": None,
        "num_accelerators": engine.args.tp_size,
        "loads": [entry],
    }


def _number(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value

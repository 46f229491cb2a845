"""Stand-in for the `sglang-kernel` wheel, which exists for GPUs only.

SGLang imports these names at module level when `SGLANG_USE_CPU_ENGINE=1` (sglang-facts 10); all of them belong to
speculative decoding or to AMX paths, and a dense bf16 model never calls one. A call is therefore a mistake, and says
so.
"""

from typing import NoReturn

NAMES = (
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "verify_tree_greedy_cpu",
)


class _StandIn:
    """A kernel that can be imported but not called."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"sgl_kernel.{self.__name__} was called, but this is the lab's stand-in without kernels: "
            "the lab serves dense bf16 models, without speculative decoding"
        )


globals().update({name: _StandIn(name) for name in NAMES})

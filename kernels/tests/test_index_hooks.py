"""The shadow pool in SGLang 0.5.23's own code: its hook registry, pools, configurator and logits, on the CPU with the kernels' CPU twin.

SGLang's store is CUDA only; a stand-in with its signature writes the e4m3 key as it does (sglang-facts 8.4).
"""

from __future__ import annotations

import functools
import inspect
import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from sglang.kernels.ops.attention.dsv4 import compress
from sglang.srt.disaggregation.utils import get_pd_kv_layout
from sglang.srt.layers.attention.dsv4 import compressor_v2, indexer
from sglang.srt.mem_cache.deepseek_v4_memory_pool import DeepSeekV4IndexerPool, DeepSeekV4TokenToKVPool
from sglang.srt.model_executor.pool_configurator import DSV4PoolConfigurator
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from pd_kernels.index_bf16 import reference, shadow
from pd_kernels.index_bf16.build import build_host
from pd_kernels.index_bf16.cases import EPS, keys
from pd_kernels.index_bf16.op import IndexKernels
from pd_kernels.index_bf16.shapes import DIM, FP8_KEY_BYTES, HEADS, KEY_BYTES, PAGE, RATIO

TARGETS = {
    (DeepSeekV4IndexerPool, "_create_buffer"),
    (DeepSeekV4IndexerPool, "contiguous_page_row_buffers"),
    (DeepSeekV4TokenToKVPool, "pd_kv_layout"),
    (DSV4PoolConfigurator, "_compressed_bytes_per_full_token"),
    (compress, "compress_norm_rope_store"),
    (indexer, "fp8_paged_mqa_logits_torch_sm120"),
}


class Plan(NamedTuple):
    """SGLang's CompressorDecodePlan and CompressorPrefillPlan, as far as the store reads them."""

    compress_ratio: int
    entries: torch.Tensor
    is_decode: bool


def e4m3_store(kv: torch.Tensor, plan: Any, **given: Any) -> None:
    """In the place of SGLang's kernel: values first, then the fp32 scales, in each page."""
    freqs = torch.view_as_real(given["freq_cis"]).flatten(-2)
    for work, length in enumerate(plan[1].view(torch.int32).reshape(-1, 4)[:, 0].tolist()):
        if length % RATIO:
            continue
        exact, _ = reference.key(kv[work : work + 1], given["norm_weight"], given["norm_eps"], freqs[length - RATIO][None])
        scale = exact.abs().max().clamp(min=1e-4).float() / 448
        page, at = divmod(int(given["out_loc"][work]), PAGE)
        row = given["kvcache"][page]
        row[at * DIM : (at + 1) * DIM] = (exact[0].float() / scale).to(torch.float8_e4m3fn).view(torch.uint8)
        row[PAGE * DIM + at * 4 : PAGE * DIM + at * 4 + 4] = scale.reshape(1).view(torch.uint8)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> IndexKernels:
    return IndexKernels(build_host(tmp_path_factory.mktemp("twin") / "twin.so"))


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """SGLang's memory options, which a test may change."""
    options = types.SimpleNamespace(enable_hierarchical_cache=False)
    monkeypatch.setattr("sglang.srt.runtime_context.get_memory", lambda: options)
    return options


@pytest.fixture
def hooked(kernels: IndexKernels, memory: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """SGLang with the six hooks put in by its own registry; the originals come back afterwards."""
    del memory
    for name in shadow.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    stand_in = functools.wraps(compress.compress_norm_rope_store)(e4m3_store)
    for module in (compress, compressor_v2):
        monkeypatch.setattr(module, "compress_norm_rope_store", stand_in)
    before = {(owner, name): getattr(owner, name) for owner, name in TARGETS}
    for owner, name in TARGETS:
        monkeypatch.setattr(owner, name, getattr(owner, name))
    HookRegistry.reset()
    made = shadow.hooks(kernels)
    for hook in made:
        HookRegistry.register(hook.target, hook.function, HookType(hook.kind))
    HookRegistry.apply_hooks()
    yield {"before": before, "hooks": made}
    HookRegistry.reset()
    for name in shadow.ENVIRONMENT:
        os.environ.pop(name, None)


def pool(**changed: Any) -> DeepSeekV4IndexerPool:
    given = {"size": 4 * PAGE, "page_size": PAGE, "dtype": torch.uint8, "index_head_dim": DIM, "layer_num": 2, "device": "cpu"}
    return DeepSeekV4IndexerPool(**{**given, "enable_memory_saver": False, "use_fp4_indexer": False, **changed})


def test_every_target_is_there_and_is_wrapped_also_where_it_was_imported(hooked: dict[str, Any]) -> None:
    for (owner, name), original in hooked["before"].items():
        assert getattr(owner, name).__wrapped__ is original
    assert compressor_v2.compress_norm_rope_store is compress.compress_norm_rope_store
    assert len(hooked["hooks"]) == len(TARGETS)


def test_the_names_that_the_hooks_read_are_those_of_sglang() -> None:
    store = inspect.signature(compress.compress_norm_rope_store).parameters
    assert {"kv", "plan", "norm_weight", "norm_eps", "freq_cis", "out_loc", "kvcache"} <= set(store)
    assert [name for name in ("kv", "plan") if store[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD] == ["kv", "plan"]
    logits = inspect.signature(indexer.fp8_paged_mqa_logits_torch_sm120).parameters
    assert {"q_fp8", "kvcache_fp8", "weight", "seq_lens", "page_table", "max_seq_len"} <= set(logits)
    budget = inspect.signature(DSV4PoolConfigurator._compressed_bytes_per_full_token).parameters
    assert list(budget) == ["self", "ratio"]
    assert [name for kind in (compress.CompressorDecodePlan, compress.CompressorPrefillPlan) for name in kind._fields[:1]] == ["compress_ratio"] * 2


def test_the_environment_leads_sglang_to_the_hooked_function(hooked: dict[str, Any]) -> None:
    from sglang.srt.environ import envs  # noqa: PLC0415  after the fixtures

    del hooked
    assert not envs.SGLANG_OPT_USE_TILELANG_INDEXER.get()
    assert not envs.SGLANG_OPT_DSV4_NONPAGED_INDEXER.get()
    assert envs.SGLANG_FP8_PAGED_MQA_LOGITS_TORCH.get()


def test_a_pool_has_a_shadow_page_for_every_page_and_says_what_it_costs(hooked: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    del hooked
    made = pool()
    sizes = [(buffer.shape, buffer.nbytes) for buffer in made.contiguous_page_row_buffers()]
    pages = made.index_k_with_scale_buffer[0].shape[0]
    assert sizes[:2] == [((pages, PAGE * FP8_KEY_BYTES), pages * PAGE * FP8_KEY_BYTES)] * 2
    assert sizes[2:] == [((pages, PAGE * KEY_BYTES), pages * PAGE * KEY_BYTES)] * 2
    assert "GiB for bf16 index keys" in caplog.text
    assert "65 MB more a layer, 36 us" in caplog.text


def test_pd_registers_the_shadow_right_behind_the_keys_of_its_ratio(hooked: dict[str, Any]) -> None:
    del hooked
    whole = types.SimpleNamespace(
        **{"compression_ratios": [4, 4], "_stage_start": 0, "_stage_end": 2, "_unified_kv": False, "_unified_kv_fp8": False},
        **{"kv_pools": {4: None}, "index_pools": {4: pool()}, "page_size": 256, "swa_kv_pool": None},
    )
    addresses, lengths, items = DeepSeekV4TokenToKVPool.get_contiguous_buf_infos(whole)
    assert items == [PAGE * FP8_KEY_BYTES] * 2 + [PAGE * KEY_BYTES] * 2
    assert len(set(addresses)) == 4
    assert [length // item for length, item in zip(lengths, items, strict=True)] == [whole.index_pools[4].index_k_with_scale_buffer[0].shape[0]] * 4


def test_the_handshake_of_pd_tells_an_engine_with_the_op_from_one_without(hooked: dict[str, Any]) -> None:
    whole = DeepSeekV4TokenToKVPool.__new__(DeepSeekV4TokenToKVPool)
    whole.uniform_fp8 = True
    stock = hooked["before"][DeepSeekV4TokenToKVPool, "pd_kv_layout"](whole)
    assert get_pd_kv_layout(whole) == f"{stock},index_bf16"


def test_the_budget_has_a_bf16_key_for_every_four_tokens_of_a_c4_layer(hooked: dict[str, Any]) -> None:
    configurator = types.SimpleNamespace(c4_shrink_factor=1, indexer_bytes_per_token=132, _get_paged_kv_bytes_per_token=lambda _: 584.0)
    now = DSV4PoolConfigurator._compressed_bytes_per_full_token
    was = hooked["before"][DSV4PoolConfigurator, "_compressed_bytes_per_full_token"]
    assert now(configurator, 4) == was(configurator, 4) + 64
    assert now(configurator, 128) == was(configurator, 128)


def filled(made: DeepSeekV4IndexerPool, layer: int) -> torch.Tensor:
    """Store nine keys through SGLang's name; the pages of the shadow."""
    given = keys(True, torch.bfloat16, torch.bfloat16)
    compressor_v2.compress_norm_rope_store(
        given.kv,
        Plan(RATIO, given.plan, given.decode),
        norm_weight=given.norm_weight,
        norm_eps=EPS,
        freq_cis=torch.view_as_complex(given.freqs.reshape(-1, 32, 2)),
        out_loc=given.out_loc,
        kvcache=made.get_index_k_with_scale_buffer(layer),
        page_size=PAGE,
    )
    return made.contiguous_page_row_buffers()[2 + layer].view(torch.bfloat16).reshape(-1, PAGE, DIM)


def test_a_store_writes_both_pools_and_only_its_layer(hooked: dict[str, Any]) -> None:
    del hooked
    made = pool()
    bf16 = filled(made, 1)
    fp8 = made.get_index_k_with_scale_buffer(1)
    values = fp8[:, : PAGE * DIM].contiguous().view(torch.float8_e4m3fn).float().reshape(-1, PAGE, DIM)
    scales = fp8[:, PAGE * DIM :].contiguous().view(torch.float32).reshape(-1, PAGE, 1)
    assert int((bf16 != 0).any(2).sum()) == 8
    assert torch.allclose(bf16.float(), values * scales, rtol=2**-3, atol=0.02)
    assert not made.get_index_k_with_scale_buffer(0).any()
    assert not made.contiguous_page_row_buffers()[2].any()


def test_logits_come_from_the_shadow_and_agree_with_sglang(hooked: dict[str, Any]) -> None:
    made = pool()
    filled(made, 0)
    make = torch.Generator().manual_seed(3)
    q = torch.randn(2, 1, HEADS, DIM, generator=make).to(torch.float8_e4m3fn)
    weights = torch.rand(2, HEADS, generator=make)
    buffer = made.get_index_k_with_scale_buffer(0)
    table = torch.arange(4, dtype=torch.int32).repeat(2, 1)
    given = (q, buffer.view(-1, PAGE, 1, FP8_KEY_BYTES), weights, torch.tensor([200, 256], dtype=torch.int32), table, None, 256, False)
    ours = indexer.fp8_paged_mqa_logits_torch_sm120(*given)
    theirs = hooked["before"][indexer, "fp8_paged_mqa_logits_torch_sm120"](*given)
    live = theirs > 0
    assert live.sum() > 8
    assert torch.allclose(ours[live], theirs[live], rtol=0.05)
    assert not torch.equal(ours[live], theirs[live])
    assert ours[0, 200:].isneginf().all()


def test_another_cache_goes_to_sglang(hooked: dict[str, Any]) -> None:
    q = torch.ones(1, 1, HEADS, DIM).to(torch.float8_e4m3fn)
    other = torch.full((2, PAGE, 1, FP8_KEY_BYTES), 0x38, dtype=torch.uint8)  # ones, as far as e4m3 goes
    given = (q, other, torch.ones(1, HEADS), torch.tensor([9], dtype=torch.int32), torch.zeros(1, 2, dtype=torch.int32), None, 128, False)
    theirs = hooked["before"][indexer, "fp8_paged_mqa_logits_torch_sm120"](*given)
    assert (theirs[0, :9] > 0).all()
    assert torch.equal(indexer.fp8_paged_mqa_logits_torch_sm120(*given), theirs)


def test_hicache_is_refused(hooked: dict[str, Any], memory: types.SimpleNamespace) -> None:
    del hooked
    memory.enable_hierarchical_cache = True
    with pytest.raises(ValueError, match="drop --enable-hierarchical-cache"):
        pool()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"use_fp4_indexer": True}, "drop --enable-deepseek-v4-fp4-indexer"),
        ({"page_size": 32}, "pages of 32 keys"),
        ({"index_head_dim": 256}, "keys of 256"),
    ],
)
def test_a_pool_without_a_shadow_is_refused(hooked: dict[str, Any], changed: dict[str, Any], says: str) -> None:
    del hooked
    with pytest.raises(ValueError, match=says):
        pool(**changed)


def test_off_means_nothing_was_touched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from pd_kernels import index_bf16  # noqa: PLC0415  after the fixtures
    from pd_kernels.index_bf16 import op  # noqa: PLC0415  after the fixtures

    for owner, name in TARGETS:
        assert not hasattr(getattr(owner, name), "__wrapped__")
    monkeypatch.setattr(op.IndexKernels.__init__, "__defaults__", (tmp_path / "none.so",))
    with pytest.raises(RuntimeError, match="not built"):
        index_bf16.hooks()
    assert not set(shadow.ENVIRONMENT) & set(os.environ)

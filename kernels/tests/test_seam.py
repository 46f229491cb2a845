"""K1's seam in SGLang's own wheel: routing, fall-through, the off switch, the padding probe, copied names, and agreement with its torch decode."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from sglang.kernels.ops.attention import flash_mla_sm120 as stock
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from pd_kernels.kernel import Context
from pd_kernels.plugin import resolved
from pd_kernels.sparse_decode import hooks as seam

ROW_BYTES, SCALE_BYTES = 576, 8


def pool(pages: int, tokens: int, seed: int) -> torch.Tensor:
    """A pool in DSV4's own layout (kernels.md 2): rows of 448 e4m3 and 64 bf16, then the UE8M0 scales, a page padded to a multiple of 576."""
    random = torch.Generator().manual_seed(seed)
    stride = -(-tokens * (ROW_BYTES + SCALE_BYTES) // ROW_BYTES) * ROW_BYTES
    raw = torch.zeros(pages, stride, dtype=torch.uint8)
    for page in raw:
        rows = page[: tokens * ROW_BYTES].view(tokens, ROW_BYTES)
        rows[:, :448] = torch.randn(tokens, 448, generator=random).to(torch.float8_e4m3fn).view(torch.uint8)
        rows[:, 448:] = torch.randn(tokens, 64, generator=random).to(torch.bfloat16).view(torch.uint8).view(tokens, 128)
        scales = page[tokens * ROW_BYTES : tokens * (ROW_BYTES + SCALE_BYTES)].view(tokens, SCALE_BYTES)
        scales[:, :7] = torch.randint(125, 129, (tokens, 7), generator=random, dtype=torch.uint8)
    return raw.as_strided((pages, tokens, 1, ROW_BYTES + SCALE_BYTES), (stride, ROW_BYTES + SCALE_BYTES, ROW_BYTES + SCALE_BYTES, 1))


def call(rows: int = 2, heads: int = 8, *, extra: int = 0, sink: bool = True, seed: int = 1) -> dict[str, Any]:
    """Keywords as DeepseekV4AttnBackend passes them (deepseek_v4_backend.py:4350): 128 window keys of 256-token pages, `extra` of 64-token ones."""
    random = torch.Generator().manual_seed(seed)

    def some(width: int, slots: int) -> torch.Tensor:
        drawn = torch.randint(0, slots, (rows, 1, width), generator=random, dtype=torch.int32)
        return torch.where(torch.rand(rows, 1, width, generator=random) < 0.1, torch.tensor(-1, dtype=torch.int32), drawn)

    told: dict[str, Any] = {
        "q": torch.randn(rows, 1, heads, 512, generator=random).to(torch.bfloat16),
        "k_cache": pool(2, 256, seed),
        "head_dim_v": 512,
        "softmax_scale": 512**-0.5,
        "indices": some(128, 512),
        "topk_length": torch.randint(1, 129, (rows,), generator=random, dtype=torch.int32),
        "attn_sink": torch.randn(heads, generator=random) if sink else None,
        "extra_k_cache": pool(4, 64, seed + 1) if extra else None,
        "extra_indices_in_kvcache": some(extra, 256) if extra else None,
        "extra_topk_length": torch.randint(1, extra + 1, (rows,), generator=random, dtype=torch.int32) if extra else None,
    }
    return told


@dataclass
class Op:
    """In the place of K1's op where only the way to it is tested: says what it was asked, takes what it is told to."""

    takes_it: bool = True
    asked: list[dict[str, Any]] = field(default_factory=list)

    def takes(self, **told: Any) -> bool:
        self.asked.append(told)
        return self.takes_it

    def sparse_decode(self, **told: Any) -> tuple[str, int]:
        return "K1", told["target_ctas"]


@dataclass
class Seam:
    """SGLang's module with the hooks in, and what they counted."""

    op: Op
    counts: dict[str, int]
    stock_calls: list[dict[str, Any]]

    def decode(self, **told: Any) -> Any:
        return stock.flash_mla_with_kvcache_sm120(**told)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """The wheel's module, on its torch path, as it was again afterwards."""
    monkeypatch.setattr(stock, "_sm120_default_backend", "torch")
    before = {name: getattr(stock, name) for name in ("flash_mla_with_kvcache_sm120", "flashinfer_dsv4_decode_supports_num_heads")}
    HookRegistry.reset()
    yield stock
    HookRegistry.reset()
    for name, value in before.items():
        setattr(stock, name, value)


def put_in(counts: dict[str, int], **knobs: int) -> None:
    """As the plugin does it."""

    def count(what: str) -> None:
        counts[what] = counts.get(what, 0) + 1

    for hook in seam.hooks(Context(knobs, count)):
        HookRegistry.register(hook.target, hook.function, HookType(hook.kind))
    HookRegistry.apply_hooks()


@pytest.fixture
def seamed(module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hooks around a recording op; knobs as given."""

    def act(takes: bool = True, **knobs: int) -> Seam:
        op, calls, counts = Op(takes), [], dict[str, int]()
        monkeypatch.setitem(sys.modules, seam.OP, op)

        def record(**told: Any) -> tuple[Any, None]:
            calls.append(told)
            return told["q"], None

        vars(module)["flash_mla_with_kvcache_sm120"] = record
        put_in(counts, **knobs)
        return Seam(op, counts, calls)

    return act


def test_what_k1_takes_goes_to_k1_in_its_own_names(seamed: Any) -> None:
    made = seamed(**{seam.TARGET: 512})
    told = call(extra=64)
    assert made.decode(**told) == ("K1", 512)
    (asked,) = made.op.asked
    indices = told.pop("extra_indices_in_kvcache")
    assert asked == {**told, "extra_indices": indices}, "the one keyword that the op calls otherwise"
    assert made.stock_calls == [] and made.counts == {"sparse_decode": 1}


def test_without_a_knob_the_target_is_the_devices(seamed: Any) -> None:
    assert seamed().decode(**call()) == ("K1", 0)


@pytest.mark.parametrize(
    ("rows", "knobs", "taken"),
    [(1, {}, True), (64, {}, True), (65, {}, True), (256, {}, True), (257, {}, False), (8, {seam.ROWS: 8}, True), (9, {seam.ROWS: 8}, False)],
)
def test_rows_above_the_limit_are_sglangs(seamed: Any, rows: int, knobs: dict[str, int], taken: bool) -> None:
    made = seamed(**knobs)
    made.decode(**call(rows))
    assert made.counts == {"sparse_decode" if taken else "left to SGLang": 1} and len(made.stock_calls) == (not taken)


def test_what_k1_does_not_take_reaches_sglang_untouched(seamed: Any) -> None:
    made, told = seamed(takes=False), call(extra=64)
    assert made.decode(**told)[0] is told["q"]
    assert made.stock_calls == [told] and made.counts == {"left to SGLang": 1}


@pytest.mark.parametrize("change", [{"sinks_of_tomorrow": 1}, {"q": None}], ids=["one keyword more", "one less"])
def test_a_call_of_another_shape_is_sglangs(seamed: Any, change: dict[str, Any]) -> None:
    """A later SGLang that says more must not be answered by a kernel that leaves it out."""
    made = seamed()
    told = {**call(), **change}
    assert seam.arguments(told if told["q"] is not None else {k: v for k, v in told.items() if k != "q"}) is None
    if told["q"] is not None:
        made.decode(**told)
        assert made.op.asked == [] and made.stock_calls == [told]


def test_a_name_that_was_imported_before_is_replaced_too(seamed: Any, module: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """`from m import f` before the plugins are loaded (sglang-facts 7.1)."""
    early = types.ModuleType("early")
    monkeypatch.setitem(sys.modules, "early", early)
    probe = module.flashinfer_dsv4_decode_supports_num_heads
    vars(early)["supports"] = probe
    seamed()
    assert vars(early)["supports"](8, 8) and not probe(8, 8), "without FlashInfer the stock probe says no"


@pytest.mark.parametrize(("heads", "rows", "kept"), [(8, 1, True), (8, 64, True), (16, 256, True), (8, 257, False)])
def test_heads_are_not_padded_for_k1(seamed: Any, module: types.ModuleType, heads: int, rows: int, kept: bool) -> None:
    seamed()
    assert module.flashinfer_dsv4_decode_supports_num_heads(heads, rows) is kept


def test_heads_kept_for_k1_that_k1_does_not_take_are_padded_for_sglang(seamed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """FlashInfer's decode has 64 heads and no 8 here: what the probe promised for K1 must not reach it."""
    made = seamed(takes=False)
    monkeypatch.setattr(stock, "_sm120_default_backend", "flashinfer")
    told = call(rows=2, heads=8)
    out, *_ = made.decode(**told)
    (seen,) = made.stock_calls
    assert seen["q"].shape == (2, 1, 64, 512) and seen["attn_sink"].shape == (64,)
    assert torch.equal(seen["q"][:, :, :8], told["q"]) and not seen["q"][:, :, 8:].any()
    assert torch.equal(out, told["q"]), "and the padding is dropped again"


@pytest.mark.parametrize(("rows", "heads"), [(65, 8), (2, 64)])
def test_where_sglang_pads_nothing_nothing_is_padded(seamed: Any, monkeypatch: pytest.MonkeyPatch, rows: int, heads: int) -> None:
    made = seamed(takes=False)
    monkeypatch.setattr(stock, "_sm120_default_backend", "flashinfer")
    made.decode(**call(rows, heads))
    assert made.stock_calls[0]["q"].shape[2] == heads


def test_switched_off_it_is_sglang_alone(module: types.ModuleType) -> None:
    """Without the name in PD_KERNELS no hook is made: the wheel's own functions, by their own names."""
    HookRegistry.apply_hooks()
    for target in (seam.DECODE, seam.PROBE):
        assert resolved(target, "the test").__module__ == module.__name__
        assert not hasattr(resolved(target, "the test"), "__wrapped__")


@pytest.mark.parametrize(
    ("rows", "heads", "extra", "sink"),
    [(1, 8, 0, True), (2, 8, 64, True), (3, 16, 64, False), (2, 3, 128, True), (2, 64, 64, True)],
)
def test_k1_agrees_with_sglangs_own_torch_decode(module: types.ModuleType, rows: int, heads: int, extra: int, sink: bool) -> None:
    """In Triton's interpreter: the output within 2^-6 of its maximum, the LSE (torch's is without the sink) within 1e-4."""
    told = call(rows, heads, extra=extra, sink=sink, seed=rows + heads)
    expected, expected_lse = module.flash_mla_with_kvcache_sm120(**told)
    counts: dict[str, int] = {}
    put_in(counts, **{seam.TARGET: 32})
    out, lse = module.flash_mla_with_kvcache_sm120(**told)
    assert counts == {"sparse_decode": 1}
    assert (out - expected).abs().max() <= 2**-6 * expected.abs().max()
    torch.testing.assert_close(lse, expected_lse.to(lse.dtype), atol=1e-4, rtol=1e-4)

"""Sparse decode in Triton's interpreter against float64, element by element, with everything that a cache and its indices can hold.

Run with TRITON_INTERPRET=1. Every pool is poison (NaN bytes) wherever no key is, and every buffer starts as NaN.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from pd_kernels.sparse_decode import cases, op, reference, shapes
from pd_kernels.sparse_decode.cases import Call, ListOf

WINDOW = ListOf(40)
COMPRESSED = ListOf(37, tokens=64, pages=4)


@pytest.fixture(autouse=True)
def nan_in_new_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The op's buffers begin as NaN: what is read without having been written is seen."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **how: empty(*size, **how).fill_(float("nan")))


def lists_of(call: Call) -> list[op.Keys]:
    first = op.Keys(call.k_cache, call.indices, call.topk_length)
    if call.extra_k_cache is None or call.extra_indices is None or call.extra_topk_length is None:
        return [first]
    return [first, op.Keys(call.extra_k_cache, call.extra_indices, call.extra_topk_length)]


def run(call: Call, splits: int) -> tuple[torch.Tensor, torch.Tensor]:
    return op.attend(call.q, lists_of(call), call.attn_sink, call.softmax_scale, splits)


def agree(got: tuple[torch.Tensor, torch.Tensor], wanted: reference.Result) -> None:
    """Output within one rounding of each weight and one of itself; LSE to fp32's accuracy, and exact where it is -inf."""
    out, lse = got[0][:, 0].double(), got[1][..., 0].double()
    assert out.isfinite().all()
    worst = ((out - wanted.out).abs() / wanted.bound).max().item()
    assert worst <= 1, f"{worst:.3g} of the bound"
    none = wanted.lse == float("-inf")
    assert torch.equal(lse == float("-inf"), none)
    apart = ((lse - wanted.lse).abs() / (1 + wanted.lse.abs()))[~none]
    assert not len(apart) or apart.max().item() < 1e-6, f"LSE {apart.max().item():.3g} apart"


def check(call: Call, splits: int = 2) -> reference.Result:
    wanted = call.expected()
    agree(run(call, splits), wanted)
    return wanted


@pytest.mark.parametrize("heads", [3, 8, 16, 20])
def test_heads_of_one_and_of_several_blocks(heads: int) -> None:
    check(cases.call(2, heads, WINDOW, COMPRESSED, seed=heads))


@pytest.mark.parametrize("splits", [1, 3, 4, 5, 7, 32])
def test_splits(splits: int) -> None:
    check(cases.call(1, 8, WINDOW, COMPRESSED, seed=splits), splits)


@pytest.mark.parametrize("width", [1, 15, 16, 17, 33, 192])
def test_lists_that_do_not_end_with_a_tile(width: int) -> None:
    check(cases.call(1, 3, ListOf(width, pages=3, holes=0), seed=width))


@pytest.mark.parametrize("tokens", [256, 128, 64, 32, 2])
def test_pages(tokens: int) -> None:
    main, extra = ListOf(20, tokens=tokens, pages=600 // tokens), ListOf(20, tokens=2, pages=40)
    check(cases.call(1, 3, main, extra, seed=tokens))
    check(cases.call(1, 3, extra, main, seed=tokens))


def test_holes_and_keys_that_come_twice() -> None:
    check(cases.call(2, 8, ListOf(48, tokens=2, pages=6, holes=0.6), ListOf(48, tokens=2, pages=2, holes=0.0)))


@pytest.mark.parametrize("slot", [512, 513, 2**20, 2**31 - 1, -2, -(2**31)])
def test_slots_outside_the_pool_are_not_keys(slot: int) -> None:
    call = cases.call(1, 3, ListOf(18), ListOf(17))
    for indices in (call.indices, call.extra_indices):
        assert indices is not None
        indices[0, 0, 3:6] = slot
    check(call)


def test_the_last_slot_of_a_pool_is_a_key() -> None:
    call = cases.call(1, 3, ListOf(5, tokens=2, pages=3, holes=0))
    row = call.k_cache.as_strided((3, shapes.page_bytes(2)), (shapes.page_bytes(2), 1))
    row[2, 576 : 2 * 576] = 0x38  # 1.0 in e4m3
    row[2, 2 * 576 + 8 : 2 * 576 + 16] = 127
    call.indices[0, 0, 0] = 5
    check(call)


@pytest.mark.parametrize("live", [(0, 0), (0, 5), (5, 0), (1, 37), (40, 1), (-40, 37), (5, -40), (99, 99)])
def test_lengths(live: tuple[int, int]) -> None:
    main, extra = (replace(what, live=number) for what, number in zip((WINDOW, COMPRESSED), live, strict=True))
    call = cases.call(2, 3, main, extra)
    wanted = check(call, splits=3)
    if live == (0, 0):
        assert torch.equal(run(call, 3)[0], torch.zeros(2, 1, 3, 512, dtype=torch.bfloat16))
        assert (wanted.lse == float("-inf")).all()


def test_rows_with_nothing_valid_beside_rows_that_have_keys() -> None:
    check(cases.call(4, 3, ListOf(20, live=[20, 0, 7, 0]), ListOf(20, tokens=2, pages=20, live=[0, 0, 20, 3])), 3)
    check(cases.call(2, 3, ListOf(20, holes=1.0), COMPRESSED))
    check(cases.call(2, 3, ListOf(20, holes=1.0), ListOf(20, holes=1.0)))


def test_a_wide_list_with_few_live_keys_is_divided_among_all_splits() -> None:
    """A C128 list is as wide as the longest context: what is divided is the live tiles, so the chain is theirs."""
    call = cases.call(1, 3, ListOf(32), ListOf(1_024, tokens=2, pages=400, live=64))
    seen = partials(call, 6)
    assert (seen > float("-inf")).all(), "2 + 4 live tiles are one tile for each of 6 splits"
    check(call, 6)


def partials(call: Call, splits: int) -> torch.Tensor:
    """The partials' LSEs [T, H, S], in base 2, as the split kernel leaves them."""
    rows, _, heads, _ = call.q.shape
    part, lses = torch.empty(rows, heads, splits, shapes.DIM), torch.empty(rows, heads, splits)
    op._split(call.q, lists_of(call), call.softmax_scale, part, lses)
    return lses


@pytest.mark.parametrize("sink", [None, float("-inf"), -1e4, 0.0, 3.0, 1e4])
@pytest.mark.parametrize("live", [None, 0])
def test_sinks(sink: float | None, live: int | None) -> None:
    call = cases.call(1, 3, ListOf(20, live=live), sink=sink)
    check(call, 1)
    check(call, 2)


def test_every_head_has_its_own_sink() -> None:
    call = cases.call(2, 20, ListOf(20))
    check(replace(call, attn_sink=torch.linspace(-4, 4, 20)))


@pytest.mark.parametrize("loud", [0.0, 200.0, 2e4])
def test_scores_that_overflow_an_exponential(loud: float) -> None:
    wanted = check(cases.call(1, 8, WINDOW, COMPRESSED, loud=loud), 3)
    assert wanted.lse.abs().max() > 88 or loud == 0


def test_one_split_far_above_the_rest() -> None:
    call = cases.call(1, 8, ListOf(32, exponents=(124,)), ListOf(32, exponents=(134,)), loud=8.0)
    lses = partials(call, 4)
    assert (lses.amax(dim=2) - lses.amin(dim=2)).max() > 200 / 0.694, "e^200"
    check(call, 4)


@pytest.mark.parametrize(
    ("exponents", "loud"),
    [
        ((0,), 1.0),
        ((1,), 1.0),
        ((0, 1, 60, 127), 1.0),
        ((60, 127), 2.0),
        ((200,), 2.0**-75),
        ((0, 60, 127, 200), 2.0**-75),
    ],
)
def test_scales_from_the_least_to_very_large(exponents: tuple[int, ...], loud: float) -> None:
    check(cases.call(1, 3, ListOf(20, exponents=exponents), ListOf(20, exponents=exponents), loud=loud))


@pytest.mark.parametrize("rows", [1, 2, 64, 65, 96])
def test_rows_through_the_chooser(rows: int) -> None:
    call = cases.call(rows, 1, ListOf(2), ListOf(3, tokens=2, pages=8), seed=rows)
    assert op.takes(**call.arguments, head_dim_v=512)
    agree(op.sparse_decode(**call.arguments, head_dim_v=512, target_ctas=96), call.expected())


def test_queries_that_are_a_part_of_something() -> None:
    call = cases.call(3, 8, ListOf(20))
    wide = torch.full((6, 1, 64, 1_024), float("nan"), dtype=torch.bfloat16)
    wide[::2, :, 16:24, 512:] = call.q
    strided = replace(call, q=wide[::2, :, 16:24, 512:])
    assert op.takes(**strided.arguments, head_dim_v=512)
    check(strided)


def test_forms_that_mean_the_same() -> None:
    call = cases.call(2, 3, WINDOW, COMPRESSED)
    assert call.extra_k_cache is not None
    other = replace(
        call,
        indices=torch.nn.functional.pad(call.indices[:, 0], (0, 24))[:, :40],
        k_cache=call.k_cache.view(torch.float8_e4m3fn),
        extra_k_cache=call.extra_k_cache.view(torch.float8_e4m3fn),
    )
    assert op.takes(**other.arguments, head_dim_v=512)
    same(run(call, 3), run(other, 3))


def same(one: tuple[torch.Tensor, torch.Tensor], other: tuple[torch.Tensor, torch.Tensor]) -> None:
    """Equal in every bit."""
    for left, right in zip(one, other, strict=True):
        assert torch.equal(left.view(torch.uint8), right.view(torch.uint8))


def test_the_same_launch_twice_gives_the_same_bytes() -> None:
    call = cases.call(2, 8, WINDOW, COMPRESSED, loud=4.0)
    same(run(call, 4), run(call, 4))


def test_a_target_of_zero_needs_a_device() -> None:
    with pytest.raises(ValueError, match="no device"):
        op.sparse_decode(**cases.call(1, 3, WINDOW).arguments, head_dim_v=512, target_ctas=0)


def test_no_lengths_no_call() -> None:
    with pytest.raises(ValueError, match="topk_length"):
        op.sparse_decode(**{**cases.call(1, 3, WINDOW).arguments, "topk_length": None}, head_dim_v=512, target_ctas=8)


def shifted(tensor: torch.Tensor, elements: int) -> torch.Tensor:
    """The same tensor, its memory beginning `elements` later than a fresh one's."""
    return torch.cat([tensor.flatten()[:elements], tensor.flatten()])[elements:].view(tensor.shape)


CALL = cases.call(2, 8, WINDOW, COMPRESSED)
EXTRA = CALL.extra_k_cache
POOL = CALL.k_cache


@pytest.mark.parametrize(
    "change",
    [
        {"head_dim_v": 448},
        {"q": CALL.q.float()},
        {"q": CALL.q[0]},
        {"q": CALL.q[..., :448]},
        {"q": CALL.q.expand(2, 2, 8, 512)},
        {"q": CALL.q[:0]},
        {"q": CALL.q.expand(2, 1, 8, 512)[:1].expand(257, 1, 8, 512)},
        {"q": CALL.q[:1]},  # not the lists' rows
        {"q": torch.zeros(2, 1, 8, 1_024, dtype=torch.bfloat16)[..., ::2]},
        {"q": torch.zeros(2, 1, 8, 516, dtype=torch.bfloat16)[..., :512]},
        {"q": shifted(CALL.q, 1)},
        {"k_cache": POOL.view(torch.int8)},
        {"k_cache": POOL[..., :576]},
        {"k_cache": torch.zeros(2, 256, 1, 656, dtype=torch.uint8)},  # another layout
        {"k_cache": torch.zeros(2, 96, 1, 584, dtype=torch.uint8)},
        {"k_cache": torch.zeros(2, 256 * 584 + 8, dtype=torch.uint8)[:, : 256 * 584].view(2, 256, 1, 584)},
        {"indices": CALL.indices.long()},
        {"indices": CALL.indices.expand(2, 2, 40)},
        {"indices": CALL.indices[:1]},
        {"indices": CALL.indices[..., ::2]},
        {"indices": CALL.indices[..., :0]},
        {"topk_length": None},
        {"topk_length": CALL.topk_length.long()},
        {"topk_length": CALL.topk_length[:1]},
        {"attn_sink": torch.zeros(9)},
        {"attn_sink": torch.zeros(8, dtype=torch.bfloat16)},
        {"attn_sink": torch.zeros(16)[::2]},
        {"extra_k_cache": None},
        {"extra_indices": None},
        {"extra_topk_length": None},
        {"extra_k_cache": EXTRA[..., :576] if EXTRA is not None else None},
        {"q": CALL.q.to("meta")},
    ],
)
def test_what_is_not_taken(change: dict[str, Any]) -> None:
    taken = {**CALL.arguments, "head_dim_v": 512}
    assert op.takes(**taken)
    assert op.takes(
        **{**taken, "attn_sink": None, "extra_k_cache": None, "extra_indices": None, "extra_topk_length": None}
    )
    assert not op.takes(**{**taken, **change})


def test_the_reference_reads_bytes_as_the_format_says() -> None:
    """One key by hand: e4m3 1.5 times 2^(exponent-127) in each group of 64, then bf16 2.0."""
    page = torch.zeros(1, shapes.page_bytes(2), dtype=torch.uint8)
    page[0, 576 : 576 + 448] = 0x3C
    page[0, 576 + 448 : 1_152] = torch.tensor([0x00, 0x40] * 64, dtype=torch.uint8)
    page[0, 1_160:1_167] = torch.tensor([0, 1, 60, 127, 128, 200, 254], dtype=torch.uint8)
    key = reference.keys_of(page[:, : 2 * 584].view(1, 2, 1, 584), torch.tensor([1]))[0]
    assert [key[64 * group].item() for group in range(8)] == [
        1.5 * 2.0**power for power in (-127, -126, -67, 0, 1, 73, 127)
    ] + [2.0]
    assert key.unique().numel() == 8

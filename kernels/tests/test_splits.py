"""How a launch is split, the knob behind it, and what an SM holds: tables for the cases, properties for the rest."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pd_kernels.sparse_decode import op, shapes, splits
from pd_kernels.sparse_decode.splits import Footprint, choose_kv_splits, parse_target

H8, H16 = Footprint(128, 24_576), Footprint(168, 32_768)


@pytest.mark.parametrize(("text", "target"), [(None, 0), ("0", 0), ("1", 1), ("512", 512), ("0752", 752)])
def test_a_number_of_ctas_or_nothing_is_a_target(text: str | None, target: int) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize(
    "text", ["", "-1", "+512", " 512", "512 ", "5_12", "512.0", "1e3", "auto", "0x200", "\u0665", "\u00b2"]
)
def test_anything_else_stops_the_start_and_says_what_to_write(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"SGLANG_SM120_MMA_TARGET_CTAS=.*write a number of CTAs such as 512"
    ) as failure:
        parse_target(text)
    assert repr(text) in str(failure.value)


@pytest.mark.parametrize(
    ("rows", "heads", "target", "wanted"),
    [
        (1, 8, 752, 40),  # a tile each: no more than there are
        (64, 8, 188, 2),
        (64, 8, 512, 8),
        (80, 8, 512, 6),
        (96, 8, 188, 1),  # the cliff of the old target: 40 tiles where 94 rows walk 20
        (94, 8, 188, 2),
        (64, 8, 752, 10),
        (64, 16, 564, 8),
        (96, 16, 564, 5),
        (64, 64, 564, 2),  # padded heads: four blocks
        (256, 8, 752, 2),
    ],
)
def test_splits_of_128_plus_512_keys(rows: int, heads: int, target: int, wanted: int) -> None:
    assert choose_kv_splits(rows, heads, 128, target, extra_topk=512, block_h=shapes.block_heads(heads)) == wanted


def test_a_wide_list_is_cut_into_64_at_most() -> None:
    assert (
        choose_kv_splits(1, 8, 128, 10_000, extra_topk=8_192, block_h=8) == 58
    )  # 520 tiles by 9, where 64 would also be 9 each


def test_a_target_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="0 CTAs"):
        choose_kv_splits(1, 8, 128, 0, block_h=8)


rows_of = st.integers(1, 300)
heads_of = st.integers(1, 128)
width_of = st.integers(1, 2_000)
target_of = st.integers(1, 4_000)


def ctas(rows: int, heads: int, count: int) -> int:
    return rows * -(-heads // shapes.block_heads(heads)) * count


def chosen(rows: int, heads: int, topk: int, target: int, extra: int = 0) -> int:
    return choose_kv_splits(rows, heads, topk, target, extra_topk=extra, block_h=shapes.block_heads(heads))


def chain(topk: int, count: int) -> int:
    return -(-splits.tiles(topk) // count)


@settings(max_examples=600, deadline=None)
@given(rows_of, heads_of, width_of, target_of, st.integers(0, 2_000))
def test_never_more_ctas_than_the_target_unless_the_rows_alone_are(
    rows: int, heads: int, topk: int, target: int, extra: int
) -> None:
    assert ctas(rows, heads, chosen(rows, heads, topk, target, extra)) <= max(target, ctas(rows, heads, 1))


@settings(max_examples=600, deadline=None)
@given(rows_of, heads_of, width_of, target_of, st.integers(0, 2_000))
def test_every_tile_is_somebodys_and_no_split_is_empty(
    rows: int, heads: int, topk: int, target: int, extra: int
) -> None:
    count = chosen(rows, heads, topk, target, extra)
    total = splits.tiles(topk) + splits.tiles(extra)
    per = -(-total // count)
    runs = [range(split * per, min(split * per + per, total)) for split in range(count)]
    assert [tile for run in runs for tile in run] == list(range(total))
    assert all(runs)
    assert 1 <= count <= shapes.MAX_SPLITS


@settings(max_examples=600, deadline=None)
@given(rows_of, heads_of, width_of, target_of, st.integers(0, 1_000))
def test_a_larger_target_never_lengthens_the_chain(rows: int, heads: int, topk: int, target: int, more: int) -> None:
    before, after = chosen(rows, heads, topk, target), chosen(rows, heads, topk, target + more)
    assert chain(topk, after) <= chain(topk, before)


@settings(max_examples=600, deadline=None)
@given(rows_of, heads_of, width_of, target_of, st.integers(1, 100))
def test_more_rows_are_never_split_more(rows: int, heads: int, topk: int, target: int, more: int) -> None:
    assert chosen(rows + more, heads, topk, target) <= chosen(rows, heads, topk, target)


@settings(max_examples=600, deadline=None)
@given(rows_of, heads_of, width_of, target_of)
def test_rows_that_fill_the_target_are_not_split(rows: int, heads: int, topk: int, target: int) -> None:
    if 2 * ctas(rows, heads, 1) > target:
        assert chosen(rows, heads, topk, target) == 1


@pytest.mark.parametrize(
    ("cta", "sm", "wanted"),
    [
        (H8, splits.SM_120, 4),  # 4 x 25,600 B is all of it
        (Footprint(128, 24_577), splits.SM_120, 3),
        (Footprint(129, 24_576), splits.SM_120, 3),
        (H16, splits.SM_120, 3),
        (Footprint(168, 40_960), splits.SM_120, 2),
        (Footprint(176, 32_768), splits.SM_120, 2),
        (Footprint(24, 2_048), splits.SM_120, 12),  # threads
        (Footprint(24, 2_048, threads=32), splits.SM_120, 24),  # CTA slots
        (Footprint(128, 101_377), splits.SM_120, 0),
        (H8, splits.SM_90, 4),
    ],
)
def test_ctas_that_an_sm_holds(cta: Footprint, sm: splits.Multiprocessor, wanted: int) -> None:
    assert splits.ctas_per_sm(cta, sm) == wanted


@pytest.mark.parametrize(("cta", "wanted"), [(H8, 752), (H16, 564)])
def test_the_default_target_is_what_the_device_holds_at_once(cta: Footprint, wanted: int) -> None:
    assert splits.default_target(188, cta, splits.SM_120) == wanted
    assert splits.default_target(170, cta, splits.SM_120) == wanted // 188 * 170


def test_a_kernel_that_does_not_fit_has_no_target() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        splits.default_target(188, Footprint(128, 200_000), splits.SM_120)


def test_the_default_target_is_read_from_the_device() -> None:
    device = SimpleNamespace(
        multi_processor_count=84,
        regs_per_multiprocessor=65_536,
        shared_memory_per_multiprocessor=102_400,
        max_threads_per_multi_processor=1_536,
    )
    assert op.device_target(device, H8) == 84 * 4
    assert (
        op.device_target(SimpleNamespace(**{**vars(device), "shared_memory_per_multiprocessor": 51_200}), H8) == 84 * 2
    )


@pytest.mark.parametrize(("tokens", "wanted"), [(256, 149_760), (64, 37_440), (2, 1_728)])
def test_bytes_of_a_page(tokens: int, wanted: int) -> None:
    assert shapes.page_bytes(tokens) == wanted


@pytest.mark.parametrize(("heads", "block"), [(1, 8), (8, 8), (9, 16), (16, 16), (64, 16)])
def test_heads_of_a_cta(heads: int, block: int) -> None:
    assert shapes.block_heads(heads) == block


@pytest.mark.parametrize(("count", "block"), [(1, 2), (2, 2), (3, 4), (33, 64), (64, 64)])
def test_partials_that_the_merge_reads(count: int, block: int) -> None:
    assert shapes.merge_block(count) == block

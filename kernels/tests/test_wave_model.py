"""The wave model: its geometry against figures worked out by hand, its properties, and the page that is generated from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pd_kernels.model import page, plot
from pd_kernels.model.waves import (
    CTAS_PER_SM,
    POLICIES,
    ROWS,
    SMS,
    Assumptions,
    Shape,
    alike,
    chunks_per_cta,
    cliffs,
    flashinfer,
    launches,
    split_k,
)

ASSUMED = Assumptions()
ROOT = Path(__file__).parents[2]

SPLIT_K = {  # heads, extra keys, rows, target -> splits, CTAs, tiles of the longest CTA, waves (kernels.md 4)
    (8, 512, 1, 188): (40, 40, 1, 1),
    (8, 512, 16, 752): (40, 640, 1, 1),
    (8, 512, 48, 188): (3, 144, 14, 1),
    (8, 512, 64, 376): (5, 320, 8, 1),
    (8, 512, 64, 512): (8, 512, 5, 1),
    (8, 512, 80, 512): (6, 480, 7, 1),
    (8, 512, 96, 188): (1, 96, 40, 1),
    (8, 512, 96, 752): (7, 672, 6, 1),
    (8, 512, 128, 376): (2, 256, 20, 1),
    (16, 512, 16, 752): (40, 640, 1, 2),
    (16, 512, 64, 752): (10, 640, 4, 2),
    (16, 512, 128, 512): (4, 512, 10, 1),
    (8, 0, 48, 188): (3, 144, 3, 1),
    (8, 0, 80, 752): (8, 640, 1, 1),
}
FLASHINFER = {1: (10, 1, 1), 24: (120, 2, 1), 32: (160, 2, 1), 48: (144, 4, 1), 64: (320, 2, 2), 65: (65, 10, 1), 128: (128, 10, 1)}
"""Rows -> CTAs, chunks of the longest CTA, waves, at 8 heads and 128 + 512 keys (kernels.md 4)."""


@pytest.mark.parametrize(("case", "wanted"), SPLIT_K.items(), ids=map(str, SPLIT_K))
def test_geometry_of_split_k(case: tuple[int, int, int, int], wanted: tuple[int, int, int, int]) -> None:
    heads, extra, rows, target = case
    one = split_k(rows, target, Shape(heads, 128, extra), ASSUMED)
    assert (one.splits, one.ctas, one.chain, one.waves) == wanted


@pytest.mark.parametrize(("rows", "wanted"), FLASHINFER.items())
def test_geometry_of_flashinfer(rows: int, wanted: tuple[int, int, int]) -> None:
    one = flashinfer(rows, Shape(), ASSUMED)
    assert (one.ctas, one.chain, one.waves) == wanted


def test_the_floor_is_the_bytes_of_the_keys() -> None:
    assert split_k(64, 512, Shape(), ASSUMED).floor_us == pytest.approx(64 * 640 * 584 / 1.79e6)


def test_times_worked_out_by_hand() -> None:
    one = split_k(1, 188, Shape(), ASSUMED)  # a tile each, then the merge: bytes hardly count
    vector, rate = 8 * 512 * 2, 1.79e6 * 0.85
    assert one.us == pytest.approx(3 + 1.5 + 2.5 + (vector + 40 * 2 * vector / 2) / rate)
    assert split_k(96, 188, Shape(), ASSUMED).us == pytest.approx(3 + 40 * 1.5 + 2.5 + 96 * (vector + 2 * vector / 2) / rate)
    assert flashinfer(80, Shape(), ASSUMED).us == pytest.approx(4 + 10 * 4.5)


def test_a_second_wave_takes_its_chain_again() -> None:
    none = replace(ASSUMED, bandwidth=1e12)
    assert split_k(64, 752, Shape(16), none).us == pytest.approx(2 * (3 + 4 * 1.5) + 2.5, abs=1e-3)


shape = st.builds(Shape, st.sampled_from([3, 8, 16, 64]), st.integers(1, 256), st.integers(0, 1024))
target = st.integers(1, 2000)
rows = st.integers(1, 256)


@settings(max_examples=300, deadline=None)
@given(rows=rows, target=target, shape=shape)
def test_no_launch_is_faster_than_its_bytes_or_its_chain(rows: int, target: int, shape: Shape) -> None:
    one = split_k(rows, target, shape, ASSUMED)
    assert one.us > one.floor_us
    assert one.us >= one.waves * (ASSUMED.prologue + one.chain * ASSUMED.tile) - 1e-9
    assert one.splits * one.chain * one.tile_keys >= shape.keys


@settings(max_examples=300, deadline=None)
@given(rows=rows, target=target, shape=shape, factor=st.floats(1.1, 4))
def test_more_bandwidth_and_faster_tiles_never_cost_time(rows: int, target: int, shape: Shape, factor: float) -> None:
    was = split_k(rows, target, shape, ASSUMED).us
    for better in (replace(ASSUMED, bandwidth=ASSUMED.bandwidth * factor), replace(ASSUMED, tile=ASSUMED.tile / factor)):
        assert split_k(rows, target, shape, better).us <= was + 1e-9


@settings(max_examples=300, deadline=None)
@given(base=st.integers(1, 2000), chunks=st.integers(1, 40))
def test_flashinfer_never_has_more_than_three_waves_unless_it_must(base: int, chunks: int) -> None:
    each = chunks_per_cta(base, chunks)
    ctas = base * -(-chunks // each)
    assert 1 <= each <= chunks
    assert ctas <= 3 * SMS or base > 3 * SMS


def test_flashinfer_takes_the_longer_chain_where_two_fill_alike() -> None:
    assert chunks_per_cta(256, 10) == 9  # 5 to 9 chunks all make 512 CTAs, 2.7 of 3 waves


def test_unset_is_one_wave_and_a_target_above_it_is_not() -> None:
    assert all(one.waves == 1 for heads in (8, 16) for one in launches("unset", Shape(heads), ASSUMED))
    assert max(one.waves for one in launches("752", Shape(16), ASSUMED)) == 2
    assert [row for row, _ in cliffs(launches("188", Shape(), ASSUMED))][-1] == 95
    assert next(loss for row, loss in cliffs(launches("flashinfer", Shape(), ASSUMED)) if row == 65) > 0.3


def test_the_reported_gains_are_not_reproduced() -> None:
    assert alike(512, (8, 16), ASSUMED) == []


def test_slots_are_those_of_the_compiled_kernels() -> None:
    table = json.loads((ROOT / "kernels" / "gates" / "sparse_decode.json").read_text(encoding="utf-8"))
    for heads, ctas in CTAS_PER_SM.items():
        assert {row["ctas_per_sm"] for row in table["kernels"] if row["name"].startswith(f"split-h{heads}")} == {ctas}


def test_the_page_is_what_the_model_gives() -> None:
    assert page.main([str(ROOT / "docs" / "kernels")]) == 0


def test_a_page_that_is_out_of_date_is_seen_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "README.md").write_text(f"a\n{page.BEGIN}\nold\n{page.END}\nz\n", encoding="utf-8")
    assert page.main([str(tmp_path)]) == 1
    assert "--write" in capsys.readouterr().err
    assert page.main([str(tmp_path), "--write"]) == 0
    assert page.main([str(tmp_path)]) == 0
    assert (tmp_path / "wave-model.svg").read_text(encoding="utf-8").count("target 512") == 1
    with pytest.raises(ValueError, match="needs one line"):
        page.inserted("no markers", "x")


def test_every_policy_has_a_colour_and_every_row_a_point() -> None:
    assert set(plot.COLOURS) == {*POLICIES, "flashinfer"}
    assert [one.rows for one in launches("512", Shape(), ASSUMED)] == list(ROWS)

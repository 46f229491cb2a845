"""The CUDA source of the index-key kernels, run by g++ with every CUDA thread a thread, against float64.

The last tests show that this can fail: a barrier or a wait that is missing, a stage that is refilled too soon, wrong
arithmetic, an index that is not checked.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pd_kernels.index_bf16 import op
from pd_kernels.index_bf16.build import build_host
from pd_kernels.index_bf16.cases import Problem, keys, problem, run, stored, worst_logits, worst_store
from pd_kernels.index_bf16.op import IndexKernels
from pd_kernels.index_bf16.shapes import DIM, PAGE

SOURCE = Path(op.__file__).parent


def twin(folder: Path, *flags: str, source: Path = SOURCE) -> IndexKernels:
    return IndexKernels(build_host(folder / "twin.so", *flags, source=source))


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> IndexKernels:
    return twin(tmp_path_factory.mktemp("twin"))


@pytest.fixture(params=[0, 1], ids=["early copies", "late copies"])
def both(request: pytest.FixtureRequest, kernels: IndexKernels) -> Iterator[IndexKernels]:
    """The kernels when asynchronous copies land at once, and when they land only where they are waited for."""
    kernels._library.pd_host_copies(request.param)
    yield kernels
    kernels._library.pd_host_copies(0)


CASES = {
    "one key": ([1], 1, 1),
    "a tile and one": ([33], 40, 1),
    "several stages": ([257], 257, 1),
    "rows that differ, chunks": ([200, 0, 5, 64], 203, 3),
    "more chunks than pages": ([100, 65], 128, 5),
    "longer than the columns": ([500], 100, 2),
    "negative length": ([-3, 10], 17, 2),
}


@pytest.mark.parametrize(("lengths", "columns", "chunks"), CASES.values(), ids=CASES)
def test_logits_are_within_the_bound(both: IndexKernels, lengths: list[int], columns: int, chunks: int) -> None:
    assert worst_logits(both, problem(lengths, columns), chunks) < 1


def poisoned() -> Problem:
    """NaN and infinity where a corrupt pool could have them, and pages that do not exist."""
    given = problem([256, 130, 64], 256)
    given.pages[given.table[0, 1], 5, 7] = float("nan")
    given.pages[given.table[0, 1], 6, 7] = float("inf")
    given.q.view(torch.uint8)[1, 3, 9] = 0x7F
    given.weights[2, 11] = float("nan")
    given.table[0, 2], given.table[0, 3], given.table[1, 1] = -1, len(given.pages), 2**31 - 1
    return given


def test_nothing_is_ever_nan_and_a_page_outside_the_pool_is_no_key(both: IndexKernels) -> None:
    given = poisoned()
    assert worst_logits(both, given, 2) < 1
    got = run(both, given, 2)
    assert not got.isnan().any()
    assert got[0, 128:].isneginf().all()
    assert got[1, 64:128].isneginf().all()


def test_every_e4m3_value_is_exact(kernels: IndexKernels) -> None:
    given = problem([DIM], DIM)
    given.pages[given.table[0].long()] = torch.eye(DIM).reshape(2, PAGE, DIM).to(torch.bfloat16)
    every = torch.arange(64 * DIM).reshape(64, DIM).remainder(256)
    given.q.view(torch.uint8)[0] = every.where(every % 128 != 127, 0).to(torch.uint8)  # but NaN: it is in every product
    given.weights[:] = 2.0 ** torch.randint(-3, 3, (64,)).float()
    wanted = (given.weights[0].double() @ given.q[0].double().clamp(min=0)).float()
    assert torch.equal(run(kernels, given, 1)[0], wanted)


def test_the_same_bits_every_time_and_for_every_split(kernels: IndexKernels) -> None:
    given = problem([300, 77], 310)
    first = run(kernels, given, 1)
    assert all(torch.equal(run(kernels, given, chunks), first) for chunks in (1, 2, 3, 5))


@pytest.mark.parametrize("decode", [True, False], ids=["decode", "prefill"])
@pytest.mark.parametrize("kv", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("weight", [torch.bfloat16, torch.float32])
def test_keys_are_stored_where_the_plan_says(kernels: IndexKernels, decode: bool, kv: torch.dtype, weight: torch.dtype) -> None:
    assert worst_store(kernels, keys(decode, kv, weight)) < 1


def test_slots_positions_and_rows_outside_are_not_written(kernels: IndexKernels) -> None:
    given = keys(False, torch.bfloat16, torch.bfloat16)
    plan = given.plan.view(torch.int32).reshape(-1, 4)
    given.out_loc[3], given.out_loc[4] = -1, 4 * PAGE
    plan[5, 0], plan[6, 1] = 4 * 1000, 0xFFFF
    left_out = {int(given.out_loc[plan[work, 1]]) for work in (2, 5)} | {-1, 4 * PAGE}
    written = set(torch.where(~stored(kernels, given).flatten(0, 1).isnan().all(1))[0].tolist())
    assert written == {int(given.out_loc[plan[work, 1]]) for work in (0, 1, 3, 4, 7, 8)} - left_out


def test_wrong_tensors_are_refused_before_the_kernel(kernels: IndexKernels) -> None:
    given = problem([10, 10], 20)
    for name, wrong in {
        "weights": given.weights.half(),
        "pages": given.pages[:, :32],
        "q": given.q[:, :, :64],
        "lengths": given.lengths.long(),
        "table": given.table.long(),
    }.items():
        broken = Problem(**{**given.__dict__, name: wrong})
        with pytest.raises(ValueError, match=name):
            run(kernels, broken, 1)


def test_a_library_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"python -m pd_kernels\.index_bf16\.build"):
        IndexKernels(tmp_path / "none.so")


def sanitized(folder: Path, which: str, *flags: str, late: bool = False) -> subprocess.CompletedProcess[str]:
    program = build_host(folder / "sanitized", "-g", f"-fsanitize={which}", *flags, main="sanitized.cpp")
    return subprocess.run(["setarch", "-R", str(program), *(["late"] if late else [])], capture_output=True, text=True, check=False)


def test_no_data_race(tmp_path: Path) -> None:
    done = sanitized(tmp_path, "thread")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_barrier_is_a_data_race(tmp_path: Path) -> None:
    done = sanitized(tmp_path, "thread", "-DPD_PLANT_NO_BARRIER")
    assert "data race" in done.stderr


def test_no_address_outside_any_buffer(tmp_path: Path) -> None:
    done = sanitized(tmp_path, "address")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_missing_wait_reads_what_has_not_arrived(tmp_path: Path) -> None:
    broken = twin(tmp_path, "-DPD_PLANT_NO_WAIT")
    broken._library.pd_host_copies(1)
    assert worst_logits(broken, problem([257], 257), 1) > 1


MUTATIONS = {
    "a stage is refilled while it is read": ("tile + kStages - 1, thread);", "tile + kStages, thread);"),
    "the heads of a warp's second half have the first half's weights": ("weights[0], weight_8 = weights[8]", "weights[0], weight_8 = weights[0]"),
    "no relu": ("fmaxf(acc[i / 2][i % 2], 0.0f)", "acc[i / 2][i % 2]"),
    "keys read without the swizzle": ("[(chunk ^ (lane % 8)) * 8]", "[chunk * 8]"),
    "partial sums in one buffer, read by a slow warp": ("partial[tile % 2][warp][key] =", "partial[0][warp][key] ="),
    "a page outside the pool is page 0": ("page < page_count ? page : -1", "page < page_count ? page : 0"),
    "the turn goes the other way": ("real * turn[i] - imaginary", "real * turn[i] + imaginary"),
    "bf16 by cutting off": ("(bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16", "bits >> 16"),
}


@pytest.mark.parametrize(("old", "new"), MUTATIONS.values(), ids=MUTATIONS)
def test_a_planted_defect_is_seen(tmp_path: Path, old: str, new: str) -> None:
    shutil.copytree(SOURCE, tmp_path / "source", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    file = tmp_path / "source" / "index_bf16.cuh"
    text = file.read_text(encoding="utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), encoding="utf-8")
    broken = twin(tmp_path, source=tmp_path / "source")
    assert (
        worst_store(broken, keys(True, torch.bfloat16, torch.bfloat16)) > 1
        or worst_logits(broken, problem([257], 257), 1) > 1
        or worst_logits(broken, poisoned(), 2) > 1
    )

"""The nvcc gate: its arithmetic, and that it sees what it is for."""

from __future__ import annotations

import copy
import json
import shutil
import sysconfig
from pathlib import Path

import pytest
from gates import nvcc_gate

from pd_kernels.index_bf16 import build, op

PRINTED = """\
ptxas info    : Compiling entry function 'index_logits_bf16' for 'sm_120a'
ptxas info    : Function properties for index_logits_bf16
    0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 110 registers, used 1 barriers, 25600 bytes smem
ptxas info    : Compiling entry function 'index_k_store_bf16' for 'sm_120a'
ptxas info    : Function properties for index_k_store_bf16
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 27 registers, used 0 barriers
"""
COMMITTED = json.loads(nvcc_gate.TABLE.read_text(encoding="utf-8"))


def test_what_ptxas_prints_is_read() -> None:
    found = nvcc_gate.parse(PRINTED)
    assert found["index_logits_bf16"] == {"registers": 110, "shared_bytes": 25600, "stack_bytes": 0, "spill_bytes": 12, "ctas_per_sm": 3}
    assert found["index_k_store_bf16"]["shared_bytes"] == 0


def test_the_committed_table_is_what_nvcc_makes_of_the_source() -> None:
    assert nvcc_gate.wrong(nvcc_gate.measured(), COMMITTED) == []


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [("spill_bytes", 4, "4 bytes spilled"), ("stack_bytes", 8, "8 of stack"), ("registers", 111, "'registers': 111"), ("ctas_per_sm", 2, "2 CTAs")],
)
def test_a_kernel_that_got_worse_is_refused(key: str, value: int, says: str) -> None:
    found = copy.deepcopy(COMMITTED)
    found["kernels"]["sm_120a"]["index_logits_bf16"][key] = value
    assert any(says in line for line in nvcc_gate.wrong(found, COMMITTED))


def test_another_nvcc_and_a_missing_kernel_are_refused() -> None:
    assert "nvcc 1.0" in nvcc_gate.wrong({**COMMITTED, "nvcc": "1.0"}, COMMITTED)[0]
    found = copy.deepcopy(COMMITTED)
    del found["kernels"]["sm_120f"]["index_k_store_bf16"]
    assert any(line.startswith("sm_120f: kernels") for line in nvcc_gate.wrong(found, COMMITTED))


def test_no_nvcc_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(RuntimeError, match=r"requirements/nvcc\.lock"):
        build.find_nvcc()


def test_two_builds_are_the_same_bytes_and_load_no_runtime_of_their_own(tmp_path: Path) -> None:
    first, second = build.build(tmp_path / "a.so"), build.build(tmp_path / "b.so")
    assert first.read_bytes() == second.read_bytes()
    assert op.IndexKernels(first)
    assert b"libcudart.so" not in first.read_bytes()


def test_a_source_that_does_not_compile_says_what_nvcc_said(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="sm_1"):
        build.build(tmp_path / "x.so", ("sm_1",))
    assert list(tmp_path.iterdir()) == []

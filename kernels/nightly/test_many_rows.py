"""What is too long for every change: the rows around 64 with the model's own lists, through the chooser, in the interpreter."""

from __future__ import annotations

import pytest
import torch

from pd_kernels.sparse_decode import cases, op
from pd_kernels.sparse_decode.cases import ListOf

pytestmark = pytest.mark.timeout(1_200)  # one of them takes minutes on a busy core


@pytest.mark.parametrize(("rows", "target"), [(64, 512), (65, 512), (80, 512), (96, 512), (96, 188), (17, 752)])
def test_rows_through_the_chooser(rows: int, target: int) -> None:
    call = cases.call(rows, 8, ListOf(128, pages=4), ListOf(512, tokens=64, pages=32), seed=rows)
    out, lse = op.sparse_decode(**call.arguments, head_dim_v=512, target_ctas=target)
    wanted = call.expected()
    assert ((out[:, 0].double() - wanted.out).abs() <= wanted.bound).all()
    assert torch.allclose(lse[..., 0].double(), wanted.lse, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("heads", [8, 16, 64])
def test_long_contexts(heads: int) -> None:
    """A C128 list of a 128K context, full and nearly empty."""
    call = cases.call(2, heads, ListOf(128), ListOf(1_024, tokens=2, pages=2_048, live=[1_024, 70]), seed=heads)
    out, _ = op.sparse_decode(**call.arguments, head_dim_v=512, target_ctas=512)
    wanted = call.expected()
    assert ((out[:, 0].double() - wanted.out).abs() <= wanted.bound).all()

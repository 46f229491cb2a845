"""The recall table's arithmetic, on a problem small enough for every run."""

from __future__ import annotations

import pytest
import torch

from pd_kernels.index_bf16 import recall


def test_bf16_finds_more_than_fp8_and_that_more_than_fp4(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"KEYS": 2048, "TOP": 40, "QUERIES": 2}.items():
        monkeypatch.setattr(recall, name, value)
    for keys in recall.DISTRIBUTIONS.values():
        make = torch.Generator().manual_seed(1)
        found = recall.recall(keys(make), make)
        assert found["bf16"] >= found["fp8"] > found["fp4"] > 0


def test_fp4_keeps_what_it_can_write_and_rounds_the_rest() -> None:
    values = torch.tensor([[0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0] * 16])
    assert torch.equal(recall.fp4(values), values)
    assert torch.equal(recall.fp4(-values * 0.25), -values * 0.25)
    assert recall.fp4(torch.tensor([[5.1] + [6.0] * 127]))[0, 0] == 6.0

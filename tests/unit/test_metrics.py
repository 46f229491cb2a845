"""Prometheus text, as engines and router write it."""

from __future__ import annotations

from typing import Any

import pytest
from pd import metrics

ENGINE = """\
# HELP sglang:generation_tokens_total Number of generation tokens processed.
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{is_streaming="false",model_name="m"} 4.0
sglang:generation_tokens_total{is_streaming="true",model_name="m"} 1.6e+01
sglang:generation_tokens_created{is_streaming="true",model_name="m"} 1.7e+09
# TYPE sglang:prompt_tokens_total counter
sglang:prompt_tokens_total{model_name="m, \\"quoted\\""} 70
"""
ROUTER = """\
# TYPE smg_worker_cb_state gauge
smg_worker_cb_state{worker="http://127.0.0.1:30000"} 0
smg_worker_cb_state{worker="http://127.0.0.1:30001"} 1
"""


@pytest.mark.parametrize(
    ("text", "name", "total"),
    [
        (ENGINE, "sglang:generation_tokens_total", 20.0),
        (ENGINE, "sglang:prompt_tokens_total", 70.0),
        (ENGINE, "sglang:tokens_total", 0.0),
        ("", "x", 0.0),
        (None, "x", 0.0),
        ({"error": "Unauthorized"}, "x", 0.0),
    ],
)
def test_a_counter_is_summed_over_its_labels(text: Any, name: str, total: float) -> None:
    assert metrics.total(text, name) == total


def test_one_value_for_each_label() -> None:
    found = metrics.by_label(ROUTER, "smg_worker_cb_state", "worker")
    assert found == {"http://127.0.0.1:30000": 0.0, "http://127.0.0.1:30001": 1.0}
    assert metrics.by_label(ROUTER, "smg_worker_cb_state", "other") == {}
    assert metrics.by_label(None, "smg_worker_cb_state", "worker") == {}

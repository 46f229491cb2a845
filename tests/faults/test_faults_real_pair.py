"""The real pair led back from a failure, and with a model of random weights. They take too long for CI, which has their like on doubles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pairs import Pair

pytestmark = pytest.mark.e2e


def test_an_engine_that_dies_while_loading_leads_back_to_the_pair_that_served(real: Pair) -> None:
    """Issue 3, point 6, on the real engine: the run fails with a mechanical cause, the last good generation answers again."""
    first = real.generation()
    real.project.knob("prefill.yml", "engine_env", "PD_LAB_FAULT", "die-while-loading")
    done = real.project.play("site.yml")
    assert done.rc != 0
    told = done.failures()[-1]
    assert told.startswith("prefill0 did not reach `working`: DEAD at `alive`")
    assert "a traceback in its journal ends with: RuntimeError: PD_LAB_FAULT=die-while-loading" in told
    assert f"Rolled back: generation {first} serves again since 20" in told
    assert "die-while-loading" in (Path(told.splitlines()[-1]) / "prefill0" / "journal.txt").read_text()
    assert real.generation() == first
    assert "Paris" in real.ask("What is the capital of France?")["choices"][0]["message"]["content"]
    path = real.project.root / "group_vars" / "prefill.yml"
    kept = [line for line in path.read_text().splitlines() if "PD_LAB_FAULT" not in line]
    path.write_text("\n".join(kept).replace("engine_env:", "engine_env: {}") + "\n")


def test_a_tiny_model_with_random_weights_serves_too(real: Pair) -> None:
    """model_source random: made by the role in seconds, for whoever tests without a download. Its answers are noise, its tokens are real."""
    real.project.play("site.yml", model_source="random", model_name="tiny").ok()
    answer = real.ask("anything", tokens=4)
    assert answer["usage"]["completion_tokens"] >= 1
    assert "/opt/sglang-pd/models/tiny" in real.machine.exec(["cat", "/etc/sglang-pd/current/decode0/config.yaml"]).stdout

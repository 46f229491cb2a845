"""Going back to an earlier generation on request."""

from __future__ import annotations

import pytest

from tests.support.pairs import Pair
from tests.support.project import ledger

pytestmark = pytest.mark.host
KNOB = "SGLANG_SM120_MMA_TARGET_CTAS"


def test_rollback_brings_the_last_good_generation_back(pair: Pair) -> None:
    """By the same procedure, gates included; group_vars still ask for the other one, and site.yml says that it would go forward."""
    first = pair.generation()
    pair.project.knob("decode.yml", "engine_env", KNOB, "256")
    pair.project.play("site.yml").ok()
    second = pair.generation()
    pair.project.play("rollback.yml").ok()
    assert pair.generation() == first
    assert {env.get(KNOB) for env in pair.environs("decode0")} == {"512"}
    assert [e["why"] for e in ledger(pair.machine) if e["event"] == "begin"][-1] == "rollback"
    forward = pair.project.play("site.yml", "--check").ok()
    assert f"runs {first}, wanted is {second}" in forward.stdout
    refused = pair.project.play("rollback.yml", generation="0123456789ab")
    assert refused.rc != 0 and "0123456789ab" in "\n".join(refused.failures())
    pair.machine.exec("rm /opt/sglang-pd/releases/*/release.json")
    pruned = pair.project.play("rollback.yml", generation=second)
    assert pruned.rc != 0 and "release.json" in "\n".join(pruned.failures())
    assert pair.generation() == first

"""Turning one knob: the dry run tells the truth, the real run does just that, and every process proves it."""

from __future__ import annotations

import pytest

from tests.support.pairs import Pair
from tests.support.project import ledger

pytestmark = pytest.mark.host
KNOB = "SGLANG_SM120_MMA_TARGET_CTAS"


def test_check_shows_the_line_and_restarts_nothing(pair: Pair) -> None:
    """Done-when 3, first half: exactly that line, which instances would restart, and nothing happens."""
    before = pair.pids()
    pair.project.knob("decode.yml", "engine_env", KNOB, "256")
    done = pair.project.play("site.yml", "--check", "--diff").ok()
    (told,) = done.results("Write the generation that is asked for")
    assert [d["before_header"] for d in told["diff"]] == ["decode0/env"]
    old, new = told["diff"][0]["before"].splitlines(), told["diff"][0]["after"].splitlines()
    assert set(old) - set(new) == {f"{KNOB}=512"} and set(new) - set(old) == {f"{KNOB}=256"}
    assert "3 restarts: prefill0, decode0, router0" in done.stdout
    assert pair.pids() == before
    assert pair.machine.exec(["ls", "/etc/sglang-pd/generations"]).stdout.count("\n") == 1


def test_toggle_co_restarts_in_order_and_reaches_every_process(pair: Pair) -> None:
    """Done-when 3, second half: once each, in order, gated; in every process of decode, in none of the others."""
    before = pair.pids()
    first = pair.generation()
    mark = len(ledger(pair.machine))
    pair.project.knob("decode.yml", "engine_env", KNOB, "256")
    pair.project.play("site.yml").ok()
    after = pair.pids()
    assert all(after[name] not in (before[name], "0") for name in before)
    entries = ledger(pair.machine)[mark:]
    acts = [(e["event"], e["instance"]) for e in entries if e["event"] in ("stop", "start", "gate")]
    assert acts == [
        ("stop", "router0"),
        ("stop", "prefill0"), ("start", "prefill0"), ("gate", "prefill0"),
        ("stop", "decode0"), ("start", "decode0"), ("gate", "decode0"),
        ("start", "router0"), ("gate", "router0"),
    ]  # fmt: skip
    assert {env.get(KNOB) for env in pair.environs("decode0")} == {"256"}
    assert all(KNOB not in env for name in ("prefill0", "router0") for env in pair.environs(name))
    assert pair.changed_lines(first, pair.generation()) == [f"< {KNOB}=512", f"> {KNOB}=256"]


def test_toggle_back_is_the_earlier_generation(pair: Pair) -> None:
    """Same files, same nonce, same id: going back is not something new. It still must pass its gates."""
    first = pair.generation()
    pair.project.knob("decode.yml", "engine_env", KNOB, "256")
    pair.project.play("site.yml").ok()
    pair.project.knob("decode.yml", "engine_env", KNOB, "512")
    pair.project.play("site.yml").ok()
    assert pair.generation() == first
    assert {env.get(KNOB) for env in pair.environs("decode0")} == {"512"}

"""The real engine, the real NIXL, the real router, on a real systemd host: what the doubles cannot prove."""

from __future__ import annotations

import pytest

from tests.support.pairs import Pair
from tests.support.project import ledger

pytestmark = pytest.mark.e2e
KNOB = "SGLANG_SM120_MMA_TARGET_CTAS"


def test_it_comes_back_from_the_reboot_and_answers(real: Pair) -> None:
    """The image was frozen with the pair at work; this machine booted from it, and nobody ran a playbook."""
    answer = real.ask("What is the capital of France?")
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    done = real.project.play("verify.yml").ok()
    (told,) = done.results("Climb every rung of every instance")
    assert {row["instance"]: row["reached"] for row in told["rows"]} == {"prefill0": "working", "decode0": "working", "router0": "serving"}
    assert all(row["moved"] > 0 for row in told["rows"] if row["moved"] is not None), "both engines' own counters moved"


def test_second_site_is_a_no_op(real: Pair) -> None:
    """Done-when 2."""
    before = real.pids()
    done = real.project.play("site.yml").ok()
    assert done.changed == 0, done.stdout
    assert real.pids() == before


def test_a_knob_reaches_every_process_of_decode_and_no_other(real: Pair) -> None:
    """Done-when 3, on main, scheduler, detokenizer and the resource tracker of the real engine."""
    first, before, mark = real.generation(), real.pids(), len(ledger(real.machine))
    real.project.knob("decode.yml", "engine_env", KNOB, "256")
    real.project.play("site.yml").ok()
    after = real.pids()
    assert all(after[name] not in (pid, "0") for name, pid in before.items())
    acts = [(e["event"], e["instance"]) for e in ledger(real.machine)[mark:] if e["event"] in ("start", "gate")]
    assert acts == [(event, name) for name in ("prefill0", "decode0", "router0") for event in ("start", "gate")]
    decode = real.environs("decode0")
    assert len(decode) >= 3 and {env.get(KNOB) for env in decode} == {"256"}
    assert all(KNOB not in env for name in ("prefill0", "router0") for env in real.environs(name))
    assert real.changed_lines(first, real.generation()) == [f"< {KNOB}=512", f"> {KNOB}=256"]


def test_the_wedge_of_the_real_engine_is_caught(real: Pair) -> None:
    """Done-when 6: NIXL's peer set-up fails in the prefill's bootstrap thread; health is 200 on both, every request hangs.

    SGLang alone: with guards the engine ends (test_real_kernels.py).
    """
    real.project.knob("prefill.yml", "engine_env", "PD_LAB_FAULT", "bootstrap-thread-dies")
    done = real.project.play("site.yml", pd_serve_deadline=70, pd_request_timeout=12, pd_rollback_on_failure=False, engine_kernels=[])
    assert done.rc != 0
    assert "router0 did not reach `serving`" in "\n".join(done.failures())
    assert "no answer in 12 s" in "\n".join(done.failures())
    for port in (30000, 30001):
        assert real.status(f"http://127.0.0.1:{port}/health") == 200, "health goes on lying"
    assert "Traceback" in real.machine.journal(unit="sglang-engine@prefill0")


def test_the_cause_mended_the_same_playbook_finishes(real: Pair) -> None:
    """After a failed run: one line taken back, one run, a pair that serves."""
    without_fault(real)
    real.project.play("site.yml").ok()
    assert "Paris" in real.ask("What is the capital of France?")["choices"][0]["message"]["content"]


def without_fault(real: Pair) -> None:
    """The fault's line taken back, as an operator would."""
    path = real.project.root / "group_vars" / "prefill.yml"
    kept = [line for line in path.read_text().splitlines() if "PD_LAB_FAULT" not in line]
    path.write_text("\n".join(kept).replace("engine_env:", "engine_env: {}") + "\n")

"""The page that is read at 3 a.m.: a cause only where it is mechanical, what was not seen is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import bundle, generation
from pd.bundle import NO_CAUSE, Failure
from pd.observe import Unit, parse_show

from tests.unit.test_generation import DECODE, ID, WANTED, with_decode

WHAT = Failure("decode0 did not reach `working`", "decode0", "working", "run1", "g1", "the plan")
LOG = "2026-11-30T17:31:39+0000 host decode0[77]: "
CRASH = f"""\
{LOG}[2026-11-30 17:31:39] Scheduler hit an exception: Traceback (most recent call last):
{LOG}  File "x.py", line 1, in f
{LOG}    raise RuntimeError("no such kernel")
{LOG}RuntimeError: no such kernel
{LOG}
{LOG}[2026-11-30 17:31:39] SIGQUIT received. signum=None, frame=None. It usually means one child failed.
2026-11-30T17:31:40+0000 host systemd[1]: sglang-engine@decode0.service: Main process exited, code=killed, status=9/KILL
"""


def unit(**told: str) -> Unit:
    shown = {"LoadState": "loaded", "ActiveState": "active", "Result": "success", **told}
    return parse_show("sglang-engine@decode0.service", "\n".join(f"{key}={value}" for key, value in shown.items()))


KILLED = unit(ActiveState="activating", SubState="auto-restart", Result="signal", ExecMainCode="2", ExecMainStatus="9")


def test_the_last_line_of_each_traceback() -> None:
    assert bundle.tracebacks(CRASH) == ["RuntimeError: no such kernel"]
    assert bundle.tracebacks(CRASH + CRASH.replace("no such kernel", "another")) == ["RuntimeError: no such kernel", "RuntimeError: another"]
    assert bundle.tracebacks("nothing\nTraceback is a word\n") == []
    assert bundle.tracebacks(CRASH[: CRASH.index("RuntimeError: no")]) == []


@pytest.mark.parametrize(
    ("units", "started", "texts", "free", "said"),
    [
        pytest.param({"decode0": KILLED}, ["decode0"], {"decode0": CRASH}, {}, ["no such kernel", "killed by signal 9"], id="traceback, exit"),
        pytest.param({"decode0": KILLED}, [], {}, {}, [NO_CAUSE], id="an end that this run asked for"),
        pytest.param({"decode0": unit()}, ["decode0"], {"decode0": "all fine"}, {}, [NO_CAUSE], id="it hangs"),
        pytest.param({"decode0": unit(ActiveState="failed", Result="oom-kill")}, ["decode0"], {}, {}, ["OOM killer"], id="systemd saw an OOM kill"),
        pytest.param({"decode0": unit(Result="start-limit-hit")}, ["decode0"], {}, {}, ["gave up"], id="start limit"),
        pytest.param(
            {"decode0": unit(ActiveState="failed", Result="exit-code", ExecMainCode="1", ExecMainStatus="2")},
            ["decode0"], {}, {}, ["exit status 2 (result exit-code)"], id="exit status",
        ),
        pytest.param({"decode0": unit()}, [], {"decode0": f"{LOG}[Errno 98] Address already in use"}, {}, ["already in use"], id="port"),
        pytest.param({"decode0": unit()}, [], {"decode0": f"{LOG}[Errno 28] No space left on device"}, {}, ["No space left"], id="ENOSPC"),
        pytest.param({"decode0": unit()}, [], {"kernel": "k: Out of memory: Killed process 5"}, {}, ["kernel log: k: Out of"], id="kernel"),
        pytest.param({"decode0": unit()}, [], {"kernel": "k: NVRM: Xid (PCI:0000:41:00): 79"}, {}, ["Xid"], id="a GPU fell off the bus"),
        pytest.param({"decode0": unit()}, [], {}, {"/": 50_000, "/var": 3}, ["disk: 3 MiB free at /var"], id="disk"),
        pytest.param(
            {"prefill0": unit(), "decode0": unit()}, [], {"prefill0": CRASH, "decode0": CRASH.replace("no such kernel", "mine")}, {},
            ["decode0: a traceback", "prefill0: a traceback"], id="the failed instance's first",
        ),
    ],
)  # fmt: skip
def test_a_cause_is_stated_where_it_is_mechanical(
    units: dict[str, Unit], started: list[str], texts: dict[str, str], free: dict[str, int], said: list[str]
) -> None:
    found = bundle.causes(WHAT, units, started, texts, free)
    assert len(found) == len(said), found
    assert all(part in line for part, line in zip(said, found, strict=True))


@given(st.text(max_size=3000), st.integers(60, 500))
def test_a_long_text_keeps_its_begin_and_its_end(text: str, limit: int) -> None:
    cut = bundle.bounded(text, limit)
    assert len(cut) <= limit + 60
    assert cut[: limit // 4] == text[: limit // 4] and cut[-(limit // 4) :] == text[-(limit // 4) :]


def test_generations_side_by_side_and_no_secret() -> None:
    after = with_decode(env={**DECODE.env, "SGLANG_SM120_MMA_TARGET_CTAS": "256"}, config={**DECODE.config, "api-key": "t0psecret"})
    one, other = generation.manifest(replace(after, nonce="n2"), "g2", {}), generation.manifest(WANTED, ID, {})
    found = bundle.differences(one, other)
    assert found == [
        'decode0 env SGLANG_SM120_MMA_TARGET_CTAS: "256"   (there: "512")',
        "nonce: n2   (there: nonce001)",
        "decode0 config: a secret value differs",
    ]


def test_the_page_says_in_order_what_was_seen_and_what_was_not() -> None:
    told = bundle.summary(WHAT, [("T2", "then"), ("T1", "first")], [NO_CAUSE], ["decode0/loads.json: no answer in 2 s"], ["b.txt", "a.txt"])
    assert told.index("T1  first") < told.index("T2  then")
    assert NO_CAUSE in told
    assert "- decode0/loads.json: no answer in 2 s" in told
    assert "whether an engine generates now: no request was sent" in told
    assert told.index("a.txt") < told.index("b.txt")


def test_the_history_is_that_of_the_run() -> None:
    entries = [
        {"ts": "T1", "event": "stop", "run": "run1", "instance": "router0"},
        {"ts": "T2", "event": "stop", "run": "another", "instance": "router0"},
        {"ts": "T3", "event": "gate", "run": "run1", "instance": "decode0", "state": "DEAD", "rung": "alive", "why": "it died"},
    ]
    assert bundle.history(entries, "run1") == [("T1", "stop router0"), ("T3", "gate decode0 state=DEAD rung=alive it died")]

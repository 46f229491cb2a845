"""Where a start is, out of journal lines of the real engine; and no secret among them."""

from __future__ import annotations

import pytest
from pd import phases

LINES = [
    ("[2026-01-06 09:12:44] server_args=ServerArgs(model_path='/m', api_key='s3cret')", "arguments resolved"),
    ("[2026-01-06 09:12:45] CommonKVBootstrapServer started successfully", "bootstrap server up"),
    ("[2026-01-06 09:12:46] Load weight begin. avail mem=94.2 GB", "loading weights"),
    ("Loading safetensors checkpoint shards:  50% Completed | 1/2", "loading weights"),
    ("[2026-01-06 09:15:46] Load weight end. type=DeepseekV4ForCausalLM", "weights loaded"),
    ("[2026-01-06 09:15:50] KV Cache is allocated. #tokens: 65536", "KV cache allocated"),
    ("[2026-01-06 09:15:51] Compiling 12 kernels", "compiling"),
    ("[2026-01-06 09:16:50] Capture cuda graph begin. This can take up to several minutes.", "capturing CUDA graphs"),
    ("INFO:     Uvicorn running on http://127.0.0.1:30000", "HTTP server up"),
    ("[2026-01-06 09:17:00] Start of pd disaggregation warmup ...", "warming up"),
    ("[2026-01-06 09:17:05] The server is fired up and ready to roll!", "warm-up done"),
]


@pytest.mark.parametrize(("line", "phase"), LINES)
def test_a_line_tells_the_phase(line: str, phase: str) -> None:
    assert phases.phase([line]) == phase


def test_the_last_phase_counts() -> None:
    so_far: list[str] = []
    for line, phase in LINES:
        so_far += [line, "something else"]
        assert phases.phase(so_far) == phase
    assert phases.phase([]) == phases.phase(["something else"]) == "starting"


@pytest.mark.parametrize(
    ("line", "secrets", "shown"),
    [
        ("api_key='s3cret', port=1", ["s3cret"], "api_key='<secret>', port=1"),
        ("a s3cret and a s3cret", ["s3cret"], "a <secret> and a <secret>"),
        ("key-long", ["key", "key-long"], "<secret>"),
        ("api_key='it\\'s \"x\"'", ["it's \"x\""], "api_key='<secret>'"),
        ("a.c abc", ["a.c"], "<secret> abc"),
        ("nothing", [], "nothing"),
        ("nothing", [""], "nothing"),
        ("", ["x"], ""),
    ],
)
def test_report_095_a_secret_in_the_journal_is_not_shown(line: str, secrets: list[str], shown: str) -> None:
    assert phases.redact([line], secrets) == [shown]


OWN = '[2026-01-06 09:12:44] INFO:     127.0.0.1:5 - "{}" {}'


@pytest.mark.parametrize(
    ("line", "tells"),
    [
        ("[2026-01-06 09:12:46] Load weight begin. avail mem=94.2 GB", True),
        (OWN.format("GET /ready HTTP/1.1", "503 Service Unavailable"), False),
        (OWN.format("GET /ready HTTP/1.1", "200 OK"), False),
        (OWN.format("GET /v1/loads?include=all HTTP/1.1", "200 OK"), False),
        (OWN.format("GET /route?prefill_dp_rank=-1&target_tp_rank=-1 HTTP/1.1", "503 Service Unavailable"), False),
        (OWN.format("POST /generate HTTP/1.1", "200 OK"), True),
        (OWN.format("POST /generate HTTP/1.1", "503 Service Unavailable"), False),
        (OWN.format("POST /v1/chat/completions HTTP/1.1", "200 OK"), True),
        ("Request is disconnected from the client side. Abort request rid=1", False),
        ("", False),
    ],
)
def test_a_line_that_only_shows_that_it_was_asked_is_no_sign_of_work(line: str, tells: bool) -> None:
    assert phases.telling([line]) == ([line] if tells else [])

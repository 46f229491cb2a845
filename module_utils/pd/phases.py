"""Where a starting engine is, told from its journal. Pure; the lines are those of SGLang 0.5.23 (seen on the real engine)."""

from __future__ import annotations

import re
from collections.abc import Iterable

PHASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), phase)
    for pattern, phase in (
        (r"server_args=", "arguments resolved"),
        (r"BootstrapServer started", "bootstrap server up"),
        (r"Load weight begin", "loading weights"),
        (r"Loading .*checkpoint shards|Loading safetensors", "loading weights"),
        (r"Load weight end", "weights loaded"),
        (r"KV Cache is allocated|Memory pool end", "KV cache allocated"),
        (r"\b[Cc]ompiling\b|\bninja: |\bnvcc\b|JIT compil", "compiling"),
        (r"Capture .*graph begin|Capturing", "capturing CUDA graphs"),
        (r"Uvicorn running|Application startup complete", "HTTP server up"),
        (r"Start of pd disaggregation warmup", "warming up"),
        (r"ready to roll", "warm-up done"),
    )
)


def phase(lines: Iterable[str]) -> str:
    """The last phase that these lines, oldest first, speak of; "starting" when they speak of none."""
    found = "starting"
    for line in lines:
        # the first pattern wins: the line with all arguments has every later word in it
        found = next((name for pattern, name in PHASES if pattern.search(line)), found)
    return found


NOISE = re.compile(r'"GET /(ready|health|v1/loads|route|liveness|readiness|metrics|workers)\b[^"]*" 200')
OURS = re.compile(r'"(GET /\S+ HTTP/[\d.]+" \d+|POST /generate HTTP/[\d.]+" [^2])|disconnected from the client side')
"""What our own probes leave in an engine's journal, whatever it answered; a generation that it did answer is its own doing."""
ANSI = re.compile(r"\x1b\[[0-9;]*m")
LINE = 240


def telling(lines: Iterable[str]) -> list[str]:
    """The lines that an engine wrote by itself: without those that only show that it was asked."""
    return [line for line in lines if line.strip() and not OURS.search(line)]


def readable(lines: Iterable[str]) -> list[str]:
    """A journal's lines for a person: our own probes left out, colours stripped, long lines cut."""
    plain = (ANSI.sub("", line) for line in lines if not NOISE.search(line))
    return [line if len(line) <= LINE else f"{line[:LINE]}..." for line in plain]


def redact(lines: Iterable[str], secrets: Iterable[str]) -> list[str]:
    """The lines with every secret value replaced: SGLang itself logs its api keys (facts 2.6)."""
    # the longest first: where one begins with another, the rest of it must not be left over; a log shows quotes and backslashes escaped
    known = sorted({form for secret in secrets if secret for form in (secret, repr(secret)[1:-1])}, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, known)) or "$^")
    return [pattern.sub("<secret>", line) for line in lines]

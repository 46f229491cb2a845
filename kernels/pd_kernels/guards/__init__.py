"""Guards: what SGLang's prefill/decode lets hang, ended. README.md has the whole story."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

from ..kernel import Context, Hook, Parse

TIMEOUT = "PD_INFLIGHT_TIMEOUT"
DEFAULT_TIMEOUT = 60.0
"""Seconds. SGLang's own limits are 300 s, and an in-flight transfer has none (sglang-facts 4.2, lab-facts)."""


def seconds(text: str) -> float:
    """PD_INFLIGHT_TIMEOUT. Raises ValueError unless it is a whole number from 1 to 86400 (a day)."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 86400:
        raise ValueError("it must be a whole number of seconds from 1 to 86400")
    return float(text)


KNOBS: Mapping[str, Parse] = {TIMEOUT: seconds}
_CONN = "sglang.srt.disaggregation.common.conn"
NEEDS = (
    f"{_CONN}.CommonKVSender.abort",
    f"{_CONN}.CommonKVReceiver.abort",
    f"{_CONN}.CommonKVManager.record_failure",
    f"{_CONN}.CommonKVManager.update_status",
)


def hooks(context: Context) -> Sequence[Hook]:
    """The hooks of both guards, for a scheduler."""
    made: Sequence[Hook] = importlib.import_module("pd_kernels.guards.hooks").hooks(context, context.knobs.get(TIMEOUT, DEFAULT_TIMEOUT))
    return made

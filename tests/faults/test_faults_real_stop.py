"""Stopping the real engines: what is in flight finishes, what is idle is gone at once, and what a kill leaves behind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.pairs import Pair
from tests.support.project import ledger

pytestmark = pytest.mark.e2e
LEFT = """
import json, pathlib
used = set()
for proc in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        used |= {line.split(None, 5)[5] for line in (proc / "maps").read_text().splitlines() if "/dev/shm/" in line}
        used |= {str(fd.readlink()) for fd in (proc / "fd").iterdir()}
    except (FileNotFoundError, ProcessLookupError):
        pass
files = {str(file): file.stat() for file in pathlib.Path("/dev/shm").iterdir()}
print(json.dumps({name: [stat.st_size, stat.st_blocks * 512, name in used] for name, stat in files.items()}))
"""
"""File in /dev/shm -> bytes, bytes really held, and whether any process has it open or mapped."""


def shared_memory(pair: Pair) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = json.loads(pair.machine.exec(["python3", "-c", LEFT]).stdout)
    return found


def test_requests_in_flight_finish_and_idle_engines_are_gone_at_once(
    real: Pair, record_property: Callable[[str, object], None]
) -> None:
    """lab-facts: by itself an idle prefill takes 17 s to stop, a decode 4 s, and 8 requests that lose their decode hang for 100 s."""
    before, mark = shared_memory(real), len(ledger(real.machine))
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(real.ask, f"Write a long story about {number} ships.", 256) for number in range(8)]
        time.sleep(4)  # until they are being decoded; the playbook needs some seconds to its first stop, they need many more
        done = real.project.play("restart-pd.yml", pd_strategy="overlapped").ok()
        told = [answer.result()["choices"][0]["finish_reason"] for answer in answers]
    assert set(told) <= {"stop", "length"}, told
    entries = ledger(real.machine)[mark:]
    (drained,) = [e for e in entries if e["event"] == "drained"]
    assert drained["cut"] == 0 and not [e for e in entries if e["event"] == "killed"]
    stops = {e["instance"]: e["boot"] for e in entries if e["event"] == "stop"}
    took = {e["instance"]: round(e["boot"] - stops[e["instance"]], 2) for e in entries if e["event"] == "stopped"}
    assert took["prefill0"] < 3 and took["decode0"] < 3, took
    freed = {e["instance"]: e.get("shm_freed") for e in entries if e["event"] == "stopped"}
    left = {name: file for name, file in shared_memory(real).items() if not file[2]}
    record_property("measured", {"stops": took, "drained": drained["seconds"], "before": before, "left": left, "freed": freed})
    assert freed["prefill0"] and freed["decode0"], "each engine's load report, at least"
    assert not {name for name in left if name in before and before[name][2]}, "what the engines held is gone with them"
    assert "requests in flight" in done.stdout

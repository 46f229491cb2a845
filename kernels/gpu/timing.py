"""Time on a GPU: captured in a graph, replayed with the L2 flushed between replays. On a CPU: a dry run that times nothing."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch

REPLAYS = 50
FLUSH_BYTES = 512 << 20
"""Above any L2 of today (an RTX PRO 6000 has 128 MB)."""
COPY_BYTES = 1 << 30


@dataclass(frozen=True)
class Times:
    """Microseconds of the replays."""

    median: float
    p10: float
    p90: float
    replays: int

    def told(self) -> dict[str, float]:
        """As JSON has it."""
        return asdict(self)


def of(samples: list[float]) -> Times:
    """Median and the 10th and 90th percentile, nearest rank."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return Times(statistics.median(ordered), ordered[round(last * 0.1)], ordered[round(last * 0.9)], len(ordered))


class Gpu:
    """A CUDA device."""

    name = "cuda"

    def __init__(self) -> None:
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def time(self, call: Callable[[], object]) -> Times:
        """Microseconds of one call in a CUDA graph; everything it needs compiled is compiled before the capture."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPLAYS)]
        for before, after in marks:
            self._flush.zero_()
            before.record()
            graph.replay()
            after.record()
        torch.cuda.synchronize()
        return of([before.elapsed_time(after) * 1000 for before, after in marks])

    def copy_rate(self) -> float:
        """Bytes per second, read and written, of a plain copy: what this device's memory does today."""
        source = torch.empty(COPY_BYTES, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        return 2 * COPY_BYTES / self.time(lambda: target.copy_(source)).median * 1e6

    def empty(self) -> Times:
        """A graph of next to nothing: what every time has in it of launching and of the events."""
        word = torch.zeros(1, device="cuda")
        return self.time(word.zero_)


class DryRun:
    """The CPU: every call is made once, nothing is timed."""

    name = "cpu"

    def time(self, call: Callable[[], object]) -> None:
        """Make the call."""
        call()

    def copy_rate(self) -> None:
        """Nothing to say of a CPU."""

    def empty(self) -> None:
        """Nothing to say of a CPU."""


Device = Gpu | DryRun

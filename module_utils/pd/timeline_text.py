"""The timeline as text: one lane a line, at most 100 columns, for a terminal at 3 a.m. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .timeline import Timeline
from .timeline_run import Bar, Kind, Mark, Outage, Run

WIDTH = 100
BAR: dict[Kind, str] = {"ran": "─", "drain": "┄", "stop": "░", "load": "▒", "gate": "▓", "ready": "▄", "serve": "█"}
WORDS: dict[Kind, str] = {
    **{"ran": "ran before", "drain": "drain", "stop": "stop", "load": "load", "gate": "gate", "watch": "watched"},
    **{"ready": "proven, router closed", "serve": "serves"},
}
SHOWN = ("stop", "load", "gate")
"""What a lane tells in seconds. What was done over all lanes is told once, the rest is drawn."""
FEWEST = 32
"""Columns that the bars keep, whatever is told beside them."""


def lines(told: Timeline) -> list[str]:
    """Title, axis, lanes, outage against the forecast, load, and what failed."""
    run = told.run
    name = max([7, *(len(lane) for lane in told.lanes)])
    right = max([0, *(len(_seconds(run, lane)) for lane in told.lanes)])
    chart = max(FEWEST, WIDTH - 2 - name - 2 - right - 2)
    scale = chart / max(run.length, 1.0)
    found = [f"  {title(run)}", _line("", name, _axis(run.length, chart), "")]
    for lane in told.lanes:
        found.append(_line(lane, name, _drawn(run, lane, chart, scale), _seconds(run, lane)))
    for outage in run.outages:
        found.append(_line("outage", name, _span(outage, run.length, chart, scale), ""))
    found.append(f"  {'':<{name}}  {outage_told(told)}")
    found += [f"  {'':<{name}}  {over}" for over in [set_told(run)] if over]
    if run.samples:
        found.append(f"  {'load':<{name}}  in flight: {', '.join(f'{one.count} at {one.at:.0f} s' for one in run.samples)}")
    found += [f"  {'✗' if mark.kind == 'dead' else '!'} {mark_told(mark)}" for mark in run.marks if mark.kind != "phase"]
    found.append(f"  {legend(run)}")
    return [line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…" for line in map(plain, found)]


def plain(text: str) -> str:
    """The text without what would end the line, or the page: what failed may have said anything."""
    return "".join(one if one.isprintable() else "·" for one in text)


def title(run: Run) -> str:
    """Run, who, why, generation, result."""
    began = run.began[:19].replace("T", " ")
    return f"{run.outcome} in {run.length:.1f} s, {began} UTC, generation {run.generation}, by {run.who}: {run.why}"


def outage_told(told: Timeline) -> str:
    """The outage in words, against the plan's forecast and the earlier runs."""
    run = told.run
    if not run.outages:
        return "no outage: the router was not stopped"
    parts = [f"outage {spent(one, run.length)}" for one in run.outages]
    if told.forecast is not None:
        parts.append(f"forecast {told.forecast:.1f} s")
    before = [o.end - o.start for earlier in told.earlier for o in earlier.outages[:1] if o.end is not None]
    if before:
        many = f"last {len(before)} such runs {min(before):.1f} to {max(before):.1f} s"
        parts.append(many if len(before) > 1 else f"the one such run before {before[0]:.1f} s")
    return ", ".join(parts)


def set_told(run: Run) -> str:
    """What was done over several lanes at once."""
    words = {"drain": "drained in {:.1f} s", "watch": "watched for {:.1f} s"}
    over = dict.fromkeys((bar.start, bar.end, bar.kind) for bar in run.bars if bar.kind in words)
    return ", ".join(words[kind].format(end - start) for start, end, kind in sorted(over))


def mark_told(mark: Mark) -> str:
    """A mark in words."""
    return f"at {mark.at:.1f} s: {f'{mark.lane}: ' if mark.lane else ''}{mark.text}"


def spent(outage: Outage, length: float) -> str:
    """How long, and what is not known of it."""
    seconds = (length if outage.end is None else outage.end) - outage.start
    told = f"{seconds:.1f} s" if outage.known else f"at least {seconds:.1f} s (down when the run began)"
    if outage.start < 0:
        told += f" ({-outage.start:.0f} s of it before this run)"
    return told if outage.end is not None else f"{told} AND NOT OVER"


def legend(run: Run) -> str:
    """What the shades mean; only those that were drawn."""
    there = {bar.kind for bar in run.bars}
    return "   ".join(f"{BAR[kind]} {word}" for kind, word in WORDS.items() if kind in there & BAR.keys())


def _line(name: str, width: int, drawn: str, told: str) -> str:
    return f"  {name:<{width}}  {drawn}  {told}".rstrip()


def _axis(length: float, chart: int) -> str:
    """Seconds at every quarter, on round numbers."""
    step = tick(length, chart / 12)
    line = [" "] * (chart + 8)
    count = 0
    while count * step <= length:
        text = f"{count * step:g} s"
        at = round(count * step / max(length, 1.0) * chart)
        line[at : at + len(text)] = text
        count += 1
    return "".join(line)[: chart + 2].rstrip()


def tick(length: float, most: float) -> float:
    """The smallest round step of which at most `most` fit into `length` seconds."""
    steps = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)
    return next((step for step in steps if length / step <= most), 7200)


def _drawn(run: Run, lane: str, chart: int, scale: float) -> str:
    cells = [" "] * chart
    # acts last, the short ones at the end: half a second of stop must be seen beside minutes of load
    mine = [bar for bar in run.bars if bar.lane == lane and bar.kind != "watch"]
    for bar in sorted(mine, key=lambda bar: (bar.kind in ("drain", *SHOWN), -bar.seconds)):
        for at in _cells(bar.start, bar.end, chart, scale):
            cells[at] = BAR[bar.kind]
    for mark in run.marks:
        if mark.kind == "dead" and mark.lane == lane:
            cells[min(chart - 1, int(mark.at * scale))] = "✗"
    return "".join(cells)


def _cells(start: float, end: float, chart: int, scale: float) -> range:
    """The columns of a stretch: at least one, so that nothing that was there is left out."""
    first = min(chart - 1, max(0, int(start * scale)))
    return range(first, min(chart, max(first + 1, round(end * scale))))


def _span(outage: Outage, length: float, chart: int, scale: float) -> str:
    cells: Sequence[int] = _cells(max(0.0, outage.start), length if outage.end is None else outage.end, chart, scale)
    left = "├" if outage.start >= 0 and outage.known else "◂"
    right = "┤" if outage.end is not None else "▸"
    return " " * cells[0] + (left + "─" * (len(cells) - 2) + right if len(cells) > 1 else "┼")


def _seconds(run: Run, lane: str) -> str:
    """`stop 0.9  load 8.0  gate 0.3`, in the order they happened; what was not over when the run ended has a `…`."""
    return "  ".join(_one(bar) for bar in run.bars if bar.lane == lane and bar.kind in SHOWN)


def _one(bar: Bar) -> str:
    return f"{bar.name} {bar.seconds:.{0 if bar.seconds >= 100 else 1}f}{'…' if bar.open else ''}"

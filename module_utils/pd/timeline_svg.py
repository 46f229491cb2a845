"""The timeline as one HTML page with an inline SVG: opens anywhere, light or dark, nothing loaded from elsewhere. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from html import escape

from .ledger import Entry
from .timeline import Timeline
from .timeline_run import Bar, Mark, Run, Sample
from .timeline_text import SHOWN, WORDS, mark_told, outage_told, plain, set_told, spent, tick, title

LEFT, RIGHT, CHART = 110, 230, 780
WIDTH = LEFT + CHART + RIGHT
TOP, LOADS, LANE, BAR = 84, 76, 66, 26
GHOST = 4
"""Height of an earlier run's strip below the bar, in pixels."""
HELD_SECONDS = 2.5
"""Two readings of the load that are further apart are not joined: what was between them was not measured."""
HUES = ("p", "d", "e", "f")

STYLE = """
:root { color-scheme: light dark; }
body { margin: 24px auto; max-width: 1200px; padding: 0 16px; font: 14px/1.5 Helvetica, Arial, "Liberation Sans", sans-serif;
  background: #ffffff; color: #1f2328; }
svg { width: 100%; height: auto; }
pre { overflow-x: auto; font: 12px/1.5 Menlo, Consolas, "Liberation Mono", monospace; }
text { font-family: Helvetica, Arial, "Liberation Sans", sans-serif; font-size: 13px; fill: #1f2328; }
.h { font-size: 19px; font-weight: bold; } .b { font-weight: bold; } .mid { text-anchor: middle; } .end { text-anchor: end; }
.small { font-size: 11px; } .dim { fill: #57606a; } .in { fill: #1f2328; font-size: 12px; }
.grid { stroke: #d0d7de; } .rule { stroke: #8c959f; } .ghost { fill: #8c959f; opacity: .45; } .ghostload { fill: #8c959f; opacity: .8; }
.closed { fill: #fdecea; } .red { fill: #a40e26; } .redline { stroke: #a40e26; stroke-width: 1.6; fill: none; }
.cast { stroke: #57606a; stroke-width: 1.4; stroke-dasharray: 4 3; fill: none; }
.ran { fill: #d8dee4; stroke: #afb8c1; } .stop { fill: url(#hatch); stroke: #6e7781; } .hatch { stroke: #6e7781; stroke-width: 1.6; }
.drain, .watch { fill: none; stroke: #6e7781; stroke-dasharray: 2 3; } .tick { stroke: #1f2328; opacity: .45; }
.dot { fill: #6639ba; } .flow { stroke: #6639ba; stroke-width: 1.6; fill: none; }
.r { fill: #2da44e; stroke: #1a7f37; } .p { fill: #f2902e; stroke: #b35900; } .d { fill: #4a9bf0; stroke: #0b62c4; }
.e { fill: #b58af0; stroke: #6639ba; } .f { fill: #5cc8c0; stroke: #137775; }
.load { fill-opacity: .28; stroke-dasharray: 5 3; } .gate { fill-opacity: .95; }
.ready { fill-opacity: .5; stroke-opacity: .5; } .serve { fill-opacity: .8; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; } text, .in { fill: #e6edf3; } .dim { fill: #9198a1; }
  .grid { stroke: #2a313c; } .rule { stroke: #656c76; } .closed { fill: #2d1418; } .red { fill: #ff9492; } .redline { stroke: #ff9492; }
  .cast { stroke: #9198a1; } .ran { fill: #2a313c; stroke: #3d444d; } .stop, .drain, .watch { stroke: #9198a1; } .hatch { stroke: #9198a1; }
  .tick { stroke: #e6edf3; } .dot { fill: #b78aff; } .flow { stroke: #b78aff; } .ghost, .ghostload { fill: #9198a1; }
  .r { fill: #2ea043; stroke: #3fb950; } .p { fill: #d4761f; stroke: #f0883e; } .d { fill: #2f7fd6; stroke: #58a6ff; }
}
"""


def page(told: Timeline, entries: Sequence[Entry] = ()) -> str:
    """The page. `entries`: those it was drawn from, shown below it, folded."""
    run = told.run
    rows = "\n".join(escape(json.dumps(entry, sort_keys=True)) for entry in entries if entry.get("run") == run.id)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{_safe(title(run))}</title>
<style>{STYLE}</style>
</head>
<body>
{svg(told)}
<details><summary>The ledger's entries of this run, which this was drawn from</summary>
<pre>{rows}</pre>
</details>
</body>
</html>
"""


def svg(told: Timeline) -> str:
    """The picture alone; its classes are those of STYLE."""
    height = TOP + LOADS + LANE * len(told.lanes) + 100 + 18 * sum(m.kind != "phase" for m in told.run.marks)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{_safe(title(told.run))}">',
            '<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            '<line class="hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>',
            *Drawing(told).parts(),
            "</svg>",
        )
    )


def _safe(text: str) -> str:
    return escape(plain(text))


def _text(x: float, y: float, text: str, css: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}">{_safe(text)}</text>'


def _line(css: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{css}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _box(css: str, x: float, y: float, width: float, height: float, *, tip: str = "") -> str:
    inner = f"<title>{_safe(tip)}</title>" if tip else ""
    return f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 1.5):.1f}" height="{height}" rx="2">{inner}</rect>'


class Drawing:
    """One timeline laid out; every method gives elements, back to front."""

    def __init__(self, told: Timeline) -> None:
        self.told = told
        self.run = told.run
        engines = [lane for lane in told.lanes if lane not in told.routers]
        self.hue = {**{lane: HUES[i % len(HUES)] for i, lane in enumerate(engines)}, **dict.fromkeys(told.routers, "r")}
        self.bottom = TOP + LOADS + LANE * len(told.lanes)

    def x(self, seconds: float) -> float:
        """Where a moment is; one before the run is at its left edge."""
        return LEFT + CHART * max(0.0, seconds) / self.told.until

    def y(self, lane: str) -> float:
        """The top of a lane's bar."""
        return TOP + LOADS + LANE * self.told.lanes.index(lane) + 12

    def parts(self) -> Iterator[str]:
        """Everything, in drawing order."""
        yield from self._head()
        yield from self._outages()
        yield from self._axis()
        yield from self._loads()
        for lane in self.told.lanes:
            yield from self._lane(lane)
        yield from self._legend()
        yield from self._marks()

    def _head(self) -> Iterator[str]:
        run = self.run
        bad = run.outcome != "done"
        yield _text(24, 32, f"{run.why}: {run.outcome} in {run.length:.1f} s", f"h{' red' if bad else ''}")
        yield _text(24, 54, f"generation {run.generation} · by {run.who} · {run.began[:19].replace('T', ' ')} UTC · run {run.id}", "dim")
        down = any(outage.end is None for outage in run.outages)
        yield _text(24, 72, ", ".join(filter(None, (outage_told(self.told), set_told(run)))), "red b" if down else "b")

    def _outages(self) -> Iterator[str]:
        top = TOP + LOADS - 6
        for number, outage in enumerate(self.run.outages):
            left, right = self.x(outage.start), self.x(self.run.length if outage.end is None else outage.end)
            yield _box("closed", left, top, right - left, self.bottom - top)
            yield _line("redline", left, top, right, top)
            for edge, there in ((left, outage.known and outage.start >= 0), (right, outage.end is not None)):
                yield _line("redline", edge, top - 5, edge, self.bottom) if there else _text(edge - 5, top + 4, "◂▸"[edge == right], "red")
            yield _text((left + right) / 2, top - 5, f"outage {spent(outage, self.run.length)}", "red b mid")
            if number == 0 and self.told.forecast is not None:
                yield from self._forecast(outage.start, self.told.forecast)

    def _forecast(self, start: float, seconds: float) -> Iterator[str]:
        y = self.bottom + 8
        left, right = self.x(start), self.x(start + seconds)
        yield _line("cast", left, y, right, y)
        yield _line("cast", right, y - 6, right, y + 6)
        yield _text(right + 6, y + 4, f"forecast {seconds:.1f} s", "small dim")

    def _axis(self) -> Iterator[str]:
        step = tick(self.told.until, 10)
        for count in range(int(self.told.until / step) + 1):
            x = self.x(count * step)
            yield _line("grid", x, TOP + LOADS, x, self.bottom + 22)
            yield _text(x, self.bottom + 36, f"{count * step:g} s", "small dim mid")

    def _loads(self) -> Iterator[str]:
        base = TOP + LOADS - 28
        yield _text(LEFT - 12, base - 8, "in flight", "b end")
        if not self.run.samples:
            yield _text(LEFT, base - 8, "not measured in this run", "dim small")
            return
        most = max(1, *(one.count for one in self.run.samples))
        yield _line("rule", LEFT, base, LEFT + CHART, base)
        last: Sample | None = None
        labelled = -99.0
        for one in self.run.samples:
            x, y = self.x(one.at), base - 30 * one.count / most
            if last and one.at - last.at <= HELD_SECONDS:
                yield f'<path class="flow" d="M{self.x(last.at):.1f} {base - 30 * last.count / most:.1f} H{x:.1f} V{y:.1f}"/>'
            tip = f"{one.count} in flight at {one.at:.1f} s, by {one.source}"
            yield f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"><title>{_safe(tip)}</title></circle>'
            if x - labelled > 16:
                yield _text(x, y - 7, str(one.count), "small mid")
                labelled = x
            last = one
        yield _text(LEFT + CHART + 12, base + 4, "dots were measured", "small dim")

    def _lane(self, lane: str) -> Iterator[str]:
        y = self.y(lane)
        yield _line("grid", 24, y - 12, WIDTH - 24, y - 12)
        yield _text(LEFT - 12, y + 18, lane, "b end")
        for row, earlier in enumerate(reversed(self.told.earlier)):
            yield from self._ghosts(earlier, lane, y + BAR + 3 + row * (GHOST + 1))
        for bar in (b for b in self.run.bars if b.lane == lane):
            yield from self._bar(bar, y)
        for mark in self.run.marks:
            if mark.lane == lane:
                yield from self._mark(mark, y)
        told = [bar for bar in self.run.bars if bar.lane == lane and bar.kind in SHOWN]
        spans = [f"{bar.name} {bar.seconds:.1f} s{'…' if bar.open else ''}".replace(" ", "\N{NO-BREAK SPACE}") for bar in told]
        for row, text in enumerate(spans if len(spans) <= 3 else textwrap.wrap(" · ".join(spans), 38, max_lines=3, placeholder=" …")):
            yield _text(LEFT + CHART + 12, y + 8 + 15 * row, text.replace("\N{NO-BREAK SPACE}", " "), "small")

    def _ghosts(self, earlier: Run, lane: str, y: float) -> Iterator[str]:
        for bar in earlier.bars:
            if bar.lane == lane and bar.kind in SHOWN:
                tip = f"{earlier.began[:19].replace('T', ' ')} UTC: {bar.name} {bar.seconds:.1f} s"
                yield _box("ghost" if bar.kind == "stop" else "ghostload", self.x(bar.start), y, self.x(bar.end) - self.x(bar.start), GHOST, tip=tip)

    def _bar(self, bar: Bar, y: float) -> Iterator[str]:
        x, width = self.x(bar.start), self.x(bar.end) - self.x(bar.start)
        hue = "" if bar.kind in ("ran", "stop", "drain", "watch") else f" {self.hue[bar.lane]}"
        yield _box(f"{bar.kind}{hue}", x, y, width, BAR, tip=f"{bar.lane}: {bar.name} {bar.seconds:.2f} s, from {bar.start:.2f} s on")
        words = [f"{bar.name} {bar.seconds:.1f} s", f"{bar.seconds:.1f}"] if bar.kind in SHOWN else [WORDS[bar.kind]]
        fits = next((text for text in words if width > 7.2 * len(text) + 6), None)
        if fits and bar.kind != "stop":
            yield _text(x + width / 2, y + 17, fits, "in mid")

    def _mark(self, mark: Mark, y: float) -> Iterator[str]:
        x = self.x(mark.at)
        if mark.kind == "phase":
            yield f'<g><title>{_safe(f"{mark.text} at {mark.at:.1f} s")}</title>{_line("tick", x, y + 2, x, y + 8)}</g>'
        elif mark.kind == "dead":
            yield f'<path class="redline" d="M{x - 6:.1f} {y + 5} l12 16 m0 -16 l-12 16"><title>{_safe(mark.text)}</title></path>'
            yield _text(x + 11, y + 18, "DEAD", "red b")

    def _legend(self) -> Iterator[str]:
        x, y = float(LEFT), self.bottom + 56
        for kind, word in WORDS.items():
            if any(bar.kind == kind for bar in self.run.bars):
                yield _box(kind if kind in ("ran", "stop", "drain", "watch") else f"{kind} d", x, y, 22, 12)
                yield _text(x + 28, y + 11, word, "small")
                x += 48 + 5.6 * len(word)
        if self.told.earlier:
            yield _box("ghostload", x, y + 4, 22, GHOST)
            yield _text(x + 28, y + 11, f"earlier runs of the same steps ({len(self.told.earlier)}), newest on top", "small")

    def _marks(self) -> Iterator[str]:
        for row, mark in enumerate(m for m in self.run.marks if m.kind != "phase"):
            yield _text(LEFT, self.bottom + 92 + 18 * row, mark_told(mark), "red" if mark.kind == "dead" else "b")
            if mark.kind == "bad":
                yield _line("redline", self.x(mark.at), TOP + LOADS, self.x(mark.at), self.bottom)

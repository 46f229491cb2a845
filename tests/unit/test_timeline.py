"""A run's ledger as a timeline: bars, outage, marks, load; the earlier runs of its kind; the text and the page."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pd import timeline, timeline_svg, timeline_text
from pd.ledger import Entry
from pd.timeline import Timeline
from pd.timeline_run import Mark, Outage, Run

STEPS = [
    *["stop router0", "drain prefill0, decode0", "stop prefill0", "start prefill0", "gate prefill0 until working"],
    *["start router0", "gate router0 until serving"],
]
ZERO = datetime(2026, 11, 30, 3, 0, tzinfo=UTC)
OK = {"state": "READY"}
Event = tuple[float, str, str, dict[str, Any]]

ORDERED: tuple[Event, ...] = (
    (1, "stop", "router0", {}),
    (2, "stopped", "router0", {}),
    (3, "stop", "prefill0", {}),
    (3.5, "stopped", "prefill0", OK),
    (4, "start", "prefill0", {"invocation": "inv1"}),
    (14, "gate", "prefill0", {**OK, "until": "working", "started": True}),
    (15, "start", "router0", {}),
    (17, "gate", "router0", {**OK, "until": "serving", "started": True}),
)


def ledger(run: str, events: Sequence[Event], *, at: float = 0, outcome: str | None = "done", boot: bool = True, **begin: Any) -> list[Entry]:
    """The entries of one run that begins at `at`."""
    whole: list[Event] = [(0, "begin", "", {"steps": STEPS, "who": "ada@desk", "why": "a knob", "generation": "g1", **begin}), *events]
    if outcome:
        whole.append((whole[-1][0] + 1, "end", "", {"outcome": outcome}))
    made = []
    for seconds, event, instance, fields in whole:
        entry: Entry = {"ts": (ZERO + timedelta(seconds=at + seconds)).isoformat(), "event": event, "run": run, **fields}
        made.append(entry | ({"instance": instance} if instance else {}) | ({"boot": 500 + at + seconds} if boot else {}))
    return made


def drawn(entries: Sequence[Entry], run: str = "r", **more: Any) -> Timeline:
    return timeline.timeline(timeline.relevant(entries, run), run, **more)


def bars(run: Run, lane: str) -> list[tuple[str, float, float]]:
    return [(bar.name, bar.start, bar.end) for bar in run.bars if bar.lane == lane]


@pytest.mark.parametrize("boot", [True, False], ids=["boot clock", "wall clock"])
def test_an_ordered_run_is_told_bar_by_bar(boot: bool) -> None:
    told = drawn(ledger("r", ORDERED, boot=boot))
    assert told.lanes == ("router0", "prefill0")
    assert bars(told.run, "router0") == [("ran", 0, 1), ("stop", 1, 2), ("load+gate", 15, 17), ("serve", 17, 18)]
    assert bars(told.run, "prefill0") == [("ran", 0, 3), ("stop", 3, 3.5), ("load+gate", 4, 14), ("ready", 14, 17), ("serve", 17, 18)]
    assert told.run.outages == (Outage(1, 17),)
    assert (told.run.outcome, told.run.length, told.run.marks, told.run.samples) == ("done", 18, (), ())


def test_a_load_is_told_from_its_gate_by_the_engines_own_word() -> None:
    def said(seconds: float, phase: str, invocation: str = "inv1") -> dict[str, str]:
        return {"ts": (ZERO + timedelta(seconds=seconds)).isoformat(), "phase": phase, "invocation": invocation}

    phases = [said(5, "loading weights"), said(13, "warm-up done"), said(6, "of another start", "inv0"), said(99, "after it all")]
    told = drawn(ledger("r", ORDERED), phases=phases)
    assert bars(told.run, "prefill0")[2:4] == [("load", 4, 13), ("gate", 13, 14)]
    assert told.run.marks == (Mark(5, "phase", "loading weights", "prefill0"),)


def test_a_clock_that_was_stepped_moves_nothing_when_the_boot_clock_is_there_and_is_said_when_not() -> None:
    stepped = ledger("r", ORDERED)
    for entry in stepped[4:]:
        entry["ts"] = (datetime.fromisoformat(entry["ts"]) - timedelta(hours=1)).isoformat()
    assert drawn(stepped).run.outages == (Outage(1, 17),)
    without = [{key: value for key, value in entry.items() if key != "boot"} for entry in stepped]
    (note,) = drawn(without).run.marks
    assert "clock was set back" in note.text
    assert "clock was set back" in "\n".join(timeline_text.lines(drawn(without)))
    mixed = [stepped[0], *without[1:]]
    assert drawn(mixed).run.marks, "one entry without a boot stamp: the wall clock is all there is"


DEAD = {"state": "DEAD", "until": "working", "started": True, "why": "killed by signal 9\nmore of it"}


def test_a_dead_engine_is_marked_where_it_was_seen_and_the_outage_is_not_over() -> None:
    told = drawn(ledger("r", [*ORDERED[:5], (9, "gate", "prefill0", DEAD)], outcome="failed"))
    assert told.run.outages == (Outage(1, None),)
    assert told.run.marks == (Mark(9, "dead", "killed by signal 9", "prefill0"),)
    (load,) = [bar for bar in told.run.bars if bar.kind == "load"]
    assert (load.end, load.open) == (9, True)
    text = "\n".join(timeline_text.lines(told))
    assert "✗ at 9.0 s: prefill0: killed by signal 9" in text and "outage 9.0 s AND NOT OVER" in text and "load 5.0…" in text


def test_what_no_verdict_ended_stays_open_until_the_run_ended() -> None:
    told = drawn(ledger("r", ORDERED[:5], outcome="failed"))
    (load,) = [bar for bar in told.run.bars if bar.kind == "load"]
    assert (load.start, load.end, load.open, load.name) == (4, 5, True, "load")
    never_ended = drawn(ledger("r", ORDERED[:5], outcome=None))
    assert (never_ended.run.outcome, never_ended.run.length) == ("not ended", 4)


def test_a_roll_back_in_the_same_run_is_a_second_bring_up_of_one_outage() -> None:
    again: list[Event] = [(at + 10, *rest) for at, *rest in ORDERED[2:]]  # type: ignore[misc]  # the same shape
    back: Event = (11, "begin", "", {"steps": ["start prefill0"], "generation": "g0", "why": "g1 failed", "back_from": "g1"})
    events: list[Event] = [*ORDERED[:5], (9, "gate", "prefill0", DEAD), (10, "bad", "", {"generation": "g1", "why": "it died"}), back, *again]
    told = drawn(ledger("r", events, outcome="failed"), forecast=15.0)
    assert (told.run.generation, told.lanes, told.forecast) == ("g1", ("router0", "prefill0"), None)
    assert ("bad", "back to g0: g1 failed") in [(mark.kind, mark.text) for mark in told.run.marks]
    assert told.run.outages == (Outage(1, 27),)
    kinds = [name for name, _, _ in bars(told.run, "prefill0")]
    assert kinds == ["ran", "stop", "load", "stop", "load+gate", "ready", "serve"]
    assert ("bad", "g1 marked bad: it died") in [(mark.kind, mark.text) for mark in told.run.marks]


def test_two_outages_when_the_set_fails_after_it_served() -> None:
    events: list[Event] = [*ORDERED, (20, "stop", "router0", {}), (21, "start", "router0", {}), (24, "gate", "router0", {**OK, "until": "serving"})]
    assert drawn(ledger("r", events)).run.outages == (Outage(1, 17), Outage(20, 24))


def test_drain_and_watch_are_drawn_in_every_lane_they_looked_at() -> None:
    events: list[Event] = [
        *ORDERED[:2],
        (2.75, "drained", "", {"instances": ["prefill0", "decode0"], "seconds": 0.5, "cut": 3}),
        *ORDERED[2:],
        (22, "settled", "prefill0", {"instances": ["router0", "prefill0"], "state": "DEAD", "why": "MainPID 7 -> 9"}),
    ]
    told = drawn(ledger("r", events))
    assert bars(told.run, "decode0") == [("drain", 2.25, 2.75)] and "decode0" in told.lanes
    assert bars(told.run, "prefill0")[:3] == [("ran", 0, 3), ("drain", 2.25, 2.75), ("stop", 3, 3.5)], "drained while it ran"
    assert bars(told.run, "router0")[-1] == ("watch", 17, 22)
    assert timeline_text.set_told(told.run) == "drained in 0.5 s, watched for 5.0 s"
    assert [mark.text for mark in told.run.marks] == ["3 requests were cut", "MainPID 7 -> 9"]


def test_an_outage_that_an_earlier_run_began_counts_from_there() -> None:
    """Its controller was killed between the engines; this run finishes, and does not claim the shorter outage."""
    killed = ledger("k", ORDERED[:5], outcome="abandoned")
    rest: list[Event] = [(1, "gate", "prefill0", {**OK, "until": "working"}), (2, "start", "router0", {}), (4, "gate", "router0", OK)]
    told = drawn([*killed, *ledger("r", rest, at=60, steps=STEPS[-2:])])
    assert told.run.outages == (Outage(-59, 4),)
    assert "outage 63.0 s (59 s of it before this run)" in timeline_text.outage_told(told)
    assert bars(told.run, "prefill0")[0] == ("ran", 0, 1), "it was looked at only: it ran when the run began"


@pytest.mark.parametrize("boot", [True, False])
def test_a_lock_that_was_taken_over_is_noted(boot: bool) -> None:
    """The takeover is written before the `begin`, and a little earlier."""
    entries = ledger("r", ORDERED, boot=boot)
    taken = {**entries[0], "event": "takeover", "from_who": "bob@gone", "ts": (ZERO - timedelta(seconds=0.1)).isoformat()}
    told = drawn([taken | ({"boot": 499.9} if boot else {}), *entries])
    assert told.run.marks == (Mark(0, "note", "took over from bob@gone, who was gone"),)
    assert told.run.outages == (Outage(1, 17),)


def test_a_router_that_nobody_knows_to_have_run_was_down_for_longer_than_is_known() -> None:
    told = drawn(ledger("r", ORDERED[4:]))
    assert told.run.outages == (Outage(0, 17, known=False),)
    assert "at least 17.0 s (down when the run began)" in timeline_text.outage_told(told)
    assert bars(told.run, "prefill0")[0] == ("load+gate", 4, 14), "and nothing ran before"


def test_earlier_runs_are_the_last_finished_ones_with_the_same_steps() -> None:
    entries: list[Entry] = []
    for number in range(8):
        entries += ledger(f"failed{number}", ORDERED[:5], at=100 * number, outcome="failed")
        entries += ledger(f"old{number}", ORDERED, at=100 * number + 50)
    entries += ledger("other", ORDERED, at=900, steps=["stop router0"])
    entries += ledger("r", ORDERED, at=1100)
    told = drawn([*entries, *ledger("later", ORDERED, at=1200)], forecast=15.0)
    assert [run.id for run in told.earlier] == [f"old{number}" for number in range(3, 8)]
    assert timeline_text.outage_told(told) == "outage 16.0 s, forecast 15.0 s, last 5 such runs 16.0 to 16.0 s"


def test_load_is_what_was_measured_and_nothing_in_between() -> None:
    events: list[Event] = [*ORDERED[:2], (2.5, "drained", "prefill0", {"seconds": 0.5, "load": {"prefill0": {"running": 1}, "router0": {}}})]
    before = {"ts": (ZERO - timedelta(seconds=2)).isoformat(), "boot": 498.0}
    read = [{**before, "load": {"router0": {"active": 55}, "decode0": {"running": 53}, "prefill0": {}}}, {**before, "load": {}}]
    told = drawn(ledger("r", events), loads=read)
    assert [(s.at, s.count, s.source) for s in told.run.samples] == [(-2, 55, "router0"), (2.5, 1, "prefill0")]
    assert "in flight: 55 at -2 s, 1 at 2 s" in "\n".join(timeline_text.lines(told))
    assert "flow" not in timeline_svg.svg(told), "4.5 s lie between the two, so no line joins them"


def test_the_text_fits_a_terminal_and_its_bars_are_to_scale() -> None:
    lines = timeline_text.lines(drawn(ledger("r", ORDERED, why="w" * 300), forecast=15.0))
    assert all(len(line) <= 100 for line in lines)
    assert lines[0].startswith("  done in 18.0 s, 2026-11-30 03:00:00 UTC, generation g1, by ada@desk: www")
    prefill = next(line for line in lines if line.startswith("  prefill0"))
    assert prefill.count("▒") == pytest.approx(20 * prefill.count("░"), rel=0.4), "10 s of load, half a second of stop"
    assert prefill.endswith("stop 0.5  load+gate 10.0")
    (outage,) = [line for line in lines if "├" in line]
    assert outage.index("├") == prefill.index("─") + len("─" * round(outage.count("─") / 16)), "it begins after one second"


def test_the_page_is_whole_and_says_nothing_unescaped() -> None:
    entries = ledger("r", ORDERED, why="<script>alert(1)</script> & so on", who="a\x08\ud800da@desk")
    page = timeline_svg.page(drawn(entries, forecast=40.0), entries)
    assert "a··da@desk" in page and page.encode()
    assert "<script" not in page and "&lt;script&gt;" in page
    svg = ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    text = " ".join(svg.itertext())
    assert "outage 16.0 s" in text and "forecast 40.0 s" in text and "not measured in this run" in text
    assert float(svg.attrib["viewBox"].split()[2]) == timeline_svg.WIDTH
    edges = [float(box.attrib["x"]) + float(box.attrib["width"]) for box in svg.iter("{http://www.w3.org/2000/svg}rect")]
    assert max(edges) <= timeline_svg.WIDTH


EVENTS = st.sampled_from(["stop", "stopped", "start", "gate", "drained", "settled", "killed", "bad", "takeover", "good", "end", "new"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(["READY", "WAIT", "DEAD"]),
        "until": st.sampled_from(["working", "serving", "stopped"]),
        "why": st.text(max_size=20) | st.none(),
        "seconds": st.floats(0, 100),
        "cut": st.integers(0, 3) | st.none(),
        "instances": st.lists(st.sampled_from(["router0", "prefill0"])),
        "load": st.dictionaries(st.sampled_from(["router0", "prefill0"]), st.dictionaries(st.sampled_from(["active", "running"]), st.integers(0, 9))),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 100), EVENTS, st.sampled_from(["", "router0", "prefill0", "neu"]), FIELDS), max_size=20), st.booleans())
def test_whatever_the_ledger_says_can_be_drawn(events: list[Event], boot: bool) -> None:
    """Also what no run of today writes: the picture must never be what fails."""
    told = drawn(ledger("r", events if not boot else sorted(events, key=lambda event: event[0]), boot=boot, outcome=None))
    assert all(len(line) <= 100 for line in timeline_text.lines(told))
    page = timeline_svg.page(told)
    ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    if boot:
        assert all(0 <= bar.start <= bar.end <= told.run.length for bar in told.run.bars)


def test_a_run_that_the_ledger_does_not_know_is_refused() -> None:
    assert timeline.relevant(ledger("r", ORDERED), "nobody") == []
    with pytest.raises(ValueError, match="no `begin` of run nobody"):
        timeline.timeline([], "nobody")

"""What is left to look at after a run: the picture on the controller and its text, both out of the machine's ledger."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support import double
from tests.support.pairs import Pair
from tests.support.project import Outcome, ledger

pytestmark = pytest.mark.host


def picture(done: Outcome) -> tuple[str, ET.Element]:
    """The page that a run says it left, and the SVG in it."""
    (told,) = done.results("Draw what happened")
    text = Path(told["path"]).read_text(encoding="utf-8")
    return text, ET.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])


def tips(svg: ET.Element) -> list[str]:
    """What the parts of the picture say when they are pointed at."""
    return [str(node.text) for node in svg.iter("{http://www.w3.org/2000/svg}title")]


def outage(entries: list[dict[str, Any]]) -> float:
    """From the first stop of the router to its proof, straight from the stamps."""
    (stop,) = [e["ts"] for e in entries if e["event"] == "stop" and e["instance"] == "router0"]
    (gate,) = [e["ts"] for e in entries if e["event"] == "gate" and e["instance"] == "router0"]
    return (datetime.fromisoformat(gate) - datetime.fromisoformat(stop)).total_seconds()


def test_every_run_leaves_a_picture_of_itself_beside_the_one_before(pair: Pair) -> None:
    """Issue 3, point 9: lanes, seconds, outage, forecast, load, phases; the second run shows the first one behind it."""
    double.script(pair.machine, "prefill0", load_seconds=3)
    pair.project.play("restart-pd.yml").ok()
    double.script(pair.machine, "decode0", loads={"num_running_reqs": 7})
    mark = len(ledger(pair.machine))
    done = pair.project.play("restart-pd.yml").ok()
    mine = ledger(pair.machine)[mark:]
    text, svg = picture(done)
    assert not re.search(r"(src|href)=|@import|url\((?!#)", text), "the page loads nothing"
    seconds = float(re.search(r"outage ([\d.]+) s, forecast [\d.]+ s, the one such run before ", done.stdout)[1])  # type: ignore[index]  # no match fails
    assert seconds == pytest.approx(outage(mine), abs=0.2)
    assert f"outage {seconds:.1f} s" in text
    said = tips(svg)
    (load,) = [float(tip.split()[2]) for tip in said if tip.startswith("prefill0: load ")]
    assert 3 <= load < 6, "loaded by its own word, out of its journal"
    assert any(tip.startswith("prefill0: gate ") for tip in said) and any("loading weights" in tip for tip in said)
    assert sum(" in flight at " in tip for tip in said) >= 2 and any(tip.startswith("7 in flight") for tip in said)
    assert any(re.search(r"UTC: load\+gate", tip) for tip in said), "the earlier run is behind"
    lanes = [line for line in done.stdout.splitlines() if re.match(r"  (router0|prefill0|decode0) .*[▒▓█]", line)]
    assert len(lanes) == 3 and all(len(line) <= 100 for line in lanes)
    assert all(entry["ts"] in text for entry in mine), "the entries it was drawn from are part of the page"


def test_a_failed_run_is_drawn_with_what_was_dead_and_check_mode_draws_nothing(pair: Pair) -> None:
    """The failure stays the run's own; the picture shows where it was seen, and that the outage is not over."""
    pair.project.play("restart-pd.yml", "--check").ok()
    assert not (pair.project.root / "runs").exists()
    double.script(pair.machine, "decode0", load_seconds=30, die_at={"phase": "load", "after_s": 1})
    done = pair.project.play("restart-pd.yml")
    assert done.rc != 0
    text, svg = picture(done)
    (dead,) = [e for e in ledger(pair.machine) if e["event"] == "gate" and e["state"] == "DEAD"]
    assert any("NOT OVER" in str(node.text) for node in svg.iter("{http://www.w3.org/2000/svg}text"))
    assert dead["why"] in "".join(svg.itertext()) and "✗" in done.stdout
    assert "decode0 did not reach `working`" in done.failures()[0]
    assert text.index("failed in") < text.index("</title>")


def test_a_picture_that_cannot_be_drawn_costs_a_warning(pair: Pair) -> None:
    """A file stands where the folder should be: the run succeeds as it would have."""
    (pair.project.root / "runs").write_text("")
    done = pair.project.play("restart-pd.yml").ok()
    assert "no timeline of this run: " in done.stdout

"""What verify says about the time since somebody last looked: recoveries, who is at work, what was stopped or restarted by hand. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import unattended
from .ledger import Entry
from .observe import Unit

UNIT = "sglang-recover@.service"
MEND = "mend the cause, then: restart-pd.yml"


@dataclass(frozen=True)
class Story:
    """`holder`: what the lock tells of somebody who is at work now, empty for nobody. `recoverers`: the units that recover it."""

    entries: Sequence[Entry]
    holder: str
    recoverers: Sequence[Unit]


def findings(engines: Mapping[str, Unit], routers: Mapping[str, Unit], story: Story) -> list[dict[str, Any]]:
    """The set's findings first, then those of its instances."""
    found = [finding("", f"a co-restart is at work now, {story.holder}", False)] if story.holder else []
    found += [finding("", text, fails) for text, fails in _recoveries(story)]
    states = {unit.active_state for unit in story.recoverers}
    if "absent" in states:
        found.append(finding("", f"{UNIT} is not installed: site.yml installs it. An engine that dies now stays down", False))
    if "failed" in states:
        found.append(finding("", f"{UNIT} has failed: journalctl -t sglang-recover. An engine that dies now may stay down", False))
    if story.holder:
        return found
    started = unattended.started(story.entries)
    renewed = {name: unit for name, unit in engines.items() if unit.runs and unit.ended_at and unit.invocation not in started}
    for name, other in unattended.outlived(renewed, {**engines, **routers}).items():
        text = f"is older than {other}, which was started anew by hand: it may hold stale peers or open circuits; restart-pd.yml ends that"
        found.append(finding(name, text, False))
    ours = _stopped_by_a_run(story.entries)
    for name, unit in {**engines, **routers}.items():
        if not unit.runs and unit.started_at and not unattended.is_dead(name, unit) and name not in ours:
            found.append(finding(name, "was stopped by hand and stays so: restart-pd.yml starts the set", False))
    return found


def _recoveries(story: Story) -> list[tuple[str, bool]]:
    begun = unattended.since_last_transaction(story.entries)
    if not begun:
        return []
    last = begun[-1]
    ended = next((e for e in reversed(story.entries) if e.get("event") == "end" and e.get("run") == last.get("run")), None)
    if ended is None:
        cut = f"a recovery of {last['ts']} was cut off ({last['why']}): `systemctl start sglang-recover@operator` goes on with it"
        return [] if story.holder else [(cut, True)]
    if ended["outcome"] == unattended.GAVE_UP:
        return [(f"recovery gave up at {ended['ts']}: {ended['why']}. What could not be held up was stopped; {MEND}", True)]
    if ended["outcome"] != "done":
        return [(f"the last recovery failed at {ended['ts']}: {ended.get('why', ended['outcome'])}; {MEND}", True)]
    times = "1 recovery" if len(begun) == 1 else f"{len(begun)} recoveries"
    took = f"served again after {ended['seconds']:.0f} s"
    return [(f"{times} since the last transaction, the last one at {last['ts']}: {last['why']}; {took}. Nobody asked for that", False)]


def _stopped_by_a_run(entries: Sequence[Entry]) -> set[str]:
    last = {str(e.get("instance")): e["event"] for e in entries if e.get("event") in ("start", "stop")}
    return {name for name, event in last.items() if event == "stop"}


def finding(instance: str, text: str, fails: bool) -> dict[str, Any]:
    """One finding; `fails`: it makes verify fail. No instance: of the set."""
    return {"instance": instance, "text": text, "fails": fails}

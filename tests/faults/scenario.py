"""A fault as one row: what is arranged, what is done, and everything that must be true afterwards.

What happened is seen by ways that are not the product's own: systemd's invocation ids, /proc, a request of this file
through the router. Only the ledger and the messages are the product's, because they are what is judged.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lab.errors import ExecError
from tests.support.pairs import ROUTER, UNITS, Pair
from tests.support.project import Outcome, ledger

End = Literal["untouched", "serves", "rolled back", "down"]
"""untouched: refused, the very same processes serve. serves: done, and a request is answered. rolled back: the run failed, and the
generation of before answers. down: the run failed, says which instance, verify.yml says so too, and no request is answered."""

ASK = f"""
import json, sys, urllib.request
body = json.dumps({{"model": "any", "messages": [{{"role": "user", "content": "repeat: " + sys.argv[1]}}], "max_tokens": 32, "temperature": 0}})
request = urllib.request.Request("{ROUTER}/v1/chat/completions", body.encode(), {{"Content-Type": "application/json"}})
print(urllib.request.urlopen(request, timeout=float(sys.argv[2])).read().decode())
"""
INVOCATIONS = "for unit in $*; do systemctl show -P InvocationID -P ActiveState $unit | paste -sd' '; done"


@dataclass(frozen=True)
class Scenario:
    """One fault. `says`, `never`: patterns of what the run prints. `fate`: of prefill0, decode0, router0: same, new or down.

    `undo` takes back what was arranged, on a machine that goes on to the next scenario. `ledger`: entries that the run must leave, in
    this order, others may lie between; no entry named: none may be left. `once`: no instance was started twice. `reports`: the field
    reports that it stands for.
    """

    act: Callable[[Pair], Outcome]
    ends: End
    says: tuple[str, ...]
    fate: str = "same same same"
    arrange: Callable[[Pair], object] = lambda _pair: None
    ledger: tuple[str, ...] = ()
    undo: Callable[[Pair], object] = lambda _pair: None
    never: tuple[str, ...] = ()
    once: bool = False
    reports: tuple[str, ...] = ()
    echoes: bool = True


@dataclass(frozen=True)
class Before:
    """What a scenario is compared with."""

    invocations: Mapping[str, str]
    generation: str
    entries: int


def carry_out(scenario: Scenario, pair: Pair) -> None:
    """Arrange, act, and judge every part of the row."""
    before = Before(invocations(pair), pair.generation(), len(ledger(pair.machine)))
    scenario.arrange(pair)
    try:
        judge(scenario, before, scenario.act(pair), pair)
    finally:
        scenario.undo(pair)


def judge(scenario: Scenario, before: Before, done: Outcome, pair: Pair) -> None:
    """Whether everything is as the row says."""
    told = "\n".join([*done.failures(), done.stdout])
    assert (done.rc == 0) is (scenario.ends == "serves"), told[-6000:]
    for pattern in scenario.says:
        assert re.search(pattern, told), f"{pattern!r} is nowhere in:\n{told[-6000:]}"
    for pattern in scenario.never:
        assert not re.search(pattern, told), f"{pattern!r} is in:\n{told[-6000:]}"
    assert fate(before, pair) == scenario.fate, told[-6000:]
    left = [line(entry) for entry in ledger(pair.machine)[before.entries :]]
    assert in_order(scenario.ledger, left) if scenario.ledger else left == [], left
    assert not scenario.once or sorted(one for one in left if one.startswith("start ")) == sorted(f"start {name}" for name in UNITS), left
    END[scenario.ends](scenario, before, pair)
    if scenario.ends in ("rolled back", "down"):
        bundled(done)


def invocations(pair: Pair) -> dict[str, str]:
    """Instance -> the id systemd gave to its present start, empty when it does not run."""
    told = pair.machine.exec(f"set -- {' '.join(UNITS.values())}; {INVOCATIONS}").stdout.splitlines()
    pairs = dict(zip(UNITS, (text.split() for text in told), strict=True))
    return {name: next((word for word in words if len(word) == 32), "") if "active" in words else "" for name, words in pairs.items()}


def fate(before: Before, pair: Pair) -> str:
    """same, new or down for each instance, in start order."""
    now = invocations(pair)
    return " ".join("down" if not now[name] else "same" if now[name] == was else "new" for name, was in before.invocations.items())


def line(entry: Mapping[str, Any]) -> str:
    """A ledger entry as a row of a scenario names it: `gate decode0 DEAD`, `end failed`."""
    return " ".join(str(entry[key]) for key in ("event", "instance", "state", "outcome") if entry.get(key))


def in_order(wanted: tuple[str, ...], left: list[str]) -> bool:
    """Whether all that is wanted is there, in that order."""
    rest = iter(left)
    return all(any(one == entry for entry in rest) for one in wanted)


def answer(pair: Pair, seconds: float = 30, *, echoes: bool = True) -> str:
    """What is wrong with the answer to a question that nobody asked before; empty when it is answered."""
    nonce = uuid.uuid4().hex
    try:
        told = json.loads(pair.machine.exec(["python3", "-c", ASK, nonce, str(seconds)], timeout=seconds + 10).stdout)
    except ExecError as error:
        return str(error)[-300:]
    (choice,) = told["choices"]
    said = choice["message"].get("content") or ""
    good = choice["finish_reason"] in ("stop", "length") and told["usage"]["completion_tokens"] >= 1
    return "" if good and (nonce in said if echoes else said) else json.dumps(told)


def untouched(scenario: Scenario, before: Before, pair: Pair) -> None:
    assert pair.generation() == before.generation
    assert answer(pair, echoes=scenario.echoes) == ""


def serves(scenario: Scenario, before: Before, pair: Pair) -> None:
    """A request is answered, and every process of every instance runs the generation that is current."""
    assert answer(pair, echoes=scenario.echoes) == ""
    current = pair.generation()
    assert {env.get("PD_GENERATION") for name in UNITS for env in pair.environs(name)} == {current}, before


def rolled_back(scenario: Scenario, before: Before, pair: Pair) -> None:
    assert pair.generation() == before.generation
    serves(scenario, before, pair)


def down(scenario: Scenario, before: Before, pair: Pair) -> None:
    """Nobody is answered, and whoever looks is told."""
    assert answer(pair, 10, echoes=scenario.echoes) != "", before
    assert pair.project.play("verify.yml").rc != 0


def bundled(done: Outcome) -> None:
    """The last line of the run is where its evidence is, and it is there."""
    folder = Path(done.failures()[-1].splitlines()[-1])
    summary = folder / "summary.txt"
    assert summary.is_file() and summary.stat().st_size > 100, folder


END: Mapping[End, Callable[[Scenario, Before, Pair], None]] = {
    "untouched": untouched,
    "serves": serves,
    "rolled back": rolled_back,
    "down": down,
}

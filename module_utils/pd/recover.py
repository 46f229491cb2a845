"""Bring the set up again when nobody is there: `python -m pd.recover`, run on the node by sglang-recover.service.

systemd asks for it when an engine fails (OnFailure=) and when one is started (Wants=), whoever did that. It looks, decides by
unattended.py, and acts as a transaction does: under the same lock, by the same plan, gates and ledger. While a co-restart is at work it
waits for its end, and looks then. What it does is said in its journal.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import climb, gates, instances, ledger, lock, node, observe, plan, runs, stopping, unattended
from .node import Placed
from .patience import took

SETTINGS = Path(__file__).parents[1] / "recover.json"
LOOK_SECONDS = 2.0
"""One look of a gate; between two, the others are looked at and the lock is renewed."""
SAY_SECONDS = 10.0
STOP_SECONDS = 30.0
"""SIGKILL was sent: what is not gone by then hangs in the kernel."""


@dataclass(frozen=True)
class Settings:
    """What the role wrote, in seconds but for `times`. `settle`: how long the set is looked at after it serves (field report 002)."""

    times: int = 3
    window: float = 1800.0
    settle: float = 10.0
    start_deadline: float = 3600.0
    serve_deadline: float = 300.0
    request_timeout: float = 60.0


class FailedError(Exception):
    """This try failed; `hung`: something was waited for in vain, which did not die and was not stopped."""

    def __init__(self, why: str, *, hung: bool = False) -> None:
        super().__init__(why)
        self.hung = hung


def say(text: str) -> None:
    """One line for the journal."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


class Recovery:
    """One try: a transaction of its own."""

    def __init__(self, run: str, generation: str, settings: Settings) -> None:
        self.run = run
        self.generation = generation
        self.settings = settings
        self.members = {m.name: m for m in node.everyone(generation)}
        self.baselines: dict[str, gates.Baseline] = {}

    def bring_up(self, todo: unattended.Todo) -> None:
        """Stop hard what has outlived an engine, the router first; then carry out the plan for what is left. Raises FailedError."""
        self.stop(todo.stop)
        seen = {m.name: instances.observed(m.name, m.unit) for m in self.members.values()}
        states = {name: plan.Seen(one["active_state"], one["generation"]) for name, one in seen.items()}
        engines = [m.name for m in self.members.values() if not m.is_router]
        routers = [m.name for m in self.members.values() if m.is_router]
        # not good: what is down is started, though nobody asks for it
        made = plan.plan(states, self.generation, False, engines, routers, strategy="overlapped")
        say(f"plan: {', '.join(map(str, made.steps))}")
        for step in made.steps:
            member = self.members[step.instance]
            lock.keep(self.run)
            if step.action == "stop":
                self.stop([step.instance])
            elif step.action == "start":
                after = instances.started(member.name, member.unit, self.run, seen[member.name])
                self.baselines[member.name] = gates.Baseline(after["main_pid"], after["n_restarts"], after["invocation"])
            elif step.action == "gate":  # nothing is left to drain, and `settle` watches
                self.gate(member, str(step.until), step.started)

    def stop(self, names: tuple[str, ...] | list[str]) -> None:
        """Stop hard, all at once: a client that waits is told now, and a drain would wait for a peer that is gone."""
        for name in names:
            unit = self.members[name].unit
            observe.run(["systemctl", "stop", "--no-block", unit])  # before the kill, so that systemd does not take it for a crash
            observe.run(["systemctl", "kill", "--signal=SIGKILL", unit])
            ledger.append("stop", {"instance": name, "run": self.run, "generation": self.generation, "hard": True})
            say(f"{name}: stopped hard")
        for name in names:
            stopped = observe.unit(self.members[name].unit)
            halted = stopping.halt(stopped, since=lock.boottime(), grace=math.inf, seconds=STOP_SECONDS, count=lambda: None)
            if not halted.gone:
                raise FailedError(f"{name} cannot be stopped: {halted}", hung=True)
            ledger.append("stopped", {"instance": name, "run": self.run, "generation": self.generation})

    def gate(self, member: Placed, until: str, started: bool) -> None:
        """Wait for the rung, while all that this try has started is watched. Raises FailedError."""
        began = said = time.monotonic()
        limit = self.settings.serve_deadline if until == "serving" else self.settings.start_deadline
        climber = climb.Climber(member, until, self.baselines.get(member.name), self.settings.request_timeout)
        while True:
            lock.keep(self.run)
            verdict = climb.wait(climber, LOOK_SECONDS)
            waited = time.monotonic() - began
            if verdict.state == "READY":
                self._record(climber, verdict, started)
                say(f"{member.name}: {until} after {took(waited)} ({verdict.why})")
                return
            if verdict.state == "DEAD":
                self._record(climber, verdict, started)
                raise FailedError(f"{member.name} did not reach `{until}`: {verdict.why}")
            self._watch()
            if waited > limit:
                raise FailedError(f"{member.name} did not reach `{until}` in {took(limit)}: {verdict.why}", hung=True)
            if time.monotonic() - said > SAY_SECONDS:
                said = time.monotonic()
                say(f"{member.name}: {took(waited)} | {verdict.why}")

    def _watch(self) -> None:
        for name, since in self.baselines.items():
            verdict = gates.alive(observe.unit(self.members[name].unit), since)
            if verdict.state == "DEAD":
                raise FailedError(f"{name} did not stay up: {verdict.why}")

    def settle(self) -> None:
        """Watch what was started for a while: an engine may die when its new peer connects (field report 002); the next look sees it."""
        end = time.monotonic() + self.settings.settle
        try:
            while time.monotonic() < end:
                self._watch()
                time.sleep(0.5)
        except FailedError as error:
            say(str(error))

    def _record(self, climber: climb.Climber, verdict: gates.Verdict, started: bool) -> None:
        fields = {"instance": climber.member.name, "generation": self.generation, "run": self.run, "started": started, "until": climber.until}
        fields |= {"state": verdict.state, "rung": verdict.rung, "why": verdict.why}
        if verdict.state == "READY":
            fields["seconds"] = round(time.monotonic() - climber.unit.started_at, 3)
        ledger.append("gate", fields)


def look(generation: str, settings: Settings, goes_on: str, hung: bool) -> unattended.Now:
    """The set as it is."""
    entries = ledger.read()
    members = node.everyone(generation)
    units = {m.name: observe.unit(m.unit) for m in members}
    begun = unattended.cut_off(entries)
    return unattended.Now(
        engines={m.name: units[m.name] for m in members if not m.is_router},
        routers={m.name: units[m.name] for m in members if m.is_router},
        started=unattended.started(entries),
        closed=unattended.closed(entries),
        recent=unattended.recent(entries, lock.boot_id(), lock.boottime(), settings.window),
        goes_on=goes_on or (f"a recovery of {begun['ts']} was cut off ({begun['why']})" if begun else ""),
        hung=hung,
    )


def take(run: str, why: str, generation: str) -> lock.Lock | None:
    """Take the lock and begin; the lock of somebody who is at work, when there is one. A holder that is gone is taken over."""
    asked = lock.new(run, unattended.WHO, why, datetime.now(UTC).isoformat(timespec="seconds"))
    with lock.exclusive():
        held = lock.read()
        dead = frozenset({held.run}) if held and runs.is_dead_here(held.run) else frozenset[str]()
        verdict = lock.decide(held, asked, asked.boot, asked.renewed, dead)
        if verdict == "refuse":
            return held
        lock.write(asked)
        fields = {"run": run, "generation": generation, "who": unattended.WHO, "why": why}
        if verdict == "take over" and held is not None:
            ledger.append("takeover", {**fields, "from_run": held.run, "from_who": held.who, "held_since": held.since})
            ledger.append("end", {"run": held.run, "outcome": "abandoned", "noticed_by": run})
        ledger.append("begin", {**fields, "boot": asked.boot, "at": asked.renewed})
    return None


def give_back(run: str, generation: str, outcome: str, fields: Mapping[str, Any]) -> None:
    """End, and let others in. Where the lock was taken over meanwhile, that run has written our end."""
    with lock.exclusive():
        held = lock.read()
        if held is not None and held.run == run:
            ledger.append("end", {"run": run, "generation": generation, "outcome": outcome, **fields})
            lock.release(run)


def wait_for(held: lock.Lock) -> None:
    """Until the lock is free, or its holder gone."""
    say(f"a co-restart is at work, {held.told(lock.boottime())}: waiting for its end")
    while True:
        now = lock.read()
        if now is None or now.run != held.run or lock.is_gone(now, lock.boot_id(), lock.boottime()):
            return
        time.sleep(1.0)


def attempt(recovery: Recovery, todo: unattended.Todo) -> FailedError | None:
    """Under the lock: bring the set up, or close it; how that ended is in the ledger. The failure, when it is worth another try."""
    began = time.monotonic()
    try:
        if todo.what == "give up":
            recovery.stop(todo.stop)
        else:
            recovery.bring_up(todo)
    except (FailedError, RuntimeError, OSError) as error:
        say(f"failed after {took(time.monotonic() - began)}: {error}")
        give_back(recovery.run, recovery.generation, "failed", {"why": str(error)})
        return error if isinstance(error, FailedError) else FailedError(str(error), hung=True)
    outcome = unattended.GAVE_UP if todo.what == "give up" else "done"
    give_back(recovery.run, recovery.generation, outcome, {"why": todo.why, "seconds": round(time.monotonic() - began, 3)})
    return None


def main(settings: Settings) -> None:
    """Look, decide, act, and look again, until there is nothing to do."""
    goes_on, hung, tries = "", False, 0
    while generation := node.current_id():
        todo = unattended.decide(look(generation, settings, goes_on, hung), unattended.Limit(settings.times, settings.window))
        if todo.what == "nothing":
            say(todo.why)
            return
        tries += 1
        run = f"{runs.new(os.getpid())}:{tries}"
        if held := take(run, todo.why, generation):
            wait_for(held)
            continue
        say(f"{todo.what}: {todo.why}")
        recovery = Recovery(run, generation, settings)
        failed = attempt(recovery, todo)
        if todo.what == "give up":
            say("stopped. Mend the cause, then: restart-pd.yml")
            return
        goes_on, hung = (str(failed), failed.hung) if failed else ("", False)
        if not failed:
            say("the set serves again")
            recovery.settle()


if __name__ == "__main__":
    main(Settings(**json.loads(SETTINGS.read_text())))

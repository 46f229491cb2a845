"""Bring the set up again when nobody is there: `python -m pd.recover`, run on the node by sglang-recover@.service.

systemd asks for it when an engine fails (OnFailure=) and when one is started (Wants=), whoever did that. It looks, decides by
unattended.py, and acts as a transaction does: under the same lock, by the same plan, gates and ledger. While a co-restart is at work it
waits for its end, and looks then. What it does is said in its journal.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import gates, gating, instances, ledger, lock, node, observe, plan, runs, transaction, unattended
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
    stall_after: float = 0.0
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
        self.began = time.monotonic()
        self.served: float | None = None
        """Seconds after which it served, None when it does not."""

    def bring_up(self, todo: unattended.Todo) -> None:
        """Stop hard what has outlived an engine; then carry out the plan for what is left. Raises FailedError."""
        self.stop(todo.stop)
        seen = {m.name: instances.observed(m.name, m.unit) for m in self.members.values()}
        states = {name: plan.Seen(one["active_state"], one["generation"]) for name, one in seen.items()}
        engines = [m.name for m in self.members.values() if not m.is_router]
        routers = [m.name for m in self.members.values() if m.is_router]
        # not good: what is down is started, though nobody asks for it
        made = plan.plan(states, self.generation, False, engines, routers, strategy="overlapped")
        say(f"plan: {', '.join(map(str, made.steps))}")
        for step in made.steps:
            lock.keep(self.run, doing=str(step))
            if step.action == "stop":
                self.stop([step.instance])
            elif step.action == "start":
                member = self.members[step.instance]
                instances.started({"name": member.name, "unit": member.unit, "run": self.run}, seen[member.name])
            elif step.action == "gate":
                self.gate(step)
            elif step.action == "watch":
                self.watch()
            # a drain has nothing to wait for: the half of each request that was in the dead engine is lost

    def stop(self, names: Sequence[str]) -> None:
        """Stop hard, all at once: a client that waits is told now, and a drain would wait for a peer that is gone."""
        with ThreadPoolExecutor(max_workers=len(names) or 1) as pool:
            for told in pool.map(self._stopped, names):
                say(told)

    def _stopped(self, name: str) -> str:
        unit = self.members[name].unit
        asked = {"name": name, "unit": unit, "run": self.run, "grace": 0.0, "seconds": STOP_SECONDS}
        told = instances.stopped(asked, instances.observed(name, unit))
        if not told["stopped"]:
            raise FailedError(f"{name} cannot be stopped: {told['told']}", hung=True)
        return f"{name}: stopped hard"

    def gate(self, step: plan.Step) -> None:
        """Wait for the rung, while all that this try has brought up is watched. Raises FailedError."""
        began = said = time.monotonic()
        limit = self.settings.serve_deadline if step.until == "serving" else self.settings.start_deadline
        asked: dict[str, Any] = {"name": step.instance, "generation": self.generation, "until": step.until, "started": step.started}
        asked |= {"run": self.run, "baseline": None, "progress": None, "seconds": LOOK_SECONDS}
        asked |= {"request_timeout": self.settings.request_timeout, "stall_after": self.settings.stall_after}
        while True:
            lock.keep(self.run)
            told = gating.look(asked)
            asked |= {"baseline": told["baseline"], "progress": told.get("progress") or asked["progress"]}
            verdict, waited = told["verdict"], time.monotonic() - began
            if verdict["state"] != "WAIT":
                gating.record(asked, told)
            if verdict["state"] == "READY":
                self.served = time.monotonic() - self.began if step.until == "serving" else self.served
                say(f"{step.instance}: {step.until} after {took(waited)} ({verdict['why']})")
                return
            if verdict["state"] == "DEAD":
                raise FailedError(f"{step.instance} did not reach `{step.until}`: {verdict['why']}", hung=verdict["rung"] != "alive")
            self._alive()
            if waited > limit:
                raise FailedError(f"{step.instance} did not reach `{step.until}` in {took(limit)}: {verdict['why']}", hung=True)
            if time.monotonic() - said > SAY_SECONDS:
                said = time.monotonic()
                say(f"{step.instance}: {took(waited)} | {told['phase']} | {verdict['why']}")

    def watch(self) -> None:
        """Look at all of them for a while: an engine may die when its new peer connects (field report 002). Raises FailedError."""
        asked = {"generation": self.generation, "run": self.run, "settle": self.settings.settle, "seconds": LOOK_SECONDS}
        while True:
            lock.keep(self.run)
            verdict = gating.watch(asked)["verdict"]
            if verdict["state"] == "DEAD":
                raise FailedError(verdict["why"])
            if verdict["state"] == "READY":
                return

    def _alive(self) -> None:
        """An engine that dies while another is gated is not waited for."""
        for entry in ledger.read():
            if entry["event"] == "start" and entry.get("run") == self.run:
                since = gates.Baseline(*(entry[key] for key in ("main_pid", "n_restarts", "invocation")))
                verdict = gates.alive(observe.unit(self.members[entry["instance"]].unit), since)
                if verdict.state == "DEAD":
                    raise FailedError(f"{entry['instance']} did not stay up: {verdict.why}")


def units(name: str) -> tuple[str, str]:
    """The units that an instance's own unit asks for: when it died, and when it was started."""
    return f"sglang-recover@{name}-died.service", f"sglang-recover@{name}-started.service"


def look(generation: str, settings: Settings, goes_on: str, hung: bool) -> unattended.Now:
    """The set as it is."""
    members = node.everyone(generation)
    units = {m.name: observe.unit(m.unit) for m in members}
    entries = ledger.read()  # after the units: a process that is seen is then in the ledger, if a run started it
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
        transaction.begin(asked, held, generation, boot_id=asked.boot)
    return None


def wait_for(held: lock.Lock) -> None:
    """Until the lock is free, or its holder gone."""
    say(f"a co-restart is at work, {held.told(lock.boottime())}: waiting for its end")
    while True:
        now = lock.read()
        if now is None or now.run != held.run or lock.is_gone(now, lock.boot_id(), lock.boottime()) or runs.is_dead_here(held.run):
            return
        time.sleep(1.0)


def attempt(recovery: Recovery, todo: unattended.Todo) -> FailedError | None:
    """Under the lock: bring the set up, or close it; how that ended is in the ledger. The failure, when it is worth another try."""
    outcome, failed, why = "done", None, todo.why
    try:
        if todo.what == "give up":
            outcome = unattended.GAVE_UP
            recovery.stop(todo.stop)
        else:
            recovery.bring_up(todo)
    except (FailedError, RuntimeError, OSError) as error:
        failed = error if isinstance(error, FailedError) else FailedError(str(error), hung=True)
        outcome, why = ("failed" if outcome == "done" else outcome), f"{todo.why}; {error}"
    with lock.exclusive():
        transaction.end(recovery.run, recovery.generation, outcome, why=why, seconds=round(recovery.served or 0.0, 3))
    return failed


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
        say(f"failed: {failed}" if failed else f"the set serves again, after {took(recovery.served or 0.0)}")


if __name__ == "__main__":
    main(Settings(**json.loads(SETTINGS.read_text())))

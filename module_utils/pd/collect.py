"""The bundle of a failed run, made on the node: read everything, hide the secrets, write the page that is read first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import bundle, ledger, loads, node, secrecy
from .bundle import Failure
from .evidence import FAILURES, Read, Subject, gather, generations, of_instance, of_machine, secrets_of, subjects

FILE_CHARACTERS = 400_000
WITHOUT_SECRETS = ("unit.json", "disk.json", "generations.txt")
"""What is shown even where the secrets to hide could not be known: systemd's properties, numbers, manifests (they have none)."""
SHORT = ("unit.json", "disk.json", "rungs.json", "loads.json", "circuits.json", "readiness.json")
"""What stands in observations.json too, each with the time it was read."""


@dataclass(frozen=True)
class Collected:
    """The bundle's files (path -> text, secrets hidden), its mechanical evidence, and how the routers stood."""

    files: Mapping[str, str]
    causes: Sequence[str]
    routers: Mapping[str, str]


def collect(failure: Failure, stack: str) -> Collected:
    """Read all there is to see, and write it up. Never raises for what cannot be read: that is told instead."""
    entries = ledger.read()
    whole = generations(entries, failure.generation)
    unread: list[str] = []
    seen: list[Subject] = []
    hidden: frozenset[str] | None = None
    try:
        seen = subjects(failure.generation, entries, failure.run)
        hidden = secrets_of({*whole.values(), *(subject.member.generation for subject in seen)})
    except FAILURES as error:
        unread.append(f"all that may hold a secret (journals, answers, command lines) was left out: what to hide could not be known: {error}")
    work = {**of_machine(entries, failure.run), "generations.txt": lambda: compared(whole)}
    for subject in seen:
        work |= of_instance(subject)
    reads = gather({name: read for name, read in work.items() if hidden is not None or name.endswith(WITHOUT_SECRETS)})
    unread += [f"{name}: {read.error}" for name, read in reads.items() if read.error]
    known = hidden or frozenset[str]()
    found = _causes(failure, seen, reads)
    files = {name: _text(read.told, known) for name, read in reads.items() if not read.error}
    files["observations.json"] = _text([{"what": name, **asdict(read)} for name, read in reads.items() if name.endswith(SHORT)], known)
    files |= {"plan.txt": f"{failure.plan}\n\nwhat failed:\n{failure.message}\n"} | ({"stack.txt": stack} if stack else {})
    told = [*bundle.history(entries, failure.run), *_told(seen, reads)]
    files["summary.txt"] = bundle.summary(failure, told, found, unread, [*files, "summary.txt"])
    # data was hidden as data, which keeps it well-formed; the last pass knows every form of a secret and no grammar
    safe = {name: bundle.bounded(_last_pass(name, text, known), FILE_CHARACTERS) for name, text in files.items()}
    return Collected(safe, [secrecy.hide(line, known) for line in found], routers(seen, reads))


def _last_pass(name: str, text: str, known: frozenset[str]) -> str:
    return secrecy.hide_known(text, known) if name.endswith((".json", ".jsonl")) else secrecy.hide(text, known)


def _text(told: Any, known: frozenset[str]) -> str:
    if isinstance(told, str):
        return told
    shown = secrecy.hidden(told, known)
    if isinstance(told, tuple):  # lines of their own
        return "\n".join(json.dumps(one, sort_keys=True, ensure_ascii=False) for one in shown) + "\n"
    return json.dumps(shown, indent=1, ensure_ascii=False, default=str)


def _causes(failure: Failure, seen: Sequence[Subject], reads: Mapping[str, Read]) -> list[str]:
    texts = {s.member.name: str(reads[f"{s.member.name}/journal.txt"].told or "") for s in seen if f"{s.member.name}/journal.txt" in reads}
    texts["kernel"] = str(reads["kernel.txt"].told or "") if "kernel.txt" in reads else ""
    began = [s.member.name for s in seen if s.started]
    return bundle.causes(failure, {s.member.name: s.unit for s in seen}, began, texts, reads["disk.json"].told or {})


def _told(seen: Sequence[Subject], reads: Mapping[str, Read]) -> list[tuple[str, str]]:
    """What was observed, as lines for the summary, with the time each was read at."""
    lines = []
    for subject in seen:
        name, unit = subject.member.name, subject.unit
        state = f"{unit.active_state} ({unit.sub_state}), pid {unit.main_pid}, NRestarts {unit.n_restarts}, result {unit.result} {unit.exit_status}"
        lines.append((reads[f"{name}/unit.json"].at, f"{name}: {state.strip()}; its generation: {subject.member.generation}"))
        rungs_read = reads.get(f"{name}/rungs.json")
        lines += [(rungs_read.at, f"{name}: {rung}: {told}") for rung, told in (rungs_read.told or {}).items()] if rungs_read else []
        load = reads.get(f"{name}/loads.json")
        if load and not load.error:
            lines.append((load.at, f"{name}: load: {loads.told(loads.summary(load.told['body']))}"))
    return lines


def routers(seen: Sequence[Subject], reads: Mapping[str, Read]) -> dict[str, str]:
    """Router -> how it stands, in words: this is what clients meet."""
    found = {}
    for subject in (s for s in seen if s.member.is_router):
        ready = reads.get(f"{subject.member.name}/readiness.json")
        answer = ready.error or f"HTTP {ready.told['status']}" if ready and (ready.error or ready.told) else "not asked"
        running = subject.unit.active_state == "active"
        found[subject.member.name] = f"active, /readiness: {answer}" if running else f"{subject.unit.active_state}: no request is taken"
    return found


def compared(whole: Mapping[str, str]) -> str:
    """The generations side by side: how the wanted one differs from the current and from the last good one."""
    told = {what: node.manifest(generation) for what, generation in whole.items()}
    parts = [f"{what}: {generation}, content {told[what].get('content')}, made {told[what].get('origin')}" for what, generation in whole.items()]
    for other in ("current", "last good"):
        if "wanted" in told and other in told and whole["wanted"] != whole[other]:
            parts += ["", f"how wanted ({whole['wanted']}) differs from {other} ({whole[other]}):"]
            parts += [f"  {line}" for line in bundle.differences(told["wanted"], told[other])]
    return "\n".join(parts) + "\n"

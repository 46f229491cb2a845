"""`python -m bench.table`: the committed results as Markdown, for the documentation. Nothing is typed by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
Told = Mapping[str, Any]
BOUNDS = {"gate": "median ≤ 0.5 s, max ≤ 1.5 s", "ordered": "≤ 1.15", "overlapped": "≤ 1.25"}


def rows(results: Mapping[str, Told]) -> list[tuple[str, str, str, str]]:
    """What was measured, the figure (median, range, count), the bound, and the command."""
    found: list[tuple[str, str, str, str]] = []
    if told := results.get("gate"):
        own = _seconds(told["own"])
        found.append((f"gate: first token → READY (doubles, own start {own})", _seconds(told["overhead"]), BOUNDS["gate"], told["command"]))
        found.append(("the same starts, looked at every 5 s", _seconds(told["overhead_of_a_5_s_poll"]), "", told["command"]))
    for figure, engines in (("outage", "doubles"), ("real", "SGLang on the CPU")):
        if told := results.get(figure):
            found += _outages(told, engines, bound=figure == "outage")
            if "overhead" in told:
                found.append((f"gate: first token → READY ({engines})", _seconds(told["overhead"]), "", told["command"]))
    if told := results.get("crash"):
        found += [(*_crash(trial), told["command"]) for trial in told["trials"]]
    return found


def _crash(trial: Told) -> tuple[str, str, str]:
    """One kill on the real pair; `plain` is what systemd alone does, with the router left as it is."""
    which = {"ours": "ours", "plain": "a plain `Restart=on-failure` pair"}[trial["pair"]]
    served = trial["first_served_after_s"]
    when = "not within the limit" if served is None else f"{served:.1f} s"
    told = trial["last_client_was_told_after_s"]
    clients = f"; its {trial['running']} clients had an answer or an error after {told:.1f} s" if told is not None else ""
    return f"kill -9 of {trial['killed']} with {trial['running']} requests → first served ({which})", f"{when}{clients}", "reported"


def _outages(told: Told, engines: str, *, bound: bool) -> list[tuple[str, str, str, str]]:
    found = []
    for strategy, over in (("ordered", "sum of own starts"), ("overlapped", "slower own start")):
        own = [f"{row['own']['prefill0']:.1f} s + {row['own']['decode0']:.1f} s" for row in told["rows"] if row["strategy"] == strategy]
        found.append((f"outage, `{strategy}` ({engines}; own starts {own[0]})", _seconds(told[strategy]["outage"]), "", told["command"]))
        ratio = told[strategy]["ratio"]
        text = f"{ratio['median']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}, n={ratio['n']})"
        found.append((f"the same over the {over}", text, BOUNDS[strategy] if bound else "reported", told["command"]))
    return found


def _seconds(spread: Told) -> str:
    return f"{spread['median']:.2f} s ({spread['low']:.2f} to {spread['high']:.2f}, n={spread['n']})"


def markdown(results: Mapping[str, Told]) -> str:
    """The table, and under it where each result comes from."""
    lines = ["| measured | median (range, n) | bound | command |", "|---|---|---|---|"]
    lines += [f"| {what} | {figure} | {bound} | `{command}` |" for what, figure, bound, command in rows(results)]
    lines.append("")
    return "\n".join([*lines, *(f"`{name}.json`: {origin(told)}" for name, told in results.items())])


def origin(told: Told) -> str:
    """Date, machine, versions, revision: what the result says of itself."""
    if "machine" not in told:
        return f"{told['when'][:10]}, {told['cores']} cores, no GPU; {told['engine']}."
    machine = told["machine"]
    versions = ", ".join(f"{package} {version}" for package, version in told.get("versions", {}).items())
    on = f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['gpu'] or 'no GPU'}"
    return f"{told['date'][:10]}, {on}; {versions}; revision {told['revision']}."


def read(folder: Path = RESULTS) -> dict[str, Told]:
    """Figure -> its result, those that are there."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def main(argv: Sequence[str] | None = None) -> None:
    """Print it."""
    folder = Path((argv or sys.argv[1:] or [str(RESULTS)])[0])
    sys.stdout.write(markdown(read(folder)) + "\n")


if __name__ == "__main__":
    main()

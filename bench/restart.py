"""`python -m bench.restart gate|outage|real`: boot a lab machine, co-restart it, measure from beside, write bench/results/*.json.

gate    >= 20 starts of doubles that take about 2 s: from an engine's first token to the gate's READY
outage  doubles that take about 20 s and 22 s: the client's outage of both strategies over the engines' own start times
real    both on SGLang itself on this machine's CPU, reported as they are
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lab
from bench import figures, origin
from tests.support import double, pairs, real
from tests.support.project import Project, ledger

RESULTS = Path(__file__).with_name("results")
PORTS = {"sglang-engine@prefill0": 30000, "sglang-engine@decode0": 30001}
ROUTER_PORT = 30002
HERE = Path(__file__).with_name("on_machine")
QUIET_SECONDS = 1.0
"""How long the client goes on after a run, so that its first right answer is surely in."""
REAL_DEADLINES = {"pd_serve_deadline": 120}


class Bench:
    """A machine with a pair that serves, and the two processes beside it."""

    def __init__(self, machine: lab.Machine, project: Project) -> None:
        self.machine, self.project = machine, project

    def beside(self, name: str, *args: str) -> None:
        """Start one of `on_machine/` as a unit of its own; its lines go to /run/bench."""
        target = f"/run/bench/{name}"
        self.machine.exec(f"mkdir -p /run/bench && cat > {target}.py", stdin=(HERE / f"{name}.py").read_text())
        unit = ["systemd-run", "--quiet", "--collect", f"--unit=bench-{name}", f"--property=StandardOutput=append:{target}.jsonl"]
        self.machine.exec([*unit, "python3", f"{target}.py", *args])

    def lines(self, name: str) -> list[dict[str, Any]]:
        """What one of them has said so far."""
        return [json.loads(line) for line in self.machine.exec(f"cat /run/bench/{name}.jsonl").stdout.splitlines()]

    def restart(self, strategy: str, **extra: Any) -> list[dict[str, Any]]:
        """One co-restart; the ledger's entries of it."""
        mark = len(ledger(self.machine))
        self.project.play("restart-pd.yml", pd_strategy=strategy, **extra).ok()
        return ledger(self.machine)[mark:]

    def measured(self, strategy: str, **extra: Any) -> dict[str, Any]:
        """One co-restart under the client's eyes, as a row."""
        self.machine.exec("rm -f /run/bench/ask.jsonl")
        self.beside("ask", str(ROUTER_PORT))
        entries = self.restart(strategy, **extra)
        time.sleep(QUIET_SECONDS)
        self.machine.exec(["systemctl", "stop", "bench-ask"])
        row = figures.restart(strategy, entries, self.lines("watch"), self.lines("ask"))
        say(f"{strategy}: outage {row['outage']:.1f} s, own {row['own']}, ratio {row['ratio']:.3f}")
        return row


@contextmanager
def bench(make_image: Callable[[Path], lab.Image], variables: dict[str, Any], seconds: float) -> Iterator[Bench]:
    """A booted machine with the watcher on it; gone afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with lab.Machine(lab.unique_name("bench"), make_image(folder / "image")) as machine:
            pairs.serving(machine, seconds=seconds)
            found = Bench(machine, Project(folder, machine, variables))
            found.beside("watch", *(f"{unit}={port}" for unit, port in PORTS.items()))
            yield found


def gate(rounds: int) -> dict[str, Any]:
    """Two starts a round, of about 2 s each."""
    made: list[figures.Start] = []
    with bench(double.image, double.VARIABLES, 60) as on:
        for instance in ("prefill0", "decode0"):
            double.script(on.machine, instance, load_seconds=1.2)
        for _ in range(rounds):
            made += figures.starts(on.restart("ordered"), on.lines("watch"))
            say(f"gate overhead: {[round(one.overhead, 3) for one in made[-2:]]}, own {[one.own for one in made[-2:]]}")
        return {"versions": origin.versions(on.machine), **figures.gates(made)}


def outage(rounds: int) -> dict[str, Any]:
    """Both strategies in turn, so that a slow minute of this machine hits both."""
    with bench(double.image, double.VARIABLES, 60) as on:
        double.script(on.machine, "prefill0", load_seconds=19.2)
        double.script(on.machine, "decode0", load_seconds=21.2)
        rows = [on.measured(strategy) for _ in range(rounds) for strategy in ("ordered", "overlapped")]
        return {"versions": origin.versions(on.machine), **by_strategy(rows)}


def of_the_real_pair(rounds: int) -> dict[str, Any]:
    """The same on the real engines."""
    with bench(real.image, {}, 240) as on:
        rows = [on.measured(strategy, **REAL_DEADLINES) for _ in range(rounds) for strategy in ("ordered", "overlapped")]
        overheads = [seconds for row in rows for seconds in row["gate_overhead"].values()]
        return {"versions": origin.versions(on.machine), **by_strategy(rows), "overhead": vars(figures.spread(overheads))}


def by_strategy(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The rows and, for each strategy, how its outages and ratios lie."""
    told: dict[str, Any] = {"rows": list(rows)}
    for strategy in ("ordered", "overlapped"):
        mine = [row for row in rows if row["strategy"] == strategy]
        told[strategy] = {key: vars(figures.spread(row[key] for row in mine)) for key in ("outage", "ratio")}
    return told


FIGURES: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "gate": (gate, 11),
    "outage": (outage, 3),
    "real": (of_the_real_pair, 2),
}


def say(line: str) -> None:
    """Progress."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(argv: Sequence[str] | None = None) -> None:
    """Measure one figure and write it."""
    parser = argparse.ArgumentParser(prog="python -m bench.restart", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=FIGURES)
    parser.add_argument("--rounds", type=int, help="how many co-restarts (of each strategy)")
    parser.add_argument("--out", type=Path, help="default: bench/results/FIGURE.json")
    args = parser.parse_args(argv)
    measure, rounds = FIGURES[args.figure]
    rounds = args.rounds or rounds
    told = {"figure": args.figure, **origin.here(f"python -m bench.restart {args.figure} --rounds {rounds}"), **measure(rounds)}
    path: Path = args.out or RESULTS / f"{args.figure}.json"
    origin.write(path, told)
    say(f"written: {path}")


if __name__ == "__main__":
    main()

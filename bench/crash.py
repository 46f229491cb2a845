"""kill -9 of each role on the real pair: time to the first served request, ours against a plain `Restart=on-failure` pair.

    python -m bench.crash --out FILE.json [--only ours|plain]

Both on one machine, in one run. "plain" is the same set with the recovery masked, `Restart=on-failure` and `RestartSec=20` for the engines,
and the router left alone. After a kill one client asks again and again: one request of one token at a time, 10 s each at most.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lab
from bench import origin
from tests.support import crash, real
from tests.support.pairs import Pair, serving
from tests.support.project import Project, ledger

KILLS = (("decode0", 8), ("prefill0", 0), ("router0", 0))
RESTART_SEC = 20
PLAIN = f"""
set -e
mkdir -p /run/systemd/system/sglang-engine@.service.d
printf '[Service]\\nRestart=on-failure\\nRestartSec={RESTART_SEC}\\n' > /run/systemd/system/sglang-engine@.service.d/plain.conf
rm /etc/systemd/system/sglang-recover@.service
ln -s /dev/null /run/systemd/system/sglang-recover@.service
systemctl daemon-reload
"""


def trials(pair: Pair, which: str, patience: float) -> Iterator[dict[str, Any]]:
    """One kill of each role; a client of a plain pair waits until its own `patience` is over."""
    for target, clients in KILLS:
        mark = len(ledger(pair.machine))
        found = crash.kill(pair, target, clients, patience=patience).told()
        pair.machine.exec(crash.IDLE, timeout=120)
        entries = ledger(pair.machine)[mark:]
        starts = {e["instance"]: e["seconds"] for e in entries if e["event"] == "gate" and e["state"] == "READY"}
        yield {"pair": which, **found, "starts_s": starts, "recovery": [e.get("outcome") for e in entries if e["event"] == "end"]}


def measure(which: tuple[str, ...], patience: float) -> list[dict[str, Any]]:
    """All trials, ours first."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, lab.Machine(lab.unique_name(), real.image(Path(folder))) as machine:
        serving(machine, seconds=240)
        pair = Pair(machine, Project(Path(folder), machine))
        for one in which:
            if one == "plain":
                machine.exec(PLAIN)
            for trial in trials(pair, one, patience):
                found.append(trial)
                sys.stdout.write(json.dumps(trial) + "\n")
                sys.stdout.flush()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.crash", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=["ours", "plain"])
    parser.add_argument("--patience", type=float, default=90.0, help="seconds after which a client gives up")
    asked = parser.parse_args()
    found = measure((asked.only,) if asked.only else ("ours", "plain"), asked.patience)
    told = {
        "command": " ".join(["python -m bench.crash", *sys.argv[1:]]),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "engine": "sglang 0.5.23 on the CPU, SmolLM2-135M, NIXL, sglang-router 0.3.2",
        "plain_restart_sec": RESTART_SEC,
        "client_patience_s": asked.patience,
        "trials": found,
    }
    origin.write(asked.out, told)


if __name__ == "__main__":
    main()

"""The bundle of a failed run on a booted machine: whole, quick, readable, without a secret."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support import double
from tests.support.pairs import Pair
from tests.support.project import Outcome, ledger

pytestmark = pytest.mark.host
KEY, TOKEN = "k3y of 'the' \"lab\" $x", "hf_t0ken\\with`odd#signs"
COMPLETE = {
    *("summary.txt", "plan.txt", "observations.json", "generations.txt", "ledger.jsonl", "disk.json", "sockets.txt"),
    *(f"{name}/{file}" for name in ("prefill0", "decode0", "router0") for file in ("journal.txt", "unit.json", "processes.txt", "rungs.json")),
    *(f"prefill0/{file}" for file in ("loads.json", "server_info.json", "metrics.txt")),
}


def bundle(done: Outcome) -> Path:
    """Where the run says that its evidence is: the last line of its last words."""
    return Path(done.failures()[-1].splitlines()[-1])


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def seconds_for_evidence(entries: list[dict[str, Any]]) -> float:
    """From the last entry before the mark (a verdict; a start, where the deadline spoke) to the mark that follows the evidence."""
    dead = next(e["ts"] for e in reversed(entries) if e["event"] in ("gate", "start"))
    marked = next(e["ts"] for e in reversed(entries) if e["event"] == "bad")
    return (datetime.fromisoformat(marked) - datetime.fromisoformat(dead)).total_seconds()


def test_the_bundle_is_whole_and_has_no_secret(pair: Pair) -> None:
    """Report 095, issue 3 point 5: everything that was seen, the mechanical cause, and not one form of a key, in bundle or output."""
    pair.project.write_inventory({**double.VARIABLES, "pd_api_key": KEY})
    pair.project.knob("decode.yml", "engine_env", "HF_TOKEN", json.dumps(TOKEN))
    script = {"die_at": {"phase": "load", "message": f"cannot log in with {TOKEN}"}}
    double.script(pair.machine, "decode0", **script)
    done = pair.project.play("restart-pd.yml", "-vvv")
    assert done.rc != 0
    found = files(bundle(done))
    assert set(found) >= COMPLETE, sorted(COMPLETE - set(found))
    page = found["summary.txt"]
    assert "decode0: a traceback in its journal ends with: RuntimeError: cannot log in with <secret>" in page
    assert "killed by signal 9" in page
    assert re.search(r"prefill0: load: idle", page) and "NOT CHECKED, OR COULD NOT BE READ" in page
    assert page.index("stop router0") < page.index("start decode0") < page.index("gate decode0 state=DEAD")
    assert "FAILED    gate decode0 until working" in found["plan.txt"] and "not made  start router0" in found["plan.txt"]
    assert "decode0" in found["generations.txt"] and "HF_TOKEN" in found["generations.txt"]
    assert json.loads(found["prefill0/server_info.json"])["body"]["api_key"] == "<secret>"
    forms = {form for secret in (KEY, TOKEN) for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], secret.replace("'", "''"))}
    for name, text in {**found, "the output": done.stdout, "the ledger": json.dumps(ledger(pair.machine))}.items():
        assert not [form for form in forms if form in text], name
    assert oct(bundle(done).stat().st_mode & 0o777) == "0o700"
    assert seconds_for_evidence(ledger(pair.machine)) < 10
    assert not [line for line in pair.machine.exec("journalctl -o cat | grep 'Invoked with'").stdout.splitlines() if TOKEN in line]


def test_an_engine_that_hangs_does_not_hold_the_evidence_up(pair: Pair) -> None:
    """Every process of decode is stopped in its tracks: no cause is mechanical, what could not be read is told, in seconds."""
    stop = "sleep 2; kill -STOP $(cat /proc/$(systemctl show -P MainPID sglang-engine@decode0)/task/*/children) "
    stop += "$(systemctl show -P MainPID sglang-engine@decode0)"
    frozen: list[bool] = []

    def handler(event: dict[str, Any]) -> bool:
        item = ((event.get("event_data") or {}).get("res") or {}).get("item")
        if not frozen and event["event"] == "runner_item_on_ok" and isinstance(item, dict) and item.get("text") == "start decode0":
            frozen.append(True)
            pair.machine.exec(f"({stop}) >/dev/null 2>&1 &", check=False)
        return True

    double.script(pair.machine, "decode0", load_seconds=30)
    done = pair.project.watch("restart-pd.yml", handler, pd_start_deadline=12)
    assert frozen and done.rc != 0
    page = files(bundle(done))["summary.txt"]
    assert "decode0 did not reach `working`: WAIT at `listening`" in page
    assert "no mechanical evidence of a cause" in page
    assert re.search(r"- decode0/loads\.json: .*(refused|no answer)", page)
    assert re.search(r"\bT\b.*sglang", files(bundle(done))["decode0/processes.txt"]), "stopped, as the table says"
    assert seconds_for_evidence(ledger(pair.machine)) < 12 + 10, "the deadline and the evidence"

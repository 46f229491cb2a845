"""Turning one knob: the dry run tells the truth, the real run does just that, and every process proves it."""

from __future__ import annotations

import json

import pytest

from tests.host.conftest import Pair
from tests.support.project import ledger

pytestmark = pytest.mark.host
KNOB = "SGLANG_SM120_MMA_TARGET_CTAS"


def environs(pair: Pair, unit: str) -> list[dict[str, str]]:
    """The environment of every process of a unit, read straight from /proc."""
    read = f"""
import json, pathlib, subprocess
cgroup = subprocess.run(["systemctl", "show", "-P", "ControlGroup", "{unit}"], capture_output=True, text=True).stdout.strip()
found = []
for proc in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if any(line.endswith(cgroup) for line in (proc / "cgroup").read_text().splitlines()):
            found.append(dict(p.split("=", 1) for p in (proc / "environ").read_text().split(chr(0)) if "=" in p))
    except FileNotFoundError:
        pass
print(json.dumps(found))
"""
    found: list[dict[str, str]] = json.loads(pair.machine.exec(["python3", "-c", read]).stdout)
    assert found, f"{unit} has no process"
    return found


def test_check_shows_the_line_and_restarts_nothing(pair: Pair) -> None:
    """Done-when 3, first half: exactly that line, which instances would restart, and nothing happens."""
    before = pair.pids()
    pair.project.knob("decode.yml", "engine_env", KNOB, "256")
    done = pair.project.play("site.yml", "--check", "--diff").ok()
    (told,) = done.results("Write the generation that is asked for")
    assert [d["before_header"] for d in told["diff"]] == ["decode0/env"]
    old, new = told["diff"][0]["before"].splitlines(), told["diff"][0]["after"].splitlines()
    assert set(old) - set(new) == {f"{KNOB}=512"} and set(new) - set(old) == {f"{KNOB}=256"}
    assert "3 restarts: prefill0, decode0, router0" in done.stdout
    assert pair.pids() == before
    assert pair.machine.exec(["ls", "/etc/sglang-pd/generations"]).stdout.count("\n") == 1


def test_toggle_co_restarts_in_order_and_reaches_every_process(pair: Pair) -> None:
    """Done-when 3, second half: once each, in order, gated; in every process of decode, in none of the others."""
    before = pair.pids()
    (first,) = pair.machine.exec(["ls", "/etc/sglang-pd/generations"]).stdout.split()
    mark = len(ledger(pair.machine))
    pair.project.knob("decode.yml", "engine_env", KNOB, "256")
    pair.project.play("site.yml").ok()
    after = pair.pids()
    assert all(after[name] not in (before[name], "0") for name in before)
    entries = ledger(pair.machine)[mark:]
    acts = [(e["event"], e["instance"]) for e in entries if e["event"] in ("stop", "start", "gate")]
    assert acts == [
        ("stop", "router0"),
        ("stop", "prefill0"), ("start", "prefill0"), ("gate", "prefill0"),
        ("stop", "decode0"), ("start", "decode0"), ("gate", "decode0"),
        ("start", "router0"), ("gate", "router0"),
    ]  # fmt: skip
    assert {env.get(KNOB) for env in environs(pair, "sglang-engine@decode0")} == {"256"}
    for unit in ("sglang-engine@prefill0", "sglang-router@router0"):
        assert all(KNOB not in env for env in environs(pair, unit))
    new = pair.machine.exec(["readlink", "/etc/sglang-pd/current"]).stdout.strip().rpartition("/")[2]
    compare = f"cd /etc/sglang-pd/generations && diff -r -x manifest.json -x generation.env {first} {new}"
    told = pair.machine.exec(compare, check=False).stdout.splitlines()
    assert [line for line in told if line[:1] in "<>"] == [f"< {KNOB}=512", f"> {KNOB}=256"]


def test_toggle_back_is_the_earlier_generation(pair: Pair) -> None:
    """Same files, same nonce, same id: going back is not something new. It still must pass its gates."""
    first = pair.machine.exec(["readlink", "/etc/sglang-pd/current"]).stdout
    pair.project.knob("decode.yml", "engine_env", KNOB, "256")
    pair.project.play("site.yml").ok()
    pair.project.knob("decode.yml", "engine_env", KNOB, "512")
    pair.project.play("site.yml").ok()
    assert pair.machine.exec(["readlink", "/etc/sglang-pd/current"]).stdout == first
    assert {env.get(KNOB) for env in environs(pair, "sglang-engine@decode0")} == {"512"}

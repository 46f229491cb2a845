"""The bundle: whole, quick with an engine that hangs, and without any secret, whatever reads fail."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pd import collect, evidence, generation, ledger, node, observe, processes, startable, store
from pd.bundle import Failure
from pd.generation import Wanted

from tests.module.loaded import redirect
from tests.unit.test_generation import DECODE, PREFILL, ROUTER

SECRETS = ['k"ey-1 with \'quotes\'', "t0ken\\back$slash`x", "adm1n-key-0042"]
SHOW = "LoadState=loaded\nActiveState={state}\nSubState=running\nResult=success\nInvocationID=i-{unit}\nMainPID=0\n"


class Peer(BaseHTTPRequestHandler):
    """An engine and a router in one, which tells all it knows."""

    secrets: Sequence[str] = SECRETS

    def do_GET(self) -> None:
        body: Any = {"api_key": self.secrets[0], "launch_command": f"x --api-key {self.secrets[0]}", "note": list(self.secrets), "port": 30000}
        if self.path.startswith("/v1/loads"):
            body = {"loads": [{"num_running_reqs": 53, "num_waiting_reqs": 0}]}
        text = json.dumps(body) if self.path != "/metrics" else f'smg_worker_cb_state{{worker="http://w"}} 1\nx{{key="{self.secrets[2]}"}} 1\n'
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing on the test's output."""


class Server(ThreadingHTTPServer):
    """Takes all the readers at once; the default of 5 makes a sixth wait for a second."""

    request_queue_size = 64


@pytest.fixture
def answering() -> Iterator[str]:
    with Server(("127.0.0.1", 0), Peer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def hung() -> Iterator[str]:
    """Accepts, and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directories of a test's own, and commands that answer at once."""
    for brain in (node, startable, store):
        redirect(monkeypatch, brain, Path(generation.GENERATIONS), tmp_path / "generations")
        redirect(monkeypatch, brain, Path(generation.CURRENT), tmp_path / "current")
    redirect(monkeypatch, ledger, ledger.PATH, tmp_path / "ledger.jsonl")
    monkeypatch.setattr(store, "GROUP", "root")
    monkeypatch.setattr(observe, "run", commands)
    return tmp_path


def commands(argv: Sequence[str], timeout: float = 8.0) -> str:
    """systemctl, journalctl and ss, with everything in them that must not get out."""
    assert timeout <= 8
    if argv[0] == "systemctl":
        return SHOW.format(state="inactive" if "router" in argv[2] else "active", unit=argv[2])
    if argv[0] == "ss":
        raise RuntimeError("`ss -ltnp` ended with 127")
    return "\n".join(f"2026-11-30T17:31:39+0000 host x[1]: ServerArgs(api_key={s!r}) {json.dumps(s)} {s}" for s in Peer.secrets)


def generation_of(prefill: str, decode: str, router: str, secrets: Sequence[str] = SECRETS) -> str:
    members = (
        replace(PREFILL, url=prefill, config={**PREFILL.config, "api-key": secrets[0]}, bootstrap_port=1),
        replace(DECODE, url=decode, env={**DECODE.env, "HF_TOKEN": secrets[1]}, config={**DECODE.config, "api-key": secrets[0]}),
        replace(ROUTER, url=router, metrics_url=router, config={"api-key": secrets[0], "deep": [{"admin-api-key": [secrets[2]]}]}),
    )
    wanted = Wanted(members, "release0001", "nonce001")
    made = generation.generation_id(wanted)
    store.write(made, generation.files(wanted, made), generation.manifest(wanted, made, {"by": "ada"}))
    store.switch(made)
    return made


def failure(made: str, secrets: Sequence[str] = SECRETS) -> Failure:
    return Failure(f"decode0 did not: {secrets}", "decode0", "working", "run1", made, f"plan {secrets[1]}")


def leaks(files: dict[str, str], secrets: Sequence[str]) -> list[str]:
    forms = {form for secret in secrets for form in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1])}
    return [f"{name}: {form}" for name, text in files.items() for form in forms if form in text]


def test_a_hung_engine_costs_seconds_and_is_told(machine: Path, answering: str, hung: str) -> None:
    made = generation_of(answering, hung, answering)
    ledger.append("begin", {"run": "run1", "generation": made, "who": "ada"})
    ledger.append("start", {"run": "run1", "instance": "decode0", "main_pid": 7, "n_restarts": 0, "invocation": "i-decode"})
    start = time.monotonic()
    seen = collect.collect(failure(made), f"stack of {SECRETS[2]}")
    assert time.monotonic() - start < evidence.SECONDS + 4, "not the sum of the time-outs; the rest is for a busy machine"
    files = dict(seen.files)
    wanted = {f"{name}/{file}" for name in ("prefill0", "decode0") for file in ("journal.txt", "unit.json", "processes.txt")}
    wanted |= {"prefill0/loads.json", "prefill0/server_info.json", "prefill0/metrics.txt", "router0/workers.json", "router0/circuits.json"}
    wanted |= {"plan.txt", "stack.txt", "generations.txt", "ledger.jsonl", "observations.json", "summary.txt", "disk.json"}
    assert wanted <= set(files)
    assert json.loads(files["router0/circuits.json"]) == {"http://w": "open"}
    page = files["summary.txt"]
    assert "load: 53 running" in page
    for unread in ("decode0/loads.json", "decode0/server_info.json", "decode0/metrics.txt", "sockets.txt"):
        assert f"- {unread}: " in page and unread not in files
    assert "begin generation=" in page
    assert seen.routers == {"router0": "inactive: no request is taken"}
    assert all("at" in one for one in json.loads(files["observations.json"]))
    assert leaks(files, SECRETS) == []
    assert machine.exists()


NASTY = st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=20), min_size=3, max_size=3, unique=True)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NASTY)
def test_report_095_no_secret_gets_into_the_bundle(machine: Path, answering: str, secrets: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Peer, "secrets", secrets)
        made = generation_of(answering, answering, answering, secrets)
        seen = collect.collect(failure(made, secrets), f"stack of {secrets[2]}")
    assert leaks(dict(seen.files), secrets) == []
    assert machine.exists()


def test_where_the_secrets_cannot_be_known_nothing_that_may_hold_one_is_shown(machine: Path, answering: str) -> None:
    made = generation_of(answering, answering, answering)
    (machine / "generations" / made / "router0" / "config.yaml").write_text("api-key: [unclosed")
    seen = collect.collect(Failure("failed", "decode0", "working", "run1", made, "plan"), "")
    assert leaks(dict(seen.files), SECRETS) == []
    assert "decode0/unit.json" in seen.files
    assert not [name for name in seen.files if name.endswith(("journal.txt", "metrics.txt", "server_info.json", "processes.txt"))]
    assert "what to hide could not be known" in seen.files["summary.txt"]


def test_a_generation_that_is_gone_fails_nothing(machine: Path) -> None:
    seen = collect.collect(Failure("failed", "decode0", "working", "run1", "0f3c5a9be210", "plan"), "")
    assert "0f3c5a9be210 was never written here, or was pruned" in seen.files["summary.txt"]
    assert machine.exists()


def test_what_raises_and_what_hangs_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    def unexpected() -> None:
        raise AssertionError("nobody thought of this one")

    def refused() -> None:
        raise ConnectionRefusedError("refused")

    work: dict[str, Callable[[], Any]] = {"good": lambda: "x", "hangs": never.wait, "unexpected": unexpected, "refused": refused}
    start = time.monotonic()
    found = evidence.gather(work, seconds=0.5)
    assert time.monotonic() - start < 2
    assert {name: (read.told, read.error) for name, read in found.items()} == {
        "good": ("x", ""),
        "hangs": (None, "no answer in 0.5 s"),
        "unexpected": (None, "its reader failed"),
        "refused": (None, "refused"),
    }
    never.set()


def test_the_process_table_of_this_process() -> None:
    head, row = processes.table([os.getpid(), 2**22 - 1]).splitlines()
    assert head.split()[:3] == ["PID", "PPID", "STATE"]
    assert row.split()[:2] == [str(os.getpid()), str(os.getppid())]
    assert sys.executable in row

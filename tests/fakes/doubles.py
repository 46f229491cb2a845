"""Starting engine doubles and the real router from a test: venvs, ports, processes, faults.

A venv is built once per lock file, under a lock, in the lab's cache, and shared by every test run.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = ROOT / "tests" / "fakes" / "double"
CACHE = Path(os.environ.get("PD_LAB_CACHE", "/var/cache/pdstack-lab"))
PLAIN = httpx.Client(trust_env=False, verify=False)
"""For loopback, without headers; verification would only cost the reading of the CA bundle."""
_POLL_S = 0.02


def venv(lock: Path) -> Path:
    """The interpreter of a venv with exactly `lock` in it; built with uv when missing.

    Raises RuntimeError with uv's output when it cannot be built.
    """
    uv = shutil.which("uv")
    if uv is None:
        raise RuntimeError(f"{lock}: uv is not on PATH; run `make .venv` first")
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(lock.read_bytes() + minor.encode()).hexdigest()[:16]
    home = CACHE / "venvs" / digest
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f"{digest}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            _run([uv, "venv", "-q", "--clear", "-p", sys.executable, str(home)])
            install = ["pip", "install", "-q", "--compile-bytecode", "--require-hashes"]
            _run([uv, *install, "-p", str(home), "-r", str(lock)])
            (home / "complete").touch()
    return home / "bin" / "python"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")


def free_port() -> int:
    """A port that was free a moment ago, on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(what: str, condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true value of `condition`; AssertionError naming `what` when none comes in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(_POLL_S)
    return value


@dataclass
class Process:
    """A child with its output in a file; stopping it stops its whole session."""

    command: list[str]
    log: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, without waiting for anything."""
        with self.log.open("ab") as out:
            self.popen = subprocess.Popen(
                self.command,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], **self.environ},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the main process."""
        assert self.popen is not None, "not started"
        return self.popen.pid

    def wait(self, seconds: float = 10.0) -> int:
        """Its exit code, negative for a signal; TimeoutExpired."""
        assert self.popen is not None, "not started"
        return self.popen.wait(seconds)

    def output(self) -> str:
        """All it has printed."""
        return self.log.read_text()

    def stop(self) -> None:
        """End it and its children, now."""
        if self.popen is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()


@dataclass
class Double(Process):
    """One engine double and its HTTP client."""

    port: int = 0
    bootstrap_port: int = 0
    faults: Path = Path()
    client: httpx.Client = PLAIN

    def fault(self, **script: Any) -> None:
        """Replace the script; no argument means healthy again."""
        fresh = self.faults.with_suffix(".new")
        fresh.write_text(json.dumps(script))
        fresh.rename(self.faults)

    @contextlib.contextmanager
    def faulty(self, **script: Any) -> Iterator[None]:
        """With this script, and healthy afterwards."""
        self.fault(**script)
        try:
            yield
        finally:
            self.fault()

    def status(self, path: str) -> int:
        """The status of a GET; 0 when the port refuses."""
        try:
            return self.client.get(path).status_code
        except httpx.ConnectError:
            return 0

    def route(self) -> int:
        """The status of the bootstrap server's topology query; 0 when it refuses."""
        query = "prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
        try:
            return PLAIN.get(f"http://127.0.0.1:{self.bootstrap_port}/route?{query}").status_code
        except httpx.ConnectError:
            return 0

    def wait_ready(self, seconds: float = 20.0) -> None:
        """Until /ready is 200 and, on a prefill, the ranks are registered."""
        until(f"/ready of {self.log.stem}", lambda: self.status("/ready") == 200, seconds)

    def loads(self) -> dict[str, Any]:
        """The one entry of /v1/loads."""
        entry: dict[str, Any] = self.client.get("/v1/loads?include=all").raise_for_status().json()["loads"][0]
        return entry

    def counter(self, name: str) -> float:
        """The sum of a metric over its labels; 0 while it has not moved."""
        lines = self.client.get("/metrics").raise_for_status().text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"sglang:{name}{{"))


def make_double(
    home: Path,
    name: str,
    mode: str,
    *,
    script: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    **flags: Any,
) -> Double:
    """A double under `home`, run from the source tree, not started. `flags` are SGLang's, with underscores."""
    python = venv(ROOT / "requirements" / "double.lock")
    port, bootstrap = flags.pop("port", free_port()), free_port()
    config = {
        "model-path": "/models/none",
        "served-model-name": "double",
        "host": "127.0.0.1",
        "port": port,
        "disaggregation-mode": mode,
        "disaggregation-bootstrap-port": bootstrap,
        "disaggregation-transfer-backend": "nixl",
        "enable-metrics": True,
        **{key.replace("_", "-"): value for key, value in flags.items()},
    }
    file = home / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    faults = home / f"{name}.json"
    faults.write_text(json.dumps(script or {}))
    headers = {"Authorization": f"Bearer {flags['api_key']}"} if "api_key" in flags else {}
    return Double(
        command=[str(python), "-m", "sglang.launch_server", "--config", str(file)],
        log=home / f"{name}.log",
        environ={"PYTHONPATH": f"{DOUBLE}:{DOUBLE / 'metadata'}", "PD_DOUBLE_FILE": str(faults), **(environ or {})},
        port=port,
        bootstrap_port=bootstrap,
        faults=faults,
        client=httpx.Client(
            base_url=f"http://127.0.0.1:{port}", timeout=30, headers=headers, trust_env=False, verify=False
        ),
    )


def make_router(home: Path, prefill: Double, decode: Double, *extra: str) -> tuple[Process, httpx.Client, int]:
    """The real sglang-router in front of both, not started; its client and its metrics port."""
    python = venv(ROOT / "requirements" / "router.lock")
    port, metrics = free_port(), free_port()
    command = [
        *(str(python), "-m", "sglang_router.launch_router", "--pd-disaggregation"),
        *("--prefill", f"http://127.0.0.1:{prefill.port}", str(prefill.bootstrap_port)),
        *("--decode", f"http://127.0.0.1:{decode.port}"),
        *("--host", "127.0.0.1", "--port", str(port), "--policy", "round_robin"),
        *("--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics)),
        *extra,
    ]
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False, verify=False)
    return Process(command, home / "router.log"), client, metrics

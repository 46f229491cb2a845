"""Does SGLang itself accept a config, and does the router? Asked of the real packages, on a machine without a GPU.

How far that goes. An engine config is merged and parsed by SGLang (`--config`), then resolved by all of its 86 handlers,
and checked as its launcher does; a flag that SGLang reads and then sets to another value counts as refused. What only a
GPU host can tell: the branches on the GPU's architecture (sm_120), the memory that is left for KV cache, and everything
about weights. The model is a stand-in that has the shapes of DeepSeek-V4-Flash-NVFP4 (sglang-facts 8.1), no weights.
A router config goes through launch_router.py's own translation and the router's parser and validation, to the last
step before it starts.
"""

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.fakes.doubles import CACHE, ROOT

HERE = Path(__file__).resolve().parent
SHAPE = HERE / "dsv4-shape"
BUILDER = ROOT / "roles" / "runtime" / "files" / "build_release.py"
LAUNCHER = ROOT / "roles" / "router" / "files" / "launch_router.py"
LOCKS = {name: ROOT / "requirements" / name for name in ("engine-cpu.lock", "router.lock")}
STANDINS = ROOT / "lab" / "standins"
ROUTER_CHECK = """
import json, runpy, sys
from sglang_router.launch_router import parse_router_args
argv = runpy.run_path(sys.argv[1])["argv"]
parse_router_args(argv(json.load(sys.stdin)))._validate_router_args()
"""

Config = Mapping[str, Any]


@functools.cache
def release() -> Path:
    """A release with the lab's locks, built by the product's own builder; kept in the lab's cache between runs.

    Raises:
        RuntimeError: it cannot be built; with what the builder says.
    """
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if uv is None:
        raise RuntimeError("uv is not on PATH; run `make test`, which brings it")
    parts = [BUILDER, *LOCKS.values(), *sorted(STANDINS.rglob("*.py"))]
    name = hashlib.sha256(b"".join(part.read_bytes() for part in parts) + sys.version.encode()).hexdigest()[:12]
    where = CACHE / "releases"
    command = [sys.executable, str(BUILDER), f"--root={where}", f"--id={name}", f"--uv={uv}"]
    command += [f"--python={sys.executable}", f"--cache={CACHE / 'uv'}", "--link-mode=hardlink", "--newest=1"]
    command += [f"--engine-lock={LOCKS['engine-cpu.lock']}", f"--router-lock={LOCKS['router.lock']}"]
    command += [f"--package={STANDINS}", "--env=SGLANG_USE_CPU_ENGINE=1", "--needed-mib=8000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    return where / name


def engine_python() -> Path:
    """The interpreter of a venv with SGLang in it: PD_ENGINE_PYTHON, or one that is built for the purpose."""
    told = os.environ.get("PD_ENGINE_PYTHON")
    return Path(told) if told else release() / "engine" / "bin" / "python"


def router_python() -> Path:
    """The interpreter of a venv with sglang_router in it: PD_ROUTER_PYTHON, or one that is built for the purpose."""
    told = os.environ.get("PD_ROUTER_PYTHON")
    return Path(told) if told else release() / "router" / "bin" / "python"


def verdicts(configs: Mapping[str, Config], python: Path) -> dict[str, str | None]:
    """For each engine config None, or what SGLang has against it. One start of SGLang for all: 10 s.

    A model path that is not on this machine is taken for DeepSeek-V4-Flash-NVFP4.
    """
    asked = {
        name: config if Path(config["model-path"]).exists() else {**config, "model-path": str(SHAPE)}
        for name, config in configs.items()
    }
    # no lab variables: what is asked about is the GPU host's engine
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    done = subprocess.run(
        [python, "-W", "ignore", HERE / "resolve_configs.py"],
        input=json.dumps(asked),
        env={**environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{python} cannot resolve configs:\n{done.stderr[-3000:]}"
    answers: dict[str, str | None] = json.loads(done.stdout)
    return answers


def accepts(config: Config, python: Path) -> None:
    """Raises AssertionError with SGLang's own words when it does not accept this engine config as it stands."""
    answer = verdicts({"config": config}, python)["config"]
    assert answer is None, answer


def router_accepts(config: Config, python: Path) -> None:
    """Raises AssertionError with the router's own words when it does not accept this config."""
    done = subprocess.run(
        [python, "-c", ROUTER_CHECK, LAUNCHER], input=json.dumps(config), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr.strip().splitlines()[-1]

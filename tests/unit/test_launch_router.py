"""The router's config file, said as its command line."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LAUNCHER = Path(__file__).resolve().parents[2] / "roles" / "router" / "files" / "launch_router.py"
argv = runpy.run_path(str(LAUNCHER))["argv"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, []),
        ({"port": 30002}, ["--port", "30002"]),
        ({"pd-disaggregation": True, "mini-lb": False}, ["--pd-disaggregation"]),
        ({"decode": ["http://a", "http://b"]}, ["--decode", "http://a", "--decode", "http://b"]),
        ({"prefill": [["http://a", 8998], ["http://b"]]}, ["--prefill", "http://a", "8998", "--prefill", "http://b"]),
        ({"cors-allowed-origins": [["x", "y"]]}, ["--cors-allowed-origins", "x", "y"]),
        ({"cb-window": 0}, ["--cb-window", "0"]),
    ],
)
def test_a_config_is_a_command_line(config: dict[str, Any], words: list[str]) -> None:
    assert argv(config) == words


@pytest.mark.parametrize(
    ("text", "said"), [("api-key:\n", "api-key: has no value"), ("- port\n", "not a mapping"), ("", "not a mapping")]
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    done = subprocess.run([sys.executable, LAUNCHER, file], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{file}: " in done.stderr and said in done.stderr

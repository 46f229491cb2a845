"""What is refused at the start, and how the double is installed."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import doubles
from tests.fakes.double.sglang.faults import FaultError, parse


def test_refused_at_the_start(tmp_path: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    starts = {
        "fault": doubles.make_double(tmp_path, "fault", "decode", script={"lod_seconds": 1}),
        "flag": doubles.make_double(tmp_path, "flag", "decode", disagregation_mode="decode"),
        "port": doubles.make_double(tmp_path, "port", "decode", port=taken.getsockname()[1]),
        "death": doubles.make_double(
            tmp_path, "death", "prefill", script={"die_at": {"phase": "bootstrap", "exit": 7}}
        ),
    }
    try:
        for engine in starts.values():
            engine.start()
        assert {name: engine.wait() for name, engine in starts.items()} == {
            "fault": 2,
            "flag": 2,
            "port": 3,
            "death": 7,
        }
    finally:
        taken.close()
        for engine in starts.values():
            engine.stop()
    assert "unknown fault 'lod_seconds'" in starts["fault"].output()
    assert "unrecognized arguments: --disagregation-mode decode" in starts["flag"].output()
    assert "address already in use" in starts["port"].output()


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ('{"load_seconds": "2"}', "load_seconds"),
        ('{"hang_scheduler": 1}', "hang_scheduler"),
        ('{"never_ready": "ever"}', "never_ready"),
        ('{"loads": {"running": 53}}', "loads.running"),
        ('{"env_shown": {"A": 1}}', "env_shown.A"),
        ('{"die_at": {"phase": "lod"}}', "die_at"),
        ('{"die_at": {"phase": "load", "signal": "KILL"}}', "die_at.signal"),
        ("[]", "list"),
        ("{", "not JSON"),
    ],
)
def test_a_script_is_checked(script: str, named: str) -> None:
    with pytest.raises(FaultError, match=named):
        parse(script, "PD_DOUBLE")


def test_installs_beside_its_lock_as_sglang(tmp_path: Path) -> None:
    install = ["uv", "pip", "install", "-q", "--no-deps", "-p", sys.executable, "--target", str(tmp_path)]
    subprocess.run([*install, str(doubles.DOUBLE)], check=True)
    code = "from importlib.metadata import version; print(version('sglang'), version('pdstack-engine-double'))"
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0.5.23+double", "0.1.0"]
    assert (tmp_path / "sglang" / "flags.json").exists()

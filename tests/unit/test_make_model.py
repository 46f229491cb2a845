"""A model directory is made once for a request, and is whole or is made anew; tests/e2e has the models themselves."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "roles" / "model" / "files" / "make_model.py"


class Maker:
    """The script, with a model of two small files in the place of torch and transformers."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = runpy.run_path(str(SCRIPT))
        self.made = 0
        self.names["make"].__globals__["randomize"] = self.randomize

    def randomize(self, out: Path) -> None:
        self.made += 1
        (out / "config.json").write_text("{}")
        (out / "model.safetensors").write_bytes(b"weights")
        (out / "model.safetensors").chmod(0o600)

    def run(self, *argv: str) -> int:
        return int(self.names["main"](list(argv)))


@pytest.fixture
def maker() -> Maker:
    return Maker()


def test_a_model_is_made_once(maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "models" / "tiny"
    assert maker.run("--source=random", f"--out={out}") == 0
    assert maker.run("--source=random", f"--out={out}") == 0
    assert maker.made == 1
    assert capsys.readouterr().out.endswith("complete\n")
    assert [path.name for path in out.parent.iterdir()] == ["tiny"]


def test_a_model_is_readable_for_the_service_user_and_says_its_digests(maker: Maker, tmp_path: Path) -> None:
    maker.run("--source=random", f"--out={tmp_path / 'm'}")
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "m").iterdir()} == {0o644}
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o755
    record = json.loads((tmp_path / "m" / "model.json").read_text())
    assert set(record["sha256"]) == {"config.json", "model.safetensors"}


def test_another_request_makes_another_model(maker: Maker, tmp_path: Path) -> None:
    out = tmp_path / "m"
    maker.run("--source=random", f"--out={out}")
    record = json.loads((out / "model.json").read_text())
    (out / "model.json").write_text(json.dumps(record | {"request": {"source": "package"}}))
    (out / "of the other").touch()
    (tmp_path / ".m.old").mkdir()
    (tmp_path / ".m.old" / "of a run that was killed").touch()
    maker.run("--source=random", f"--out={out}")
    assert maker.made == 2
    assert not (out / "of the other").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_a_half_made_model_is_made_anew(maker: Maker, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.safetensors").write_text("half")
    maker.run("--source=random", f"--out={tmp_path / 'm'}")
    assert (tmp_path / "m" / "model.safetensors").read_text() == "weights"


def test_a_record_of_somebody_else_is_not_overwritten(
    maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.json").write_text("[]")
    assert maker.run("--source=random", f"--out={tmp_path / 'm'}") == 1
    assert f"remove {tmp_path / 'm'}" in capsys.readouterr().err


def test_a_package_without_its_pin_is_refused(maker: Maker, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        maker.run("--source=package", f"--out={tmp_path / 'm'}", "--uv=/bin/true", "--spec=a==1")


def test_what_uv_says_is_passed_on(maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho hash mismatch >&2; exit 2\n")
    uv.chmod(0o755)
    given = ["--source=package", f"--out={tmp_path / 'm'}", f"--uv={uv}", "--spec=a==1", "--sha256", "0" * 64]
    assert maker.run(*given) == 1
    assert "hash mismatch" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["uv"]

"""A release is named by what it is made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pd.release import release_id


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    (tmp_path / "engine.lock").write_text("sglang==0.5.23")
    (tmp_path / "router.lock").write_text("sglang-router==0.3.2")
    package = tmp_path / "standins" / "inner"
    package.mkdir(parents=True)
    (package / "a.py").write_text("a = 1")
    (tmp_path / "kernels.whl").write_bytes(b"wheel")
    return tmp_path


def named(parts: Path, python: str = "/usr/bin/python3") -> str:
    locks = [parts / "engine.lock", parts / "router.lock"]
    return release_id(python, locks, [parts / "standins", parts / "kernels.whl"])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda p: (p / "engine.lock").write_text("sglang==0.5.24"), id="a lock"),
        pytest.param(lambda p: (p / "standins/inner/a.py").write_text("a = 2"), id="a file of a package"),
        pytest.param(lambda p: (p / "standins/inner/b.py").touch(), id="one more file"),
        pytest.param(lambda p: (p / "standins/inner/a.py").rename(p / "standins/inner/c.py"), id="another name"),
        pytest.param(lambda p: (p / "kernels.whl").write_bytes(b"other"), id="a wheel"),
    ],
)
def test_what_makes_another_release(parts: Path, change: Callable[[Path], object]) -> None:
    before = named(parts)
    change(parts)
    assert named(parts) != before


def test_the_interpreter_makes_another_release(parts: Path) -> None:
    assert named(parts) != named(parts, "/usr/bin/python3.12")


@pytest.mark.parametrize("leaving", ["__pycache__/a.pyc", "build/lib/a.py", "dist/x.whl", "x.egg-info/PKG-INFO"])
def test_build_leavings_do_not(parts: Path, leaving: str) -> None:
    before = named(parts)
    file = parts / "standins" / leaving
    file.parent.mkdir(parents=True)
    file.write_text("left over")
    assert named(parts) == before
    assert len(before) == 10


ASIDE = ["tests/test_a.py", "gates/aot.py", "bench/gpu.py", "model/wave.py", "inner/test_a.py", "inner/README.md", ".hypothesis/a/b"]


@pytest.mark.parametrize("aside", ASIDE)
def test_what_is_not_installed_does_not(parts: Path, aside: str) -> None:
    before = named(parts)
    file = parts / "standins" / aside
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a test")
    assert named(parts) == before


def test_where_the_project_lies_does_not(parts: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    moved = tmp_path_factory.mktemp("elsewhere") / "project"
    before = named(parts)
    parts.rename(moved)
    assert named(moved) == before


def test_what_is_missing_is_named(parts: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such is neither a wheel nor a package directory"):
        release_id("python", [], [parts / "no-such"])
    with pytest.raises(FileNotFoundError, match=r"no-such\.lock"):
        release_id("python", [parts / "no-such.lock"], [])

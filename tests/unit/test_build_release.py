"""A release is whole or is not used, and one that runs is never removed."""

import json
import os
import runpy
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "roles" / "runtime" / "files" / "build_release.py"
UV = """#!/bin/sh
# a uv that makes venvs whose python answers, and knows two packages
echo "$@" >> {calls}
case "$1 $2" in
  "venv --quiet") mkdir -p "$5/bin" && printf '#!/bin/sh\\n{python}\\n' > "$5/bin/python" && chmod +x "$5/bin/python" ;;
  "pip sync") {sync} ;;
  "pip list") echo '[{{"name": "sglang", "version": "0.5.23"}}]' ;;
  "--version ") echo "uv 9.9" ;;
esac
"""


class Site:
    """A place to build in, with a uv of its own."""

    def __init__(self, folder: Path, python: str = "echo 3.11.2", sync: str = "true") -> None:
        self.root = folder / "releases"
        self.calls = folder / "calls"
        self.inputs = {name: folder / name for name in ("engine.lock", "router.lock", "python")}
        for path in self.inputs.values():
            path.write_text(path.name)
        self.uv = folder / "uv"
        self.uv.write_text(UV.format(calls=self.calls, python=python, sync=sync))
        self.uv.chmod(0o755)

    def build(self, *more: str, name: str = "a1") -> int:
        command = [f"--root={self.root}", f"--id={name}", f"--uv={self.uv}", "--needed-mib=1", *more]
        command += [f"--python={self.inputs['python']}", f"--engine-lock={self.inputs['engine.lock']}"]
        return int(script()["main"]([*command, f"--router-lock={self.inputs['router.lock']}"]))

    def record(self, name: str = "a1") -> Any:
        return json.loads((self.root / name / "release.json").read_text())


def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_release_says_what_it_was_made_of(site: Site) -> None:
    assert site.build() == 0
    record = site.record()
    assert record["packages"]["engine"] == {"sglang": "0.5.23"}
    assert record["python"] == "3.11.2"
    assert record["locks"]["engine"] != record["locks"]["router"]
    assert "--require-hashes" in site.calls.read_text()


def test_a_lock_of_a_compiler_is_part_of_what_it_was_made_of(site: Site, tmp_path: Path) -> None:
    """And it must be there; `tests/render/test_release_kernels.py` compiles with it."""
    assert site.build(f"--nvcc-lock={tmp_path / 'absent'}") == 1
    (tmp_path / "nvcc.lock").write_text("nvcc")
    assert site.build(f"--nvcc-lock={tmp_path / 'nvcc.lock'}") == 0
    assert set(site.record()["locks"]) == {"engine", "router", "nvcc"}


def test_a_whole_release_is_left_alone(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.build()
    before = site.calls.read_text()
    assert site.build() == 0
    assert site.calls.read_text() == before
    assert capsys.readouterr().out.endswith("release a1: complete\n")


def test_a_half_made_release_is_made_anew(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    left = site.root / "a1" / "engine" / "left"
    left.parent.mkdir(parents=True)
    left.touch()
    assert site.build() == 0
    assert not left.exists()
    assert "half made" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"sync": "echo no such wheel >&2; exit 3"}, "no such wheel"),
        ({"python": "echo No module >&2; exit 1"}, "No module"),
    ],
)
def test_a_release_that_fails_is_not_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: dict[str, str], said: str
) -> None:
    site = Site(tmp_path, **broken)
    assert site.build() == 1
    assert said in capsys.readouterr().err
    assert not (site.root / "a1" / "release.json").exists()


def test_a_disk_that_is_too_small_is_refused_before_anything_is_made(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.build("--needed-mib=999999999") == 1
    assert "needs 999999999 MiB" in capsys.readouterr().err
    assert not (site.root / "a1").exists()


def test_a_missing_file_is_named(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.inputs["router.lock"].unlink()
    assert site.build() == 1
    assert str(site.inputs["router.lock"]) in capsys.readouterr().err


def process(proc: Path, pid: int, **files: str) -> None:
    """A process in a /proc of our own."""
    (proc / str(pid)).mkdir(parents=True)
    for name, text in files.items():
        (proc / str(pid) / name).write_text(text)


def test_a_process_uses_a_release_by_command_line_environment_or_place(tmp_path: Path) -> None:
    root, proc = tmp_path / "r", tmp_path / "proc"
    for name in ("by-line", "by-environ", "by-cwd", "idle", "by"):
        (root / name).mkdir(parents=True)
    process(proc, 1, cmdline=f"{root}/by-line/engine/bin/python\0-m\0sglang", environ="A=1\0")
    process(proc, 2, cmdline="sglang::scheduler", environ=f"PD_PYTHON={root}/by-environ/engine/bin/python\0")
    process(proc, 3, cmdline="sh", environ="")
    (proc / "3" / "cwd").symlink_to(root / "by-cwd")
    process(proc, 4)
    assert script()["in_use"](root, proc) == {"by-line", "by-environ", "by-cwd"}


def test_prune_keeps_the_newest_and_the_named(site: Site) -> None:
    for age, name in enumerate(("old", "named", "new")):
        site.build("--newest=9", name=name)
        os.utime(site.root / name / "release.json", (age, age))
    (site.root / "half").mkdir()
    script()["prune"](site.root, ["named"], 1)
    assert sorted(path.name for path in site.root.iterdir() if path.is_dir()) == ["named", "new"]


def test_a_build_prunes_nothing_that_a_rollback_needs(site: Site) -> None:
    for age, name in enumerate(("good", "old")):
        site.build("--newest=9", name=name)
        os.utime(site.root / name / "release.json", (age, age))
    site.build("--newest=1", "--keep=good", name="new")
    assert sorted(path.name for path in site.root.iterdir() if path.is_dir()) == ["good", "new"]

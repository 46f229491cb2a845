"""Generations on the disk: written whole or not at all, switched in one step, never pruned while they may be needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import store

FILES = {"decode0/env": 'A="1 2"\n', "decode0/config.yaml": "port: 1\n", "prefill0/env": "A=2\n"}
MANIFEST = {"id": "g1", "instances": {}}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where generations go; the machine of the tests has no service group."""
    monkeypatch.setattr(store, "GROUP", "root")
    return tmp_path / "etc" / "generations"


def test_a_generation_is_written_once(root: Path) -> None:
    assert store.write("g1", FILES, MANIFEST, root) is True
    assert {str(f.relative_to(root / "g1")) for f in (root / "g1").glob("*/*")} == set(FILES)
    assert (root / "g1/decode0/env").read_text() == FILES["decode0/env"]
    assert json.loads((root / "g1/manifest.json").read_text()) == MANIFEST
    assert store.write("g1", {"decode0/env": "changed"}, MANIFEST, root) is False
    assert (root / "g1/decode0/env").read_text() == FILES["decode0/env"]


def test_only_root_and_the_service_group_read_it(root: Path) -> None:
    store.write("g1", FILES, MANIFEST, root)
    modes = {oct(f.stat().st_mode & 0o7777) for f in (root / "g1").rglob("*") if f.is_file()}
    assert modes == {"0o640"}
    assert {oct(f.stat().st_mode & 0o7777) for f in [root / "g1", root / "g1/decode0"]} == {"0o750"}


def test_a_crash_in_the_middle_leaves_nothing_under_its_name(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PowerCutError(Exception):
        pass

    def cut(_fd: int) -> None:
        raise PowerCutError

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", cut)
        with pytest.raises(PowerCutError):
            store.write("g1", FILES, MANIFEST, root)
    assert not (root / "g1").exists()
    assert store.write("g1", FILES, MANIFEST, root) is True
    assert [f.name for f in root.iterdir()] == ["g1"]


def test_a_directory_without_a_manifest_is_written_anew(root: Path) -> None:
    (root / "g1" / "left").mkdir(parents=True)
    assert store.write("g1", FILES, MANIFEST, root) is True
    assert not (root / "g1" / "left").exists()


def test_without_the_service_group_nothing_is_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "GROUP", "no-such-group")
    with pytest.raises(LookupError, match="no-such-group"):
        store.write("g1", FILES, MANIFEST, root)


def test_current_is_switched_and_always_points_somewhere(root: Path) -> None:
    current = root.parent / "current"
    for generation in ("g1", "g2"):
        store.write(generation, FILES, {**MANIFEST, "id": generation}, root)
    assert store.switch("g1", root, current) is True
    assert store.switch("g1", root, current) is False
    assert store.switch("g2", root, current) is True
    assert current.resolve() == root / "g2"
    assert not current.readlink().is_absolute(), "a backup that is restored elsewhere still points inside itself"
    assert sorted(f.name for f in root.parent.iterdir()) == ["current", "generations"]


def test_current_is_never_switched_to_half_a_generation(root: Path) -> None:
    current = root.parent / "current"
    store.write("g1", FILES, MANIFEST, root)
    store.switch("g1", root, current)
    (root / "g2").mkdir()
    with pytest.raises(FileNotFoundError, match="not a whole generation"):
        store.switch("g2", root, current)
    assert current.resolve() == root / "g1"


IDS = st.lists(st.integers(0, 10_000).map(lambda n: f"g{n:05}"), unique=True, max_size=70)


@given(IDS, st.data())
def test_what_may_be_needed_is_never_pruned(by_age: list[str], data: st.DataObject) -> None:
    good = data.draw(st.lists(st.sampled_from(by_age), unique=True)) if by_age else []
    keep = data.draw(st.lists(st.sampled_from(by_age), max_size=2)) if by_age else []
    gone = store.to_prune(by_age, good, keep)
    good_by_age = [g for g in by_age if g in good]
    needed = {*by_age[-20:], *good_by_age[-20:], *keep}
    assert set(gone) == set(by_age) - needed
    assert len(by_age) - len(gone) <= 42


def test_pruning_removes_the_oldest_from_the_disk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEEP", 2)
    for at in range(6):
        store.write(f"g{at}", FILES, {**MANIFEST, "id": f"g{at}"}, root)
        os.utime(root / f"g{at}", (at, at))
    (root / ".g9.123").mkdir()
    assert store.prune(["g0", "g1", "g2"], ["g3"], root) == ["g0"]
    assert sorted(f.name for f in root.iterdir()) == [".g9.123", "g1", "g2", "g3", "g4", "g5"]

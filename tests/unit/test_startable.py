"""A generation is run only as it was written, and with its release; what is refused names the file and the way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pd import generation, node, startable, store
from pd.generation import Wanted

from tests.unit.test_generation import DECODE, ID, PREFILL, WANTED


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "GROUP", "root")
    written(tmp_path / "generations", WANTED)
    return tmp_path / "generations"


def written(root: Path, wanted: Wanted) -> str:
    made = generation.generation_id(wanted)
    store.write(made, generation.files(wanted, made), generation.manifest(wanted, made, {"revision": "abc123"}), root)
    return made


def edit(file: str, old: str, new: str) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        text = (folder / file).read_text()
        assert old in text
        (folder / file).write_text(text.replace(old, new))

    return do


@pytest.mark.parametrize(
    ("damage", "file"),
    [
        pytest.param(edit("decode0/env", "=512", "=511"), "decode0/env", id="a knob"),
        pytest.param(edit("decode0/config.yaml", "tp-size: 4", "tp-size: 8"), "decode0/config.yaml", id="a flag"),
        pytest.param(edit("prefill0/env", "SPT", "\nSPT"), "prefill0/env", id="a blank line"),
        pytest.param(edit("decode0/generation.env", "/opt/r/", "/opt/q/"), "decode0/generation.env", id="the interpreter"),
        pytest.param(lambda folder: (folder / "router0/env").unlink(), "router0/env", id="a file is gone"),
        pytest.param(edit("manifest.json", '"release0001"', '"release0002"'), "manifest.json", id="the release"),
        pytest.param(edit("manifest.json", '"role": "prefill"', '"role": "decode"'), "manifest.json", id="a role"),
    ],
)
def test_what_was_changed_by_hand_is_named(root: Path, damage: Callable[[Path], None], file: str) -> None:
    startable.untouched(ID, root)
    damage(root / ID)
    assert store.changed_by_hand(ID, node.manifest(ID, root), root) == [file]
    with pytest.raises(node.NoGenerationError, match=r"changed by hand\. Nothing was stopped") as told:
        startable.untouched(ID, root)
    assert f"rm {root / ID}/manifest.json" in str(told.value)


def test_a_digest_in_the_manifest_changed_along_does_not_help(root: Path) -> None:
    """Whoever mends sha256 too is found by the name of the directory: it is the digest of what the processes start from."""
    edit("decode0/env", "=512", "=511")(root / ID)
    manifest = json.loads((root / ID / "manifest.json").read_text())
    text = (root / ID / "decode0/env").read_text()
    manifest["instances"]["decode0"]["sha256"]["env"] = store._sha256(text)
    (root / ID / "manifest.json").write_text(json.dumps(manifest))
    assert store.changed_by_hand(ID, node.manifest(ID, root), root) == ["manifest.json"]


ODD = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=("Cc", "Cf", "Zs", "Zl", "Zp", "Cs")), max_size=12)


@given(st.dictionaries(st.from_regex(r"[A-Z]{1,5}", fullmatch=True), ODD.filter(lambda v: v != "None"), max_size=4), ODD)
def test_whatever_was_written_is_recognised(tmp_path_factory: pytest.TempPathFactory, env: dict[str, str], flag: str) -> None:
    root = tmp_path_factory.mktemp("g")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "GROUP", "root")
        wanted = replace(WANTED, members=(replace(DECODE, env=env, config={"x": flag, "api-key": flag}),))
        made = written(root, wanted)
    assert store.changed_by_hand(made, node.manifest(made, root), root) == []


def test_a_release_that_was_pruned_by_hand(root: Path, tmp_path: Path) -> None:
    releases = tmp_path / "releases"
    other = written(root, replace(WANTED, members=(PREFILL,), release="release0002"))
    (releases / "release0002").mkdir(parents=True)
    (releases / "release0002" / "release.json").write_text("{}")
    good = [{"event": "good", "generation": generation} for generation in (other, ID)]
    startable.startable(other, good, root, releases)
    with pytest.raises(node.NoGenerationError) as told:
        startable.startable(ID, good, root, releases)
    assert f"needs release release0001, and {releases}/release0001/release.json is missing" in str(told.value)
    assert f"with its release: {other}" in str(told.value) and "check out abc123" in str(told.value)
    (releases / "release0002" / "release.json").unlink()
    with pytest.raises(node.NoGenerationError, match="No other good generation has its release either"):
        startable.startable(ID, good, root, releases)


def test_a_generation_that_is_not_there(root: Path) -> None:
    with pytest.raises(node.NoGenerationError, match="never written here, or was pruned"):
        startable.startable("0f3c5a9be210", [], root)

"""What the machine itself knows of the set: the manifest and the files of its current generation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pd import generation, node
from pd.generation import Wanted

from tests.unit.test_generation import DECODE, PREFILL, WANTED


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "generations"
    write(root, WANTED)
    return root


def write(root: Path, wanted: Wanted, name: str = "g1") -> None:
    for path, text in generation.files(wanted, name).items():
        (root / name / path).parent.mkdir(parents=True, exist_ok=True)
        (root / name / path).write_text(text)
    (root / name / "manifest.json").write_text(json.dumps(generation.manifest(wanted, name, {})))


def test_an_instance_is_placed_with_its_true_environment(root: Path) -> None:
    decode = node.placed("decode0", "g1", root)
    assert (decode.role, decode.url, decode.bootstrap_port) == ("decode", DECODE.url, None)
    assert decode.unit == "sglang-engine@decode0.service"
    assert {name: decode.env[name] for name in DECODE.env} == DECODE.env
    assert not decode.is_router
    assert node.placed("prefill0", "g1", root).bootstrap_port == PREFILL.bootstrap_port


def test_everyone_is_in_start_order(root: Path) -> None:
    assert [m.name for m in node.everyone("g1", root)] == ["prefill0", "decode0", "router0"]
    assert [m.is_router for m in node.everyone("g1", root)] == [False, False, True]


def test_a_secret_is_no_knob_to_show(root: Path) -> None:
    write(root, Wanted((replace(PREFILL, env={"HF_TOKEN": "x", "A": "1"}),), "r", "n"), "g2")
    placed = node.placed("prefill0", "g2", root)
    assert placed.env["HF_TOKEN"] == "x"
    assert "HF_TOKEN" not in placed.knobs
    assert placed.knobs["A"] == "1"


def test_the_api_key_is_read_from_the_file_that_has_it(root: Path) -> None:
    assert node.api_key("g1", "decode0", root) == "s3cret"
    assert node.api_key("g1", "prefill0", root) is None


@pytest.mark.parametrize("key", ["plain", "123", "1e3", "yes", "a b", "it's", '"quoted"', "'single'", "a: b #c", "\\n", "ends'", "é"])
def test_any_api_key_is_read_as_it_was_given(root: Path, key: str) -> None:
    write(root, Wanted((replace(DECODE, config={"api-key": key}),), "r", "n"), "g2")
    assert node.api_key("g2", "decode0", root) == key


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(lambda g: (g / "manifest.json").unlink(), "never written here, or was pruned", id="no manifest"),
        pytest.param(lambda g: (g / "manifest.json").write_text("{"), "is damaged", id="half a manifest"),
        pytest.param(lambda g: (g / "manifest.json").write_text("[]"), "does not describe generation g1", id="no mapping"),
        pytest.param(lambda g: (g / "manifest.json").write_text('{"id": "g2"}'), "does not describe", id="another's manifest"),
        pytest.param(lambda g: (g / "decode0" / "env").unlink(), "was changed by hand", id="a file is gone"),
    ],
)
def test_damage_is_named(root: Path, damage: object, message: str) -> None:
    assert callable(damage)
    damage(root / "g1")
    with pytest.raises(node.NoGenerationError, match=message):
        node.placed("decode0", "g1", root)


def test_an_unknown_instance_is_named(root: Path) -> None:
    with pytest.raises(node.NoGenerationError, match="no instance decode7"):
        node.placed("decode7", "g1", root)


def test_current(tmp_path: Path) -> None:
    current = tmp_path / "current"
    assert node.current_id(current) is None
    current.symlink_to("generations/g1")
    assert node.current_id(current) == "g1"

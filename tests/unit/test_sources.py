"""Where a value was written, and what is wrong with the files as text."""

from __future__ import annotations

from pathlib import Path

import pytest
from pd import sources

INVENTORY = """\
all:
  vars:
    ansible_host: 192.0.2.10
  children:
    engines:
      children:
        decode:
          vars:
            engine_port: 30001
          hosts:
            decode0:
              engine_env:
                SGLANG_X: '1'
"""


def tree(root: Path, **files: str) -> Path:
    """A repo with these vars files; `group_vars__decode` is group_vars/decode.yml."""
    for name, text in files.items():
        path = root / f"{name.replace('__', '/')}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def test_a_key_is_found_with_its_line_text_and_quoting(tmp_path: Path) -> None:
    tree(tmp_path, group_vars__decode="# knobs\nengine_env:\n  A: 512\n  B: 'yes'\n  C: yes\n  D: 010\n  E:\n")
    read = sources.read(tmp_path)
    places = {place.path[-1]: place for place in read.places}
    assert str(places["A"]) == "group_vars/decode.yml:3"
    assert places["A"].name == "engine_env.A"
    assert [(p.text, p.style, p.kind) for name, p in places.items() if len(name) == 1] == [
        ("512", "", "int"),
        ("yes", "'", "str"),
        ("yes", "", "bool"),
        ("010", "", "int"),
        ("", "", "null"),
    ]


def test_an_inventory_gives_host_and_group_variables_their_scope(tmp_path: Path) -> None:
    tree(tmp_path, inventory__lab=INVENTORY)
    read = sources.read(tmp_path, [tmp_path / "inventory" / "lab.yml"])
    assert {(p.scope, p.path[-1], str(p)) for p in read.places if p.kind in ("int", "str")} == {
        ("all", "ansible_host", "inventory/lab.yml:3"),
        ("decode", "engine_port", "inventory/lab.yml:9"),
        ("decode0", "SGLANG_X", "inventory/lab.yml:13"),
    }


def test_every_place_ansible_reads_is_read(tmp_path: Path) -> None:
    tree(
        tmp_path,
        group_vars__decode__knobs="a: 1\n",
        group_vars__engines="b: 1\n",
        host_vars__decode0="c: 1\n",
        inventory__group_vars__all="d: 1\n",
        inventory__hosts="all: {hosts: {decode0: {e: 1}}}\n",
    )
    (tmp_path / "group_vars" / "decode.yml~").write_text("no: 1\n")
    (tmp_path / "group_vars" / ".hidden.yml").write_text("no: 1\n")
    (tmp_path / "group_vars" / "routers").write_text("f: 1\n")
    read = sources.read(tmp_path, [tmp_path / "inventory"])
    assert {(p.scope, p.path[0]) for p in read.variables()} == {
        ("decode", "a"),
        ("engines", "b"),
        ("decode0", "c"),
        ("all", "d"),
        ("decode0", "e"),
        ("routers", "f"),
    }


def test_the_strongest_scope_wins(tmp_path: Path) -> None:
    tree(tmp_path, group_vars__all="a: 1\n", group_vars__decode="a: 2\n", group_vars__prefill="a: 3\n")
    read = sources.read(tmp_path)
    assert read.where("a", scopes=("all", "decode", "decode0")) == "group_vars/decode.yml:1"
    assert [place.text for place in read.find("a", scopes=("decode", "all"))] == ["2", "1"]
    assert len(read.find("a")) == 3


def test_a_missing_key_is_said_to_be_where_its_dictionary_is(tmp_path: Path) -> None:
    tree(tmp_path, group_vars__decode="x: 1\nengine_args:\n  tp_size: 4\n")
    read = sources.read(tmp_path)
    assert read.where("engine_args", "tp-size") == "group_vars/decode.yml:3"
    assert read.where("engine_args", "page-size") == "group_vars/decode.yml:2"
    assert read.where("router_args", "policy") is None


@pytest.mark.parametrize(
    ("text", "where", "key"),
    [
        ("a: 1\nb: 2\na: 3\n", "group_vars/decode.yml:3", "a"),
        ("engine_env:\n  A: 1\n  B: 2\n  A: 1\n", "group_vars/decode.yml:4", "engine_env.A"),
        ("engine_env: {A: 1, 'A': 2}\n", "group_vars/decode.yml:1", "engine_env.A"),
        ("a:\n  - b: 1\n    b: 2\n", "group_vars/decode.yml:3", "a.0.b"),
    ],
)
def test_a_duplicate_key_is_named_with_both_lines(tmp_path: Path, text: str, where: str, key: str) -> None:
    (problem,) = sources.read(tree(tmp_path, group_vars__decode=text)).problems
    assert (problem.where, problem.key) == (where, key)
    assert "already on line" in problem.found


def test_duplicate_keys_of_an_inventory_are_found_at_any_depth(tmp_path: Path) -> None:
    text = "all:\n  children:\n    decode:\n      hosts:\n        decode0:\n        decode0:\n"
    (problem,) = sources.read(tree(tmp_path, hosts=text), [tmp_path / "hosts.yml"]).problems
    assert (problem.where, problem.key) == ("hosts.yml:6", "all.children.decode.hosts.decode0")


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", "group_vars/decode.yml:3", "no valid YAML"),
        ("- a\n- b\n", "group_vars/decode.yml:1", "no mapping"),
        ("a: 1\n---\nb: 2\n", "group_vars/decode.yml:2", "no valid YAML"),
        ("a: \x07\n", "group_vars/decode.yml", "no valid YAML"),
        ("a: *nowhere\n", "group_vars/decode.yml:1", "undefined alias"),
    ],
)
def test_a_broken_file_is_a_problem_and_no_crash(tmp_path: Path, text: str, where: str, said: str) -> None:
    (problem,) = sources.read(tree(tmp_path, group_vars__decode=text, group_vars__all="ok: 1\n")).problems
    assert problem.where == where
    assert said in problem.found


def test_a_file_in_another_encoding_is_a_problem(tmp_path: Path) -> None:
    tree(tmp_path, group_vars__all="")
    (tmp_path / "group_vars" / "all.yml").write_bytes("a: Größe\n".encode("latin-1"))
    (problem,) = sources.read(tmp_path).problems
    assert problem.fix == "a readable UTF-8 file"


def test_vault_jinja_anchors_and_empty_files_pass(tmp_path: Path) -> None:
    tree(
        tmp_path,
        group_vars__all="secret: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  3132\n",
        group_vars__engines="raw: !unsafe '{{ x }}'\nbare: {{ x }}\nj: '{{ y }}'\n",
        group_vars__vault="$ANSIBLE_VAULT;1.1;AES256\n3132\n",
        group_vars__empty="---\n# nothing\n",
        group_vars__decode="base: &base {a: 1}\nmore:\n  <<: *base\n  b: *base\n",
    )
    read = sources.read(tmp_path)
    assert read.problems == ()
    assert {p.path[0]: p.kind for p in read.variables()} == {
        "secret": "!vault",
        "raw": "!unsafe",
        "bare": "map",
        "j": "str",
        "base": "map",
        "more": "map",
    }

"""A generation's id covers everything a process starts from and nothing else; its diff is the one line that was changed."""

from __future__ import annotations

import difflib
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pd import envfile, generation
from pd.generation import Member, Wanted

PREFILL = Member(
    name="prefill0",
    role="prefill",
    machine="node0",
    url="http://127.0.0.1:30000",
    python="/opt/r/engine/bin/python",
    env={"SPT_NOENV": "1", "SGLANG_HOST_IP": "127.0.0.1"},
    config={"port": 30000, "disaggregation-mode": "prefill", "tp-size": 4},
    bootstrap_port=8998,
)
DECODE = replace(
    PREFILL,
    name="decode0",
    role="decode",
    url="http://127.0.0.1:30001",
    env={**PREFILL.env, "SGLANG_SM120_MMA_TARGET_CTAS": "512"},
    config={"port": 30001, "disaggregation-mode": "decode", "tp-size": 4, "api-key": "s3cret"},
    bootstrap_port=None,
)
ROUTER = Member(
    name="router0",
    role="router",
    machine="node0",
    url="http://127.0.0.1:30002",
    python="/opt/r/router/bin/python",
    env={"SPT_NOENV": "1"},
    config={"port": 30002, "prefill": [["http://127.0.0.1:30000", 8998]], "api-key": "s3cret"},
    metrics_url="http://127.0.0.1:29000",
)
WANTED = Wanted((PREFILL, DECODE, ROUTER), "release0001", "nonce001")
ID = generation.generation_id(WANTED)


def with_decode(**changes: Any) -> Wanted:
    return replace(WANTED, members=(PREFILL, replace(DECODE, **changes), ROUTER))


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(replace(WANTED, release="release0002"), id="release"),
        pytest.param(replace(WANTED, nonce="nonce002"), id="nonce"),
        pytest.param(replace(WANTED, members=(PREFILL, DECODE)), id="an instance less"),
        pytest.param(with_decode(name="decode1"), id="name"),
        pytest.param(with_decode(role="prefill"), id="role"),
        pytest.param(with_decode(machine="node1"), id="machine"),
        pytest.param(with_decode(python="/usr/bin/python3"), id="interpreter"),
        pytest.param(with_decode(env={**DECODE.env, "SGLANG_SM120_MMA_TARGET_CTAS": "511"}), id="a value"),
        pytest.param(with_decode(env={**DECODE.env, "X": ""}), id="an empty value is not an absent one"),
        pytest.param(with_decode(env=PREFILL.env), id="a knob less"),
        pytest.param(with_decode(config={**DECODE.config, "tp-size": 8}), id="a flag"),
        pytest.param(with_decode(config={**DECODE.config, "tp-size": "4"}), id="the type of a flag"),
        pytest.param(with_decode(config={**DECODE.config, "api-key": "another"}), id="a secret"),
    ],
)
def test_what_changes_the_id(changed: Wanted) -> None:
    assert generation.generation_id(changed) != ID


def test_what_does_not_change_the_id() -> None:
    assert generation.generation_id(replace(WANTED, members=(ROUTER, DECODE, PREFILL))) == ID
    assert generation.generation_id(with_decode(env=dict(reversed(list(DECODE.env.items()))))) == ID
    assert generation.generation_id(with_decode(config=dict(reversed(list(DECODE.config.items()))))) == ID


def test_the_content_is_all_but_the_nonce() -> None:
    """What restart-pd.yml brings up anew has failed, or was proven, before."""
    content = generation.content_id(WANTED)
    assert generation.content_id(replace(WANTED, nonce="nonce002")) == content != ID
    assert generation.content_id(replace(WANTED, release="release0002")) != content
    assert generation.content_id(with_decode(config={**DECODE.config, "api-key": "another"})) != content
    assert generation.manifest(WANTED, ID, {})["content"] == content


NAMES = st.from_regex(r"SGLANG_[A-Z]{1,4}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8).filter(lambda value: value != "None")
FLAGS = st.from_regex(r"[a-z]{1,4}(-[a-z]{1,4})?", fullmatch=True)
FLAG_VALUES = st.booleans() | st.integers(-5, 5) | st.text("abc1", max_size=3) | st.lists(st.integers(0, 3), max_size=2)


@settings(deadline=None, max_examples=25)
@given(st.dictionaries(NAMES, VALUES, max_size=4), st.dictionaries(NAMES, VALUES, max_size=4), st.randoms())
def test_any_change_of_the_environment_is_another_generation(a: dict[str, str], b: dict[str, str], random: Any) -> None:
    same = generation.generation_id(with_decode(env=a)) == generation.generation_id(with_decode(env=b))
    assert same is (a == b)
    shuffled = list(a.items())
    random.shuffle(shuffled)
    assert generation.generation_id(with_decode(env=dict(shuffled))) == generation.generation_id(with_decode(env=a))


@settings(deadline=None, max_examples=25)
@given(st.dictionaries(FLAGS, FLAG_VALUES, max_size=3), st.dictionaries(FLAGS, FLAG_VALUES, max_size=3))
def test_any_change_of_a_flag_is_another_generation(a: dict[str, Any], b: dict[str, Any]) -> None:
    same = generation.generation_id(with_decode(config=a)) == generation.generation_id(with_decode(config=b))
    assert same is (json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True))


def test_the_files_of_a_generation() -> None:
    files = generation.files(WANTED, ID)
    assert sorted(files) == sorted(f"{m.name}/{f}" for m in WANTED.members for f in ("config.yaml", "env", "generation.env"))
    assert envfile.parse(files["decode0/env"]) == DECODE.env
    assert envfile.parse(files["decode0/generation.env"]) == {
        "PD_GENERATION": ID,
        "PD_INSTANCE": "decode0",
        "PD_PYTHON": DECODE.python,
        "PD_CONFIG": f"/etc/sglang-pd/generations/{ID}/decode0/config.yaml",
    }


def test_only_the_identity_differs_between_two_restarts_of_the_same_set() -> None:
    again = replace(WANTED, nonce="nonce002")
    before, after = generation.files(WANTED, ID), generation.files(again, generation.generation_id(again))
    differing = {path for path in before if before[path] != after[path]}
    assert differing == {f"{m.name}/generation.env" for m in WANTED.members}


def test_the_manifest_tells_the_node_the_set_and_no_secret() -> None:
    told = generation.manifest(WANTED, ID, {"by": "ada"})
    assert (told["id"], told["release"], told["nonce"], told["origin"]) == (ID, "release0001", "nonce001", {"by": "ada"})
    assert generation.in_order_names(told) == ("prefill0", "decode0", "router0")
    decode = told["instances"]["decode0"]
    assert decode["unit"] == "sglang-engine@decode0.service"
    assert told["instances"]["router0"]["unit"] == "sglang-router@router0.service"
    text = generation.files(WANTED, ID)["decode0/config.yaml"]
    assert decode["sha256"]["config.yaml"] == hashlib.sha256(text.encode()).hexdigest()
    assert "s3cret" not in json.dumps(told)
    assert decode["config"]["api-key"] == generation.REDACTED
    assert decode["env"]["SGLANG_SM120_MMA_TARGET_CTAS"] == "512"


def test_members_are_in_start_order() -> None:
    members = (ROUTER, replace(DECODE, name="decode1"), DECODE, replace(PREFILL, name="prefill1"), PREFILL)
    assert [m.name for m in generation.in_order(members)] == ["prefill0", "prefill1", "decode0", "decode1", "router0"]


def diff(before: Wanted, after: Wanted) -> list[dict[str, str]]:
    told: dict[str, Any] = json.loads(json.dumps(generation.manifest(before, "b", {})))
    return generation.diff_against(told["instances"], after)


def lines(found: list[dict[str, str]]) -> list[str]:
    return [
        f"{one['before_header']} {line}"
        for one in found
        for line in list(difflib.unified_diff(one["before"].splitlines(), one["after"].splitlines(), lineterm="", n=0))[3:]
    ]


def test_the_diff_is_exactly_the_line_that_was_changed() -> None:
    after = with_decode(env={**DECODE.env, "SGLANG_SM120_MMA_TARGET_CTAS": "256"})
    assert lines(diff(WANTED, after)) == [
        "decode0/env -SGLANG_SM120_MMA_TARGET_CTAS=512",
        "decode0/env +SGLANG_SM120_MMA_TARGET_CTAS=256",
    ]


def test_a_flag_too_is_one_line() -> None:
    after = with_decode(config={**DECODE.config, "tp-size": 8})
    assert lines(diff(WANTED, after)) == ["decode0/config.yaml -tp-size: 4", "decode0/config.yaml +tp-size: 8"]


def test_a_restart_and_another_release_have_no_diff_of_files() -> None:
    assert diff(WANTED, replace(WANTED, nonce="n", release="r")) == []


def test_a_changed_secret_is_seen_and_not_shown() -> None:
    found = diff(WANTED, with_decode(config={**DECODE.config, "api-key": "t0psecret"}))
    assert lines(found) == ["decode0/config.yaml +# a secret value changed"]
    assert "s3cret" not in json.dumps(found)
    assert "t0psecret" not in json.dumps(found)


def test_an_instance_that_comes_or_goes_is_shown_whole() -> None:
    alone = replace(WANTED, members=(PREFILL, ROUTER))
    assert [(one["before_header"], one["before"] == "") for one in diff(alone, WANTED)] == [
        ("decode0/config.yaml", True),
        ("decode0/env", True),
    ]
    assert [(one["before_header"], one["after"]) for one in diff(WANTED, alone)] == [
        ("decode0/config.yaml", ""),
        ("decode0/env", ""),
    ]


SECRETS = [
    {"env": {**DECODE.env, "HF_TOKEN": 'leak "me\nleak=4\nleak: 6'}},
    {"env": {**DECODE.env, "OPENAI_API_KEY": "leak"}},
    {"config": {"api-key": "leak me"}},
    {"config": {"api-key": "leak\nme\n"}},
    {"config": {"api_key": ["leak", "me"]}},
    {"config": {"admin-api-key": {"leak": "me", "deep": {"leak": 1}}}},
    {"config": {"json-model-override-args": {"deep": [{"api-key": "leak"}]}}},
    {"config": {"control-plane-api-keys": [["id", "leak"]]}},
]


@pytest.mark.parametrize("changes", SECRETS)
def test_report_095_a_secret_is_hidden_in_every_form_and_place(changes: dict[str, Any]) -> None:
    wanted = with_decode(**changes)
    assert "leak" in json.dumps(generation.files(wanted, "g"))
    assert "leak" not in json.dumps(generation.manifest(wanted, "g", {}))
    assert "leak" not in json.dumps([diff(WANTED, wanted), diff(wanted, WANTED), diff(wanted, with_decode(env={}, config={}))])


@pytest.mark.parametrize(
    ("current", "restart", "finishing", "expected"),
    [
        pytest.param(None, False, False, "fresh", id="first install"),
        pytest.param(None, True, False, "fresh", id="restart-pd.yml on a machine that never had one"),
        pytest.param("now", False, False, "now", id="site.yml does not undo a restart"),
        pytest.param("now", True, False, "fresh", id="restart-pd.yml"),
        pytest.param("now", True, True, "now", id="restart-pd.yml after a killed run finishes that one"),
        pytest.param("now", False, True, "now", id="site.yml after a killed run"),
    ],
)
def test_next_nonce(current: str | None, restart: bool, finishing: bool, expected: str) -> None:
    assert generation.next_nonce(current, restart, finishing, "fresh") == expected

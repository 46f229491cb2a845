"""Secrets: found by the names of keys at any depth, hidden in text in whatever form a log or a dump writes them."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pd import envfile, secrecy

ODD = ("pass word 1", 'quo"ted-key', "it's-a-key", "it's: a key", "back\\slash-key", "dollar$key`tick", "schlüssel-42", "two\nlines-of-it")
NASTY = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=24) | st.sampled_from([*ODD, "%2Fpercent"])


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"HF_TOKEN": "a", "MAX_TOTAL_TOKENS": "b", "TOKENIZER_PATH": "c"}, {"a"}),
        ({"api-key": "a", "admin-api-key": {"deep": ["b", {"x": 7}]}}, {"a", "b", "7"}),
        ([{"env": {"X_PASSWORD": "a"}}, ("b", {"secret": ("c",)})], {"a", "c"}),
        ({"api_key": None, "secret": "", "token": True}, set()),
        ("api_key", set()),
    ],
)
def test_values_of_secret_keys(told: Any, found: set[str]) -> None:
    assert secrecy.values(told) == found


def written(secret: str) -> dict[str, str]:
    """A secret as the things that end up in a bundle write it."""
    forms = {"plain": f"x {secret} y", "python": f"ServerArgs(key={secret!r})", "json": json.dumps({"k": secret})}
    forms |= {"utf-8 json": json.dumps({"k": secret}, ensure_ascii=False), "url": f"/x?k={quote(secret, safe='')}&a=1"}
    forms |= {"lines": "\n".join(f"12:00 host: {line}" for line in secret.splitlines())}
    if not envfile.problems({"K": secret}):
        forms["env file"] = envfile.render({"K": secret})
    forms["yaml"] = yaml.safe_dump({"k": secret}, allow_unicode=True, width=1000)
    return forms


@given(NASTY)
def test_report_095_no_form_of_a_secret_is_left(secret: str) -> None:
    for form, text in written(secret).items():
        hidden = secrecy.hide(text, [secret])
        assert secrecy.HIDDEN in hidden, form
        for line in secret.splitlines():
            assert line not in hidden.replace(secrecy.HIDDEN, ""), form


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("api_key='abc', port=1", "api_key='<secret>', port=1"),
        ('{"admin_api_key": "a b", "port": 1}', '{"admin_api_key": "<secret>", "port": 1}'),
        ('{"admin_api_key": null, "port": 1}', '{"admin_api_key": null, "port": 1}'),
        ("api_key=None, admin_api_key=None-of-yours", "api_key=None, admin_api_key=<secret>"),
        ("HF_TOKEN=hf_abc OTHER=1", "HF_TOKEN=<secret> OTHER=1"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer <secret>"),
        ("python -m x --api-key abc --port 1", "python -m x --api-key <secret> --port 1"),
        ("max_total_tokens=16384 tokenizer_path=/m", "max_total_tokens=16384 tokenizer_path=/m"),
    ],
)
def test_what_names_itself_a_secret_is_hidden_whoevers_it_is(text: str, shown: str) -> None:
    assert secrecy.hide(text, ()) == shown


def test_a_short_secret_is_hidden_as_a_word_and_leaves_other_words_alone() -> None:
    assert secrecy.hide("id=id idle pid", ["id"]) == "<secret>=<secret> idle pid"

"""What must not be shown, found in data by the names of keys and hidden in text in every form it may be written in. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from .problem import SECRET

HIDDEN = "<secret>"
SHORT = 4
"""A secret shorter than this is hidden where it stands as a word: hidden everywhere, `id` would make any text unreadable."""
NAMED = re.compile(
    r"""(\b[\w-]*(?:api[-_]?keys?|secret|passw(?:or)?d|credentials?|[-_]token)\b["']?\s*[:=]\s*["']?)"""
    r"""(?:(?<=")[^"\n]*|(?<=')[^'\n]*|(?!(?:None|null|true|false)\b(?!-))[^\s"',;)}\]]+)"""
    r"""|(\bBearer\s+)[^\s"']+|(\s--[\w-]*(?:api-keys?|secret|passw(?:or)?d|token)\s+)[^\s"']+""",
    re.IGNORECASE,
)
"""A value that stands beside a name that says what it is, whoever's it is; that none is set is no secret, and JSON stays JSON."""


def values(told: Any, secret: bool = False) -> frozenset[str]:
    """Every text below a secret key (`problem.SECRET`), at any depth; numbers as text."""
    if isinstance(told, Mapping):
        return frozenset().union(*(values(value, secret or bool(SECRET.search(str(key)))) for key, value in told.items()))
    if isinstance(told, list | tuple | set | frozenset):
        return frozenset().union(*(values(value, secret) for value in told))
    return frozenset({str(told)} if secret and told not in ("", None) and not isinstance(told, bool) else ())


def hide(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret replaced, and what stands beside a name that says it is one (`NAMED`)."""
    return NAMED.sub(lambda found: next(filter(None, found.groups())) + HIDDEN, hide_known(text, secrets))


def hide_known(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret replaced, in whatever form it is written."""
    known = {form for secret in secrets for form in _forms(secret)}
    if not known:
        return text
    # the longest first: where one begins with another, the rest of it must not be left over
    words = (re.escape(form) if len(form) >= SHORT else rf"(?<!\w){re.escape(form)}(?!\w)" for form in sorted(known, key=len, reverse=True))
    return re.sub("|".join(words), HIDDEN, text)


def hidden(told: Any, secrets: Iterable[str]) -> Any:
    """Data with the values of secret keys replaced at any depth, and every text in it through `hide`."""
    known = tuple(secrets)
    if isinstance(told, Mapping):
        return {str(key): HIDDEN if SECRET.search(str(key)) and value else hidden(value, known) for key, value in told.items()}
    if isinstance(told, list | tuple):
        return [hidden(value, known) for value in told]
    return hide(told, known) if isinstance(told, str) else told


def _forms(secret: str) -> set[str]:
    """As it is and as Python, JSON, YAML, an env file and a URL write it; a journal also cuts it at its newlines."""
    found = set()
    for one in (secret, *secret.splitlines()):
        quoted = (json.dumps(one, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
        found |= {one, repr(one)[1:-1], *quoted, one.replace("'", "''"), re.sub(r'(["\\`$])', r"\\\1", one), quote(one, safe=""), quote(one)}
    return {form for form in found if form.strip()}

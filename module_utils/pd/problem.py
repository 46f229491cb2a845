"""What an operator got wrong, said so that it can be mended at 3 a.m.: where, which key, what was found, what to write.

Every check of the brain collects `Problem`s and returns all of them, never only the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

SECRET = re.compile(r"(api[-_]?keys?|secret|passw(or)?d|credential|(^|[-_])token)$", re.IGNORECASE)
"""Names whose values are never shown (design 5). MAX_TOTAL_TOKENS and TOKENIZER_PATH are no secrets."""


@dataclass(frozen=True)
class Problem:
    """One mistake: `where` is `file:line` or such a place, `key` the dotted name, `fix` what to write instead."""

    where: str
    key: str
    found: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.key}\n    found: {self.found}\n    write: {self.fix}"


def tidy(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, in the order of the files and their lines."""
    return sorted(set(problems), key=lambda p: (_natural(p.where), _natural(p.key), p.found, p.fix))


def report(problems: Iterable[Problem]) -> str:
    """All problems as the text of one error message; empty where there is none."""
    tidied = tidy(problems)
    if not tidied:
        return ""
    count = "1 problem" if len(tidied) == 1 else f"{len(tidied)} problems"
    return "\n".join([f"{count}, nothing was touched:", *map(str, tidied)])


def shown(key: str, value: object) -> str:
    """A value for a message: control and odd characters made visible, secrets hidden, long ones cut."""
    if SECRET.search(key):
        return "(a secret, not shown)"
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"


def _natural(text: str) -> tuple[tuple[str, int], ...]:
    """`decode.yml:9` sorts before `decode.yml:12`."""
    return tuple((word, int(digits or 0)) for word, digits in re.findall(r"(\D*)(\d*)", text))

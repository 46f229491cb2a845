"""The env file of an instance by systemd's EnvironmentFile= rules: what is written is what a process gets, to the byte.

The rules are those of systemd's parser (src/basic/env-file.c, env-util.c; the tests run the real one beside this):

- `$` and `%` are ordinary characters here. Only unit files expand them, and no knob goes through one (report 065).
- Inside double quotes a backslash escapes `"`, `\\`, `` ` `` and `$`; a newline is kept. There are no inline comments
  (report 060).
- One NUL, or one character that systemd does not take for valid UTF-8, makes it refuse the whole file; an invalid name
  is dropped with a log line only, and the service starts without it. `problems` refuses all of them before that.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from .problem import Problem, shown

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
BARE = re.compile(r"[A-Za-z0-9_./:,+@%=-]+")
"""Values that need no quotes; anything else gets double quotes."""
MAX_ASSIGNMENT_BYTES = 131072 - 1
"""Linux execve(2): MAX_ARG_STRLEN, the longest single string of an environment, less its NUL."""
_BLANK = " \t\n\r"
_NEWLINE = "\n\r"
_ESCAPED = '"\\`$'
_OMIT = "__omit_place_holder__"


class EnvFileError(ValueError):
    """The text is no env file that every supported systemd reads alike, or the values cannot be written as one."""


def render(env: Mapping[str, str]) -> str:
    """The env file of `env`, sorted by name. Raises EnvFileError when a value could not reach the process unchanged."""
    wrong = problems(env)
    if wrong:
        raise EnvFileError("\n".join(map(str, wrong)))
    return "".join(f"{name}={_quoted(env[name])}\n" for name in sorted(env))


def _quoted(value: str) -> str:
    if BARE.fullmatch(value):
        return value
    return '"' + "".join(f"\\{char}" if char in _ESCAPED else char for char in value) + '"'


def parse(text: str) -> dict[str, str]:
    """The variables a process gets from such a file. Raises EnvFileError where systemd would refuse all of it."""
    for position, char in enumerate(text):
        if char == "\0" or _invalid_utf8(char):
            line = text.count("\n", 0, position) + 1
            raise EnvFileError(f"line {line}: {_named(char)}: systemd refuses the whole file")
    env: dict[str, str] = {}
    at = 0
    while at < len(text):
        at = _assignment(text, at, env)
    return {name: value for name, value in env.items() if NAME.fullmatch(name)}


def _assignment(text: str, at: int, env: dict[str, str]) -> int:
    """Read one line (comment, junk or assignment) into `env`; returns where the next begins."""
    while at < len(text) and text[at] in _BLANK:
        at += 1
    if at < len(text) and text[at] in "#;":
        return _comment(text, at)
    start = at
    # A name has at least one character, even if that is `=`: `=x` is junk, not an assignment to the empty name.
    at += 1
    while at < len(text) and text[at] != "=" and text[at] not in _NEWLINE:
        at += 1
    if at >= len(text) or text[at] in _NEWLINE:
        return at + 1
    name = text[start:at].rstrip(_BLANK)
    env[name], at = _value(text, at + 1)
    return at


def _comment(text: str, at: int) -> int:
    while at < len(text) and text[at] not in _NEWLINE:
        if text[at] == "\\":
            if at + 1 < len(text) and text[at + 1] in _NEWLINE:
                line = text.count("\n", 0, at) + 1
                raise EnvFileError(
                    f"line {line}: a comment ends in a backslash: systemd before 254 swallows the next line"
                )
            at += 1
        at += 1
    return at + 1


def _value(text: str, at: int) -> tuple[str, int]:
    """The value at `at`, and where the next line begins. A quoted part may be followed by more parts."""
    value: list[str] = []
    while at < len(text):
        char = text[at]
        if char in _NEWLINE:
            return "".join(value), at + 1
        if char in "'\"":
            at = (_single if char == "'" else _double)(text, at + 1, value)
        elif char in _BLANK:
            at += 1
        else:
            return _bare(text, at, value)
    return "".join(value), at


def _single(text: str, at: int, value: list[str]) -> int:
    end = text.find("'", at)
    end = len(text) if end < 0 else end
    value.append(text[at:end])
    return end + 1


def _double(text: str, at: int, value: list[str]) -> int:
    while at < len(text) and text[at] != '"':
        if text[at] != "\\":
            value.append(text[at])
        elif at + 1 < len(text):
            at += 1
            if text[at] in _ESCAPED:
                value.append(text[at])
            elif text[at] != "\n":
                value.append("\\" + text[at])
        at += 1
    return at + 1


def _bare(text: str, at: int, value: list[str]) -> tuple[str, int]:
    """An unquoted rest of a line: quotes are ordinary, a backslash keeps the next character, blanks at the end go."""
    keep = 0
    while at < len(text) and text[at] not in _NEWLINE:
        escaped = text[at] == "\\"
        at += escaped
        if at < len(text) and not (escaped and text[at] in _NEWLINE):
            value.append(text[at])
            keep = len(value) if escaped or text[at] not in _BLANK else keep
        elif escaped:
            keep = len(value)
        at += 1
    return "".join(value[:keep]), at + 1


def problems(env: Mapping[str, str], where: str = "environment") -> list[Problem]:
    """What in `env` would not reach the process byte-exact, or is surely not meant. `where` is the place to name."""
    found: list[Problem] = []
    for name, value in env.items():
        if not NAME.fullmatch(name):
            fix = "a name of ASCII letters, digits and _, not beginning with a digit"
            found.append(Problem(where, name, f"the name {name!a}: systemd drops it with a log line only", fix))
        wrong = _value_problem(name, value)
        if wrong:
            found.append(Problem(where, name, *wrong))
    return found


def _value_problem(name: str, value: str) -> tuple[str, str] | None:
    """What is wrong with a value and what to write instead, or None."""
    for at, char in enumerate(value):
        complaint = _complaint(char)
        if complaint:
            return (
                f"{_named(char)} at position {at} of {shown(name, value)}: {complaint}",
                "the same value typed anew, without that character",
            )
    if value.endswith("\n"):
        return (
            f"a newline at the end of {shown(name, value)}",
            f"{name}: |-   (a plain `|` block keeps its last newline), or the value on one line in quotes",
        )
    if value.startswith(_OMIT):
        return (
            "Ansible's omit placeholder: default(omit) does not work inside a dictionary",
            f"delete the {name} line, or give it a value",
        )
    if value == "None":
        return (
            'the text "None", which is what becomes of a null in a template',
            f"delete the {name} line, or give it a value",
        )
    size = len(f"{name}={value}".encode())
    if size > MAX_ASSIGNMENT_BYTES:
        return (
            f"{size} bytes: Linux starts no process with a longer assignment than {MAX_ASSIGNMENT_BYTES}",
            "a path to a file with the content",
        )
    return None


def _complaint(char: str) -> str | None:
    """Why a character may not be in a value, or None. Newline and TAB may: systemd carries them (tried)."""
    if char in "\n\t" or " " <= char <= "~":
        return None
    if _invalid_utf8(char):
        return "systemd refuses the whole file for it"
    category = unicodedata.category(char)
    if char == "\ufeff" or category in ("Zs", "Zl", "Zp", "Cf"):
        return "an invisible character that readers take for part of the value (report 076)"
    return "a control character" if category == "Cc" else None


def _invalid_utf8(char: str) -> bool:
    """systemd's unichar_is_valid: no surrogates and no noncharacters."""
    code = ord(char)
    return 0xD800 <= code <= 0xDFFF or 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE


def _named(char: str) -> str:
    return f"U+{ord(char):04X} {unicodedata.name(char, 'control or invalid character')}"

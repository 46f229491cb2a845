"""Knob values as the operator wrote them: what reaches the process must be what stands in the file.

Environment knobs are text. A number may go unquoted only while its canonical text is what is written (512, 0.5):
YAML 1.1 turns `yes` into a boolean, 010 into 8, 1_000 into 1000, 0.00001 into 1e-05 (reports 084, 086), and SGLang
takes its default on a value it cannot read, without failing (sglang-facts 4.1). Arguments are YAML for SGLang's own
--config, so booleans are right there; the rest holds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import yaml

from .problem import SECRET, Problem, shown
from .sources import Place, Sources

ENV_VARIABLES = ("engine_common_env", "engine_env", "router_env")
ARG_VARIABLES = ("engine_common_args", "engine_args", "router_args")
Wrong = tuple[str, str] | None
"""What was found and what to write instead."""
VERSION = re.compile(r"(^|[_-])(version|pin)$")
_BOOLEAN_WORD = re.compile(r"y|n", re.IGNORECASE)
"""Booleans of YAML 1.1 that Ansible's parser leaves as text, and other YAML readers do not."""
_NUMBER_LIKE = re.compile(r"[-+]?(0[oO][0-7]+|\d[\d_]*(\.[\d_]*)?([eE][-+]?\d+)?)")
"""Plain text that looks like a number but is none to YAML 1.1: 1e3, 08, 0o17."""


def canonical(value: object) -> str:
    """The text of a knob value. Raises TypeError for anything but text and numbers (a boolean has no agreed text)."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"{value!r} is no text and no number")
    return str(value) if isinstance(value, (str, int)) else repr(value)


def lint(sources: Sources) -> list[Problem]:
    """What is written in the files in a way that YAML reads differently: environment, arguments, version pins."""
    found: list[Problem] = []
    for place in sources.places:
        variable, depth = place.path[0], len(place.path)
        if variable in ENV_VARIABLES:
            wrong = _env_place(place)
        elif variable in ARG_VARIABLES:
            wrong = _arg_place(place)
        elif VERSION.search(place.path[-1]):
            wrong = _version(place)
        else:
            wrong = None
        if (
            depth == 1
            and variable in (*ENV_VARIABLES, *ARG_VARIABLES)
            and place.kind not in ("map", "null")
            and "{{" not in place.text
        ):
            wrong = f"a {place.kind}", f"{variable}: {{}}   or `NAME: value` lines below it"
        if wrong and SECRET.search(place.path[-1]):
            wrong = (
                "a value that YAML does not read as text (a secret, not shown)",
                f'{place.path[-1]}: "..." in quotes',
            )
        if wrong:
            found.append(Problem(str(place), place.name, *wrong))
    return found


def knob_problems(where: str, name: str, values: Mapping[Any, object]) -> list[Problem]:
    """What is wrong with the values of an environment dictionary after templating (jinja gives booleans too)."""
    found = []
    for key, value in values.items():
        fix = f'{key}: "1"   (text; `| string` or `| ternary("1", "0")` at the end of a template)'
        if value is None:
            found.append(
                Problem(
                    where, f"{name}.{key}", "null", f"delete the {key} line: without it the program takes its default"
                )
            )
        elif isinstance(value, bool) or not isinstance(value, (str, int, float)):
            found.append(Problem(where, f"{name}.{key}", f"{_reading(value)}", fix))
    return found


def arg_problems(where: str, name: str, values: Mapping[Any, object]) -> list[Problem]:
    """What is wrong with the values of an argument dictionary after templating. Lists and mappings are allowed."""
    found = []
    for key, value in values.items():
        for item in value if isinstance(value, list) else [value]:
            if item is None:
                found.append(
                    Problem(
                        where, f"{name}.{key}", "null", f"delete the {key} line: without it SGLang takes its default"
                    )
                )
            elif isinstance(item, str) and (item == "None" or item.startswith("__omit_place_holder__")):
                found.append(
                    Problem(where, f"{name}.{key}", shown(str(key), item), f"delete the {key} line, or give it a value")
                )
    return found


def _env_place(place: Place) -> Wrong:
    if len(place.path) == 1 or place.path[-1] == "<<":
        return None
    if place.kind in ("map", "seq"):
        fix = f"{place.path[1]}: '...'   with the text the program expects (JSON in single quotes)"
        return f"a {'mapping' if place.kind == 'map' else 'list'}", fix
    return _scalar(place, booleans=False)


def _arg_place(place: Place) -> Wrong:
    if len(place.path) == 1 or place.kind in ("map", "seq") or place.path[-1] == "<<":
        return None
    # Below an argument a null may be JSON's.
    return None if len(place.path) > 2 and place.kind == "null" else _scalar(place, booleans=True)


def _scalar(place: Place, *, booleans: bool) -> Wrong:
    """What YAML makes of a plain scalar and what to write, where they differ. Quoted and block text is what it is."""
    judge = _JUDGES.get(place.kind)
    return None if place.style or judge is None else judge(place.text, place.path[1], booleans)


def _null(text: str, key: str, _: bool) -> Wrong:
    return f"{text} (null)" if text else "nothing (null)", f"delete the {key} line: without it the default holds"


def _boolean(text: str, key: str, booleans: bool) -> Wrong:
    value = yaml.safe_load(text)
    return None if booleans else (f"{text}, which YAML reads as {_reading(value)}", f'{key}: "{int(value)}"')


def _word(text: str, key: str, booleans: bool) -> Wrong:
    """Plain text that some readers, or a human, take for a boolean or a number."""
    if _BOOLEAN_WORD.fullmatch(text):
        fix = f"{key}: {'true' if text in 'yY' else 'false'}" if booleans else f'{key}: "{text}"'
        return f"{text}, a boolean to some YAML readers and text to others", fix
    if _NUMBER_LIKE.fullmatch(text):
        return f"{text}, which YAML reads as text, not as a number", f"{key}: {_number(text, booleans)}"
    return None


def _typed(text: str, key: str, booleans: bool) -> Wrong:
    """A plain int, float or date: right only when its canonical text is what is written."""
    try:
        value = yaml.safe_load(text)
    except ValueError as error:
        return f"{text}, which YAML cannot read ({error})", f'{key}: "{text}"'
    if isinstance(value, (int, float)) and canonical(value) == text:
        return None
    fix = f'{key}: "{text}"'
    if isinstance(value, int):
        fix = f"{key}: {value}" if booleans else f'{key}: {value}   or {key}: "{text}", whichever was meant'
    return f"{text}, which YAML reads as {_reading(value)}", fix


_JUDGES: Mapping[str, Callable[[str, str, bool], Wrong]] = MappingProxyType(
    {"null": _null, "bool": _boolean, "str": _word, "int": _typed, "float": _typed, "timestamp": _typed}
)
"""By what YAML 1.1 makes of a plain scalar. Anything else (!vault, !unsafe) is not ours to read."""


def _version(place: Place) -> Wrong:
    """A version is text: 1.10 is the number 1.1 to YAML (report 088)."""
    if place.style or place.kind not in ("int", "float", "timestamp", "null"):
        return None
    made = "null" if place.kind == "null" else _reading(yaml.safe_load(place.text))
    return f"{place.text or 'nothing'}, which YAML reads as {made}", f'{place.path[-1]}: "{place.text or "1.2.3"}"'


def _number(text: str, bare: bool) -> str:
    """The number that number-like text was meant to be, quoted for an environment knob."""
    if text.lstrip("+-").lower().startswith("0o"):
        number = str(int(text, 8))
    else:
        value = float(text.replace("_", ""))
        number = str(int(value)) if value.is_integer() else repr(value)
    return number if bare else f'"{number}"'


def _reading(value: object) -> str:
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, (int, float)):
        return f"the number {value!r}"
    return f"the {type(value).__name__} {value}"

"""Replacing an attribute of somebody else's module, loudly.

SGLang's own HookRegistry logs a target that does not exist and goes on with the stock code (sglang-facts 7.2).
"""

import importlib
from collections.abc import Callable
from typing import Any


def wrap(module: str, path: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the callable at `path` ("name" or "Class.method") in `module` by `make(original)`.

    Raises:
        SystemExit: the module or the attribute is not there: this SGLang or NIXL is not the one we know.
    """
    try:
        owner: Any = importlib.import_module(module)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        original = getattr(owner, name)
    except (ImportError, AttributeError) as error:
        raise SystemExit(
            f"pdstack-lab-standins: {module}:{path} is gone ({error}). Find where it moved to, and adapt lab/standins."
        ) from error
    setattr(owner, name, make(original))

"""Start sglang_router from a YAML file, so that its api keys are in a 0600 file and not in /proc/PID/cmdline.

Usage: launch_router.py CONFIG.yaml, with the router venv's python. The file maps the router's own flags, without the
two dashes, to values: `true` gives the bare flag, `false` leaves it out, a list gives the flag once per item, and an
item that is itself a list gives several values to one flag: `prefill: [[http://127.0.0.1:30000, 8998]]`.
The router's own parser judges the result: an unknown flag exits 2, as on its command line (sglang-facts 5.1).
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import yaml


def argv(config: dict[str, object]) -> list[str]:
    """The command line that says what `config` says.

    Raises:
        ValueError: a value is empty (YAML null), which no flag can mean.
    """
    words: list[str] = []
    for key, value in config.items():
        if value is None:
            raise ValueError(f"{key}: has no value; write one, or remove the line")
        if value is False:
            continue
        for item in value if isinstance(value, list) else [value]:
            values = [] if item is True else item if isinstance(item, list) else [item]
            words += [f"--{key}", *map(str, values)]
    return words


def main(path: str) -> None:
    config = yaml.safe_load(Path(path).read_text())
    if not isinstance(config, dict):
        sys.exit(f"{path}: is not a mapping of router flags; write lines such as `port: 30002`")
    try:
        words = argv(config)
    except ValueError as error:
        sys.exit(f"{path}: {error}")
    router: Any = importlib.import_module("sglang_router.launch_router")  # late: a bad file is refused at once
    router.launch_router(router.parse_router_args(words))


if __name__ == "__main__":
    main(sys.argv[1])

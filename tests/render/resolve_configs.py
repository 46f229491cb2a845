"""Run by an engine venv's python: which of these engine configs does SGLang itself accept, and what does it say to the rest?

Reads {name: {flag: value}} as JSON from stdin, writes {name: null or what SGLang says} as JSON to stdout. Each config is
resolved in a process of its own, forked after the imports: resolution writes to the environment and to globals, and
refuses by whatever exception its author liked. What such a process dies of is the last line that it writes.
"""

import importlib
import json
import logging
import multiprocessing
import os
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

FORK = multiprocessing.get_context("fork")
STDERR = 2


def main() -> None:
    server_args = importlib.import_module("sglang.srt.server_args")
    importlib.import_module("sglang.srt.arg_groups.pipeline")
    answers = {name: complaint(server_args, config) for name, config in json.load(sys.stdin).items()}
    json.dump(answers, sys.stdout)


def complaint(server_args: Any, config: dict[str, Any]) -> str | None:
    """What SGLang has against `config`; None when it resolves to the end."""
    receiver, sender = FORK.Pipe(duplex=False)
    with tempfile.TemporaryFile("w+") as said:
        process = FORK.Process(target=resolve, args=(sender, said.fileno(), server_args, config))
        process.start()
        sender.close()
        process.join()
        said.seek(0)
        lines = [line.strip() for line in said if line.strip()]
    if process.exitcode == 0:
        answer: str | None = receiver.recv()
        return answer
    return lines[-1] if lines else f"exit {process.exitcode}"


def resolve(to: Connection, stderr: int, server_args: Any, config: dict[str, Any]) -> None:
    """What the launcher does with a config file before it starts anything."""
    os.dup2(stderr, STDERR)
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(json.dumps(config))  # JSON is YAML
        args = server_args.prepare_server_args(["--config", str(path)])
    args.resolve_once()
    args.check_server_args()
    to.send(overruled(config, args._raw_input, args.resolved_dict()))


def overruled(config: dict[str, Any], asked: dict[str, Any], resolved: dict[str, Any]) -> str | None:
    """Flags of `config` that SGLang reads and then sets to something else, without a complaint of its own."""
    fields = {flag: flag.replace("-", "_") for flag in config}
    changed = [
        f"{flag}: {asked[name]!r} was asked for, SGLang makes it {resolved[name]!r}"
        for flag, name in fields.items()
        if asked[name] != resolved[name]
    ]
    return "; ".join(changed) or None


if __name__ == "__main__":
    main()

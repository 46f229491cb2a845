"""Run by an engine venv's python: which of these engine configs does SGLang itself accept, and what does it say to the rest?

Reads {name: {flag: value}} as JSON from stdin, writes {name: null or what SGLang says} as JSON to stdout. Each config is
resolved in a process of its own, forked after the imports, since resolution writes to the environment and to globals.
"""

import contextlib
import importlib
import io
import json
import logging
import multiprocessing
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any


def complaint(server_args: Any, config: dict[str, object]) -> str | None:
    """What SGLang has against `config`; None when it resolves to the end.

    Any exception is its answer: handlers raise what they like, down to AssertionError.
    """
    said = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said):
        path = Path(folder, "config.yaml")
        path.write_text(json.dumps(config))  # JSON is YAML
        try:
            args = server_args.prepare_server_args(["--config", str(path)])
            args.resolve_once()
            args.check_server_args()  # what the launcher does next
            return overruled(config, args._raw_input, args.resolved_dict())
        except SystemExit:  # argparse
            return said.getvalue().strip().splitlines()[-1]
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"


def overruled(config: dict[str, object], asked: dict[str, object], resolved: dict[str, object]) -> str | None:
    """Flags of `config` that SGLang reads and then sets to something else, without a complaint of its own."""
    fields = {flag: flag.replace("-", "_") for flag in config}
    changed = [
        f"{flag}: {asked[name]!r} was asked for, SGLang makes it {resolved[name]!r}"
        for flag, name in fields.items()
        if asked[name] != resolved[name]
    ]
    return "; ".join(changed) or None


def answer(to: Connection, server_args: Any, config: dict[str, object]) -> None:
    logging.disable()
    to.send(complaint(server_args, config))


def main() -> None:
    server_args = importlib.import_module("sglang.srt.server_args")
    importlib.import_module("sglang.srt.arg_groups.pipeline")
    context = multiprocessing.get_context("fork")
    answers = {}
    for name, config in json.load(sys.stdin).items():
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=answer, args=(sender, server_args, config))
        process.start()
        sender.close()
        try:
            answers[name] = receiver.recv()
        except EOFError:
            answers[name] = "the process died while it resolved the config"
        process.join()
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()

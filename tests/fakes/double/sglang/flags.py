"""The command line: SGLang's own flag names (`flags.json`, taken from its 0.5.23 wheel) and its `--config FILE.yaml`.

Rules of the merge: sglang-facts 1.3. An unknown flag is argparse's exit 2, as there.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import yaml

_TYPES = {"int": int, "float": float, "str": str}


def parse(argv: list[str]) -> argparse.Namespace:
    """The arguments, resolved as far as anything here reads them; SystemExit(2) as argparse does.

    `launch_command` is the merged command line, secrets of the file included, as in the real /server_info.
    """
    table: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "flags.json").read_text())
    merged = _merged(argv, table)
    args = _parser(table).parse_args(merged)
    args.served_model_name = args.served_model_name or args.model_path
    args.tokenizer_path = args.tokenizer_path or args.model_path
    args.launch_command = " ".join(merged)
    if args.load_balance_method == "auto":
        args.load_balance_method = "round_robin" if args.disaggregation_mode == "decode" else "follow_bootstrap_room"
    args.max_total_tokens = args.max_total_tokens or 65536
    args.max_running_requests = args.max_running_requests or 256
    return args


def _parser(table: dict[str, dict[str, Any]]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sglang serve", allow_abbrev=True)
    for name, spec in table.items():
        options: dict[str, Any] = {"dest": spec["dest"], "default": spec.get("default")}
        match spec["kind"]:
            case "switch" | "deprecated":
                options |= {"action": "store_true", "default": bool(spec.get("default"))}
            case "either":
                options |= {"action": argparse.BooleanOptionalAction}
            case "list":
                options |= {"nargs": spec.get("nargs", "+")}
            case kind:
                options |= {"type": _TYPES[kind], "choices": spec.get("choices"), "nargs": spec.get("nargs")}
        if name == "--model-path":
            options["required"] = True
        parser.add_argument(name, *spec.get("aliases", []), **options)
    parser.add_argument("--config", type=str)
    return parser


def _merged(argv: list[str], table: dict[str, dict[str, Any]]) -> list[str]:
    """The file's flags, then the command line's, so that the latter win. Raises ValueError as SGLang does."""
    if "--config" not in argv:
        return argv
    at = argv.index("--config")
    path = Path(argv[at + 1])
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise ValueError(f"Config file must be YAML format, got: {path.suffix}")
    if not path.exists():
        raise ValueError(f"Config file not found: {path}")
    config = yaml.safe_load(path.read_text()) or {}
    if not isinstance(config, dict):
        raise ValueError("Config file must contain a dictionary at root level")
    kinds = {spec["dest"]: spec["kind"] for spec in table.values()}
    flags = [word for key, value in config.items() for word in _flag(str(key), value, kinds)]
    return flags + argv[:at] + argv[at + 2 :]


def _flag(key: str, value: Any, kinds: dict[str, str]) -> list[str]:
    kind = kinds.get(key.replace("-", "_"))
    if kind in ("deprecated", "either"):
        raise ValueError(f"Unsupported config option '{key.replace('-', '_')}'")
    if isinstance(value, bool) and kind == "switch":
        return [f"--{key}"] if value else []
    if isinstance(value, bool):
        return [f"--{key}", str(value).lower()]
    if isinstance(value, list):
        return [f"--{key}", *map(str, value)] if value else []
    return [f"--{key}", json.dumps(value) if isinstance(value, dict) else str(value)]

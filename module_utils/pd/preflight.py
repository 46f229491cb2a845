"""What the machine's files say against a restart: disk, release, model, flags. I/O at the edge, each check returns its problems."""

from __future__ import annotations

import difflib
import json
import os
import pwd
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .members import HOME, RELEASES
from .observe import PROC
from .problem import Problem
from .refusal import MACHINE, REBOOT, Verdict
from .strays import USER, user_id

STAND_INS = "pdstack-lab-standins"
INODES = 2000
"""A generation, a JIT cache and the journals take some hundred files; a file system without a fixed number reports 0 in all."""
PROBE_SECONDS = 8
PROBE = """
import importlib.metadata, json, re, sys
unreadable = []
for path in sys.argv[1:]:
    try:
        open(path, "rb").close()
    except OSError as error:
        unreadable.append(f"{path}: {error.strerror}")
packages = {re.sub("[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in importlib.metadata.distributions()}
print(json.dumps({"unreadable": unreadable, "packages": packages}))
"""


WRITTEN = (Path("/etc/sglang-pd"), Path("/var/lib/sglang-pd"), Path(HOME), Path(RELEASES))
"""Where a restart writes: generations, ledger, caches, releases."""


def sysctl(name: str) -> str:
    """A net.ipv4 sysctl as text."""
    return (PROC / "sys/net/ipv4" / name).read_text().strip()


def disk(places: Iterable[Path], floor_mib: int) -> list[Problem]:
    """File systems that are full or nearly: a start writes logs, sockets, compiled kernels, and the ledger must take what is done.

    Counted is what the unprivileged services may still use. `places` need not exist: the nearest directory above counts.
    """
    found, seen = [], set()
    for place in places:
        there = next(path for path in (place, *place.parents) if path.is_dir())
        if (device := there.stat().st_dev) in seen:
            continue
        seen.add(device)
        free = os.statvfs(there)
        mib = free.f_bavail * free.f_frsize // 2**20
        if mib < floor_mib:
            found.append(Problem(str(there), "disk", f"{mib} MiB are free, below pd_disk_floor_mib ({floor_mib})", "free some space"))
        if free.f_files and free.f_favail < INODES:
            found.append(Problem(str(there), "disk", f"{free.f_favail} inodes are free, below {INODES}", "remove small files"))
    return found


def model(path: Path, where: str) -> list[Problem]:
    """The model directory must hold a config.json and every file its index names: SGLang needs minutes to find out that one is missing."""
    fix = "model_dir and model_name of a model that is there (or model_source: package)"
    if not (path / "config.json").is_file():
        found = f"{path} has no config.json" if path.is_dir() else f"{path} is not a directory on the machine"
        return [Problem(where, "model", found, fix)]
    index = path / "model.safetensors.index.json"
    named = set(json.loads(index.read_text()).get("weight_map", {}).values()) if index.is_file() else set()
    missing = sorted(name for name in named if not (path / name).is_file())
    if not missing:
        return []
    return [Problem(where, "model", f"{path} lacks {len(missing)} of {len(named)} files that {index.name} names, {missing[0]} first", fix)]


def runs(release_id: str, readable: Sequence[Path], root: Path = Path(RELEASES)) -> list[Problem]:
    """Both interpreters of a release run as the services' user, read `readable`, and have the packages the release was made with.

    Prefill and decode have the same SGLang because they share a release; a package changed in it by hand is in no generation.
    """
    record = root / release_id / "release.json"
    made = json.loads(record.read_text() or "{}").get("packages", {}) if record.is_file() else {}
    anew = f"rm {record}, then run site.yml: it makes the release anew"
    found = []
    for venv in ("engine", "router") if record.is_file() and user_id() is not None else ():
        python = root / release_id / venv / "bin" / "python"
        try:
            told = _probe(python, readable if venv == "engine" else ())
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            found.append(Problem(str(python), "release", f"does not run as user {USER}: {error}", anew))
            continue
        found += [Problem(text, "model", f"user {USER} cannot read it", "chmod it, directories above included") for text in told["unreadable"]]
        has = told["packages"]
        wrong = [f"{name} is {has.get(name, 'absent')}, was {version}" for name, version in made.get(venv, {}).items() if has.get(name) != version]
        if wrong:
            text = f"{len(wrong)} packages are not what it was made with: {'; '.join(wrong[:3])}"
            found.append(Problem(str(root / release_id / venv), "release", text, anew))
    return found


def _probe(python: Path, readable: Sequence[Path]) -> dict[str, Any]:
    user = pwd.getpwnam(USER)
    groups = os.getgrouplist(USER, user.pw_gid)
    done = subprocess.run(
        [str(python), "-I", "-c", PROBE, *map(str, readable)],
        capture_output=True, text=True, timeout=PROBE_SECONDS, check=False, cwd="/",
        user=user.pw_uid, group=user.pw_gid, extra_groups=groups,
    )  # fmt: skip
    if done.returncode:
        raise ValueError((done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def asked_of(commands: Sequence[str]) -> dict[Verdict, list[Problem]]:
    """What `pd_preflight_commands` answer, all at once: exit status 0 nothing, 1 refused, 2 refused for a reboot or the hardware.

    The last line a command prints is its reason. Any other end of it is a refusal too, and says just that: no cause is made up.
    """
    found: dict[Verdict, list[Problem]] = {MACHINE: [], REBOOT: []}
    with ThreadPoolExecutor(max_workers=len(commands) or 1) as pool:
        for command, (status, said) in zip(commands, pool.map(_answer, commands), strict=True):
            if status == 0:
                continue
            fix = "what it says; pd_preflight_commands names the commands"
            found[REBOOT if status == 2 else MACHINE].append(Problem(command, "preflight command", said, fix))
    return found


def _answer(command: str) -> tuple[int | None, str]:
    """(exit status, last line); None for one that did not end or did not begin."""
    try:
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None, f"gave no answer in {PROBE_SECONDS} s"
    except (OSError, ValueError) as error:
        return None, f"did not run: {error}"
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    said = lines[-1] if lines else "it printed no reason"
    return done.returncode, said if done.returncode in (0, 1, 2) else f"ended with {done.returncode}: {said}"


def release(release_id: str, root: Path = Path(RELEASES)) -> list[Problem]:
    """A release without its release.json is half made."""
    marker = root / release_id / "release.json"
    if marker.is_file():
        return []
    return [Problem(str(marker), "release", "missing: the release was never finished, or was pruned", "run site.yml, its `runtime` role makes it")]


def flags(asked: Iterable[Mapping[str, str]], release_id: str, root: Path = Path(RELEASES)) -> list[Problem]:
    """Flags that this release's SGLang does not know, and values that are none of a flag's choices.

    The release wrote its parser's flags when it was built; one without that list is not judged. `asked`: flag, value, where.
    """
    path = root / release_id / "flags.json"
    known: dict[str, list[str] | None] = json.loads(path.read_text()) if path.is_file() else {}
    found = []
    for one in asked if known else ():
        flag, value = one["flag"], one["value"]
        choices = known.get(flag)
        if flag not in known:
            near = difflib.get_close_matches(flag, known, 1)
            found.append(Problem(one["where"], flag, "a flag that this SGLang does not have", near[0] if near else "leave the line out"))
        elif choices and value not in choices:
            found.append(Problem(one["where"], flag, value, " or ".join(choices)))
    return found


def stand_ins(release_id: str, root: Path = Path(RELEASES)) -> list[Problem]:
    """The lab's CPU stand-ins in the release of a machine that computes on GPUs: its kernels would be missing."""
    path = root / release_id / "release.json"
    packages = json.loads(path.read_text()).get("packages", {}).get("engine", {}) if path.is_file() else {}
    if STAND_INS not in packages:
        return []
    return [Problem(str(path), "engine_device", f"cuda, and the release contains {STAND_INS}", "a release without it: runtime_packages")]

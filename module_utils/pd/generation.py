"""A generation: everything the set's processes start from, in one immutable directory named by its digest (design 2). Pure.

The digest covers every file of every instance, the release and the restart nonce. A file that only names the generation
(`generation.env`: its id, the paths inside it) is derived from the id and left out, so two generations differ exactly
where their knobs do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import envfile
from .problem import SECRET

GENERATIONS = "/etc/sglang-pd/generations"
CURRENT = "/etc/sglang-pd/current"
IDENTITY = ("PD_GENERATION", "PD_INSTANCE", "PD_PYTHON", "PD_CONFIG")
"""The variables of generation.env: they say which generation a process belongs to, and the unit's ExecStart needs them."""
ORDER = ("prefill", "decode", "router")
"""Start order of the roles; the reason for each place is with `plan.plan`."""

REDACTED = "<secret>"


def unit(name: str, role: str) -> str:
    """The systemd unit of an instance."""
    return f"sglang-{'router' if role == 'router' else 'engine'}@{name}.service"


@dataclass(frozen=True)
class Member:
    """One instance as asked: its knobs, its flags, and where it will answer. `python` is the venv's interpreter."""

    name: str
    role: str
    machine: str
    url: str
    python: str
    env: Mapping[str, str]
    config: Mapping[str, Any]
    bootstrap_port: int | None = None
    metrics_url: str | None = None

    @property
    def unit(self) -> str:
        """The systemd unit instance that runs it."""
        return unit(self.name, self.role)


@dataclass(frozen=True)
class Wanted:
    """What the set should run. `nonce` changes with each `restart-pd.yml` and with nothing else."""

    members: tuple[Member, ...]
    release: str
    nonce: str


def in_order(members: Sequence[Member]) -> tuple[Member, ...]:
    """Members in start order."""
    return tuple(sorted(members, key=lambda m: (ORDER.index(m.role), m.name)))


def in_order_names(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of a manifest's instances in start order."""
    return tuple(manifest["order"])


def contents(member: Member) -> dict[str, str]:
    """The two files that carry everything a user can turn: file name -> text."""
    return _rendered(member.env, member.config)


def _rendered(env: Mapping[str, str], config: Mapping[str, Any]) -> dict[str, str]:
    import yaml  # noqa: PLC0415  rendering happens on the controller; the node reads manifests with the standard library

    return {
        "env": envfile.render(env),
        "config.yaml": yaml.safe_dump(dict(config), sort_keys=True, allow_unicode=True, default_flow_style=False, width=1000),
    }


def generation_id(wanted: Wanted) -> str:
    """Twelve hex digits over a canonical form of everything a process starts from."""
    return digest(_starts(wanted), wanted.release, wanted.nonce)


def content_id(wanted: Wanted) -> str:
    """The same without the nonce: what `restart-pd.yml` brings up anew has another id and the same content."""
    return digest(_starts(wanted), wanted.release)


def _starts(wanted: Wanted) -> dict[str, Any]:
    return {m.name: {"role": m.role, "machine": m.machine, "unit": m.unit, "python": m.python, **contents(m)} for m in wanted.members}


def digest(instances: Mapping[str, Any], release: str, nonce: str | None = None) -> str:
    """Twelve hex digits. An instance is its role, machine, unit, python, and the texts of env and config.yaml.

    The node computes it from the files on its disk, so a directory that was changed by hand does not bear its own name any more.
    """
    canonical = {"release": release, "instances": dict(instances)} | ({} if nonce is None else {"nonce": nonce})
    return hashlib.sha256(json.dumps(canonical, sort_keys=True, ensure_ascii=False).encode(errors="surrogateescape")).hexdigest()[:12]


def identity(name: str, python: str, generation: str) -> dict[str, str]:
    """The values of `IDENTITY` for an instance."""
    config = f"{GENERATIONS}/{generation}/{name}/config.yaml"
    return dict(zip(IDENTITY, (generation, name, python, config), strict=True))


def files(wanted: Wanted, generation: str) -> dict[str, str]:
    """Every file of the generation but its manifest: path below its directory -> text."""
    found: dict[str, str] = {}
    for member in wanted.members:
        for name, text in contents(member).items():
            found[f"{member.name}/{name}"] = text
        found[f"{member.name}/generation.env"] = envfile.render(identity(member.name, member.python, generation))
    return found


def manifest(wanted: Wanted, generation: str, origin: Mapping[str, Any]) -> dict[str, Any]:
    """What the modules on the node read to know the set. `origin`: who made it, from which revision, when. Secrets redacted."""
    return {
        "id": generation,
        "content": content_id(wanted),
        "release": wanted.release,
        "nonce": wanted.nonce,
        "origin": dict(origin),
        "order": [m.name for m in in_order(wanted.members)],
        "instances": {
            m.name: {
                "role": m.role,
                "machine": m.machine,
                "unit": m.unit,
                "python": m.python,
                "url": m.url,
                "bootstrap_port": m.bootstrap_port,
                "metrics_url": m.metrics_url,
                "env": redacted(m.env),
                "config": redacted(m.config),
                "sha256": {name: _sha256(text) for name, text in contents(m).items()},
            }
            for m in wanted.members
        },
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def redacted(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same mapping with the values of secret keys replaced, at any depth."""
    return {key: REDACTED if SECRET.search(key) else _within(value) for key, value in values.items()}


def _within(value: Any) -> Any:
    if isinstance(value, Mapping):
        return redacted({str(key): inner for key, inner in value.items()})
    return [_within(inner) for inner in value] if isinstance(value, list | tuple) else value


def diff_against(before: Mapping[str, Mapping[str, Any]], wanted: Wanted) -> list[dict[str, str]]:
    """Ansible's diff of what is current to what is wanted: one element per file of an instance that differs.

    `before` has the instances of the current manifest: knobs and flags without secrets, and the digests of the true files, by which a
    changed secret is seen. What is shown is rendered from what has no secrets, never picked out of a text. Files that only name the
    generation are left out.
    """
    after = {m.name: m for m in wanted.members}
    found = []
    for name in sorted({*before, *after}):
        digests = before.get(name, {}).get("sha256", {})
        old = _rendered(before[name]["env"], before[name]["config"]) if name in before else {}
        true = contents(after[name]) if name in after else {}
        new = _rendered(redacted(after[name].env), redacted(after[name].config)) if name in after else {}
        for file in sorted({*old, *new}):
            if file in true and digests.get(file) == _sha256(true[file]):
                continue
            was, will = old.get(file, ""), new.get(file, "")
            secret = "# a secret value changed\n" if was == will else ""
            path = f"{name}/{file}"
            found.append({"before_header": path, "after_header": path, "before": was, "after": will + secret})
    return found


def next_nonce(current_nonce: str | None, restart: bool, finishing: bool, fresh: str) -> str:
    """The nonce of the generation to bring up.

    site.yml (`restart` false) carries the current one over, so it does not undo a restart; restart-pd.yml takes a fresh one,
    except when the last transaction never ended and its generation is unproven (`finishing`): then it finishes that one instead of
    starting over. A proven one (a recovery was cut off, or is at work) needs no restart to be finished, but one was asked for.
    """
    if current_nonce is None:
        return fresh
    return fresh if restart and not finishing else current_nonce

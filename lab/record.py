"""The written record of each machine: made before anything else of it, removed after everything else."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lab import paths
from lab.cgroup import Cgroup


@dataclass(frozen=True)
class Owner:
    """A process, told apart from a later one with the same number by its start time (clock ticks since boot)."""

    pid: int
    started: str
    boot: str

    @classmethod
    def of(cls, pid: int) -> Owner | None:
        """The process `pid` as it is now, None where there is none (a zombie owns nothing any more)."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        if fields[0] == "Z":
            return None
        return cls(pid, fields[19], Path("/proc/sys/kernel/random/boot_id").read_text().strip())

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return Owner.of(self.pid) == self


@dataclass(frozen=True)
class Bind:
    """A directory of the outer machine seen in the guest."""

    source: str
    target: str
    readonly: bool = False

    def option(self) -> str:
        """As systemd-nspawn takes it."""
        return f"--bind{'-ro' if self.readonly else ''}={self.source}:{self.target}"


@dataclass(frozen=True)
class Record:
    """What is needed to find, start again or take down a machine, whoever made it.

    `slot` is the host part of its address and the number of its link, `group` names its cgroup. `owner` None: it
    outlives the process that made it (`lab up`). `site`: the layer on top of `layers`.
    `fresh`: its overlay has no identity yet.
    """

    name: str
    checkout: str
    repo: str
    slot: int
    group: str
    machine_id: str
    layers: tuple[str, ...]
    binds: tuple[Bind, ...] = ()
    owner: Owner | None = field(default=None)
    image: str = "base"
    site: str = ""
    address: str = ""
    fresh: bool = True

    @property
    def id(self) -> str:
        """Unique on this machine."""
        return f"{self.name}-{self.checkout}"

    @property
    def unit(self) -> str:
        """Its name for nspawn; the outer end of its link is `vb-` + this (at most 15 characters)."""
        return f"pdlab-{self.slot}"

    @property
    def home(self) -> Path:
        """Its directory with the overlay."""
        return paths.MACHINES / self.id

    @property
    def state(self) -> Path:
        """Its directory in the checkout that made it: host key, known_hosts, ssh_config."""
        return Path(self.repo) / ".lab" / self.name

    @property
    def cgroup(self) -> Cgroup:
        """The group with all its processes."""
        return Cgroup.of(self.group)

    def orphaned(self) -> bool:
        """Whether the process it belongs to is gone."""
        return self.owner is not None and not self.owner.alive()

    def save(self) -> None:
        """Write the record; a new machine's directory appears together with it."""
        if self.home.is_dir():
            paths.write_json(self.home / "record.json", asdict(self))
            return
        fresh = paths.MACHINES / f".new-{self.id}.{os.getpid()}"
        fresh.mkdir()
        paths.write_json(fresh / "record.json", asdict(self))
        fresh.rename(self.home)


def load(machine: str) -> Record | None:
    """The record of the machine with that id."""
    data = paths.read_json(paths.MACHINES / machine / "record.json")
    return _record(data) if data else None


def records() -> list[Record]:
    """All machines on this host, of every checkout."""
    found = (load(path.name) for path in sorted(paths.MACHINES.iterdir()) if not path.name.startswith("."))
    return [record for record in found if record]


def _record(data: dict[str, Any]) -> Record:
    owner = data.pop("owner")
    binds = tuple(Bind(**bind) for bind in data.pop("binds"))
    layers = tuple(data.pop("layers"))
    return Record(**data, layers=layers, binds=binds, owner=Owner(**owner) if owner else None)

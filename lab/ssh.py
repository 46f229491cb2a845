"""SSH into the guests: a key of the checkout's own, and a host key that is known before the first contact."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab import paths
from lab.host import run
from lab.record import Record


@dataclass(frozen=True)
class Keys:
    """Texts of the keys a guest needs."""

    public: str
    host_private: str
    host_public: str


def config_path(record: Record) -> Path:
    """The machine's ssh configuration."""
    return record.state / "ssh_config"


def config(record: Record, key: Path) -> str:
    """One Host, checked strictly against a known_hosts of its own; nothing of the user's ssh settings is used."""
    return f"""Host {record.name}
  HostName {record.address}
  User root
  IdentityFile {key}
  IdentitiesOnly yes
  IdentityAgent none
  PreferredAuthentications publickey
  BatchMode yes
  HostKeyAlias {record.name}
  UserKnownHostsFile {record.state / "known_hosts"}
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  UpdateHostKeys no
  ConnectTimeout 10
  ServerAliveInterval 10
  LogLevel ERROR
"""


def prepare(record: Record) -> Keys:
    """Make what is missing: the checkout's key, the machine's host key, known_hosts; (re)write the configuration."""
    key = record.state.parent / "id_ed25519"
    with paths.locked(f"key-{record.checkout}"):
        _keygen(key, "pdstack-lab")
    record.state.mkdir(exist_ok=True)
    host_key = record.state / "host_ed25519"
    _keygen(host_key, record.name)
    host_public = host_key.with_suffix(".pub").read_text()
    (record.state / "known_hosts").write_text(f"{record.name} {host_public}")
    config_path(record).write_text(config(record, key))
    return Keys(key.with_suffix(".pub").read_text(), host_key.read_text(), host_public)


def _keygen(path: Path, comment: str) -> None:
    if not path.with_suffix(".pub").exists():
        path.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])

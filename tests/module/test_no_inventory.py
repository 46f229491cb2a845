"""What a user sees who runs a playbook without having made an inventory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("playbook", ["site.yml", "restart-pd.yml", "verify.yml"])
def test_a_missing_inventory_is_never_a_success(playbook: str, tmp_path: Path) -> None:
    """site.yml and restart-pd.yml say what to do; no playbook ends with 0 because it found no host."""
    missing = tmp_path / "inventory" / "hosts.yml"
    command = [str(Path(sys.executable).with_name("ansible-playbook")), playbook]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "ANSIBLE_INVENTORY": str(missing)}, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    if playbook != "verify.yml":
        assert f"{missing} is missing" in done.stdout + done.stderr
        assert "cp inventory/example.yml inventory/hosts.yml" in done.stdout + done.stderr
        assert "ansible_host" in done.stdout and "ansible_user" in done.stdout

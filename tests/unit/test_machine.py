"""What is recorded of the machine, and which interpreter our modules run under."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
from pd import machine, ops


def test_the_facts_are_those_of_this_machine_and_can_be_recorded() -> None:
    told = machine.facts()
    assert told["kernel"] == os.uname().release
    assert told["cmdline"] == Path("/proc/cmdline").read_text().strip()
    assert json.loads(json.dumps(told)) == told
    assert machine._line("/nonexistent") is None
    assert machine._line("/dev/null") is None


def test_where_the_libraries_are_nothing_is_started_anew() -> None:
    ops.ensure()


def test_where_they_are_not_the_missing_venv_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing(_name: str) -> Any:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", nothing)
    monkeypatch.setattr(ops, "PYTHON", tmp_path / "python")
    with pytest.raises(RuntimeError, match=f"{tmp_path}/python is missing or incomplete: run site.yml"):
        ops.ensure()

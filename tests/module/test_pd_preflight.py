"""pd_preflight: one verdict over all that was found, and what check mode leaves out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pd import members, preflight

from tests.module.loaded import redirect, run


@pytest.fixture
def model(tmp_path: Path) -> dict[str, Any]:
    """A model that is there, as the action plugin names it."""
    (tmp_path / "config.json").touch()
    return {"path": str(tmp_path), "where": "group_vars/all.yml:20"}


def look(model: dict[str, Any], **args: Any) -> dict[str, Any]:
    return run("pd_preflight", models=[model], release="0123456789", floor_mib=0, device="cpu", **{"check": True, **args})


def test_nothing_found_is_ok(model: dict[str, Any]) -> None:
    told = look(model)
    assert (told.get("failed", False), told["verdict"], told["changed"]) == (False, "ok", False)


@pytest.mark.parametrize(
    ("args", "verdict"),
    [
        ({"commands": ["sh -c 'exit 1'"]}, "refused: clear the machine first"),
        ({"commands": ["sh -c 'exit 2'", "sh -c 'exit 1'"]}, "refused: reboot or hardware"),
        ({"check": False}, "refused: clear the machine first"),
        ({"floor_mib": 2**40}, "refused: clear the machine first"),
        ({"units": ["sglang-engine@nowhere0.service"], "ports": [{"number": 1, "instance": "x", "name": "y", "where": "z"}]}, "ok"),
    ],
)
def test_the_worst_decides(model: dict[str, Any], args: dict[str, Any], verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without check mode the release that is not there is missed; in check mode site.yml would make it, and install the unit."""
    monkeypatch.setattr("pd.observe.run", lambda _argv: "LoadState=not-found\n")
    told = look(model, **args) if "floor_mib" not in args else run("pd_preflight", models=[model], release="0", device="cpu", check=True, **args)
    assert told["verdict"] == verdict
    assert told.get("failed", False) is (verdict != "ok")
    assert verdict == "ok" or told["msg"].startswith(f"{verdict}. Nothing was stopped.")


@pytest.mark.parametrize(("made", "check", "missed"), [(True, True, False), (True, False, True), (False, True, True)])
def test_a_model_that_site_makes_is_not_missed_by_a_dry_run(
    made: bool, check: bool, missed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0123456789").mkdir()
    (tmp_path / "0123456789" / "release.json").touch()
    redirect(monkeypatch, preflight, Path(members.RELEASES), tmp_path)
    told = look({"path": str(tmp_path / "M"), "where": "group_vars/all.yml:20"}, made=made, check=check)
    assert ("is not a directory on the machine" in told.get("msg", "")) is missed

"""The installed copy of this package: whole, switched in one step, and able to run by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pd import brain, recover


def test_what_is_installed_runs_with_its_settings(tmp_path: Path) -> None:
    files = brain.files("pd", recover.Settings(times=5))
    name = brain.digest(files)
    assert not brain.is_installed(name, tmp_path)
    brain.install(files, name, tmp_path)
    assert brain.is_installed(name, tmp_path)
    code = "import json, sys; from pd import recover; print(json.loads(recover.SETTINGS.read_text())['times'], recover.__file__)"
    asked = [sys.executable, "-S", "-c", code]
    said = subprocess.run(asked, cwd="/", env={"PYTHONPATH": str(tmp_path / "current")}, capture_output=True, text=True, check=True).stdout
    times, where = said.split()
    assert (times, Path(where)) == ("5", tmp_path / "current" / "pd" / "recover.py")


def test_other_settings_or_other_code_are_another_digest_and_the_old_one_goes(tmp_path: Path) -> None:
    old, new = (brain.files("pd", recover.Settings(times=times)) for times in (3, 4))
    assert brain.digest(old) != brain.digest(new)
    assert brain.digest(old) != brain.digest({**old, "pd/plan.py": "# other\n"})
    for files in (old, new):
        brain.install(files, brain.digest(files), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([brain.digest(new), "current"])
    assert json.loads((tmp_path / "current" / brain.SETTINGS).read_text())["times"] == 4

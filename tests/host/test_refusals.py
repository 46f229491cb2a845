"""Bad input is refused before anything is stopped, and the message names the file and the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lab
from tests.support import double
from tests.support.pairs import Pair, serving
from tests.support.project import Project

pytestmark = pytest.mark.host


@pytest.fixture(scope="module")
def machine_at_work(pair_image: lab.Image) -> Iterator[lab.Machine]:
    """One serving machine for all refusals: none of them may change anything on it."""
    with lab.Machine(lab.unique_name(), pair_image) as machine:
        serving(machine)
        yield machine


@pytest.fixture
def pair(machine_at_work: lab.Machine, tmp_path: Path) -> Pair:
    """The machine, and a project of this test's own."""
    return Pair(machine_at_work, Project(tmp_path, machine_at_work, double.VARIABLES))


def line(file: str, old: str, new: str) -> Callable[[Pair], None]:
    """An edit of one line of group_vars."""

    def edit(pair: Pair) -> None:
        path = pair.project.root / "group_vars" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return edit


def inventory(old: str, new: str) -> Callable[[Pair], None]:
    """An edit of the inventory."""

    def edit(pair: Pair) -> None:
        text = pair.project.inventory.read_text()
        assert old in text
        pair.project.inventory.write_text(text.replace(old, new))

    return edit


def variable(name: str, value: object) -> Callable[[Pair], None]:
    """Another value in the test's own group_vars."""
    return lambda pair: pair.project.write_inventory({**double.VARIABLES, name: value})


CTAS = "  SGLANG_SM120_MMA_TARGET_CTAS: 512"
REFUSED: dict[str, tuple[Callable[[Pair], None], tuple[str, ...]]] = {
    "two equal ports": (line("decode.yml", "engine_port: 30001", "engine_port: 30000"), ("group_vars/decode.yml:", "engine_port", "30000")),
    "a port the kernel hands out": (line("decode.yml", "engine_port: 30001", "engine_port: 40001"), ("group_vars/decode.yml:", "40001")),
    "an unknown dictionary": (line("decode.yml", "engine_env:", "engine_evn:"), ("group_vars/decode.yml:", "engine_evn", "engine_env")),
    "a duplicate key": (line("decode.yml", CTAS, f"{CTAS}\n{CTAS}"), ("decode.yml", "SGLANG_SM120_MMA_TARGET_CTAS")),
    "a YAML boolean": (line("decode.yml", CTAS, CTAS.replace("512", "yes")), ("group_vars/decode.yml:", "TARGET_CTAS", "yes")),
    "an octal": (line("decode.yml", CTAS, CTAS.replace("512", "010")), ("group_vars/decode.yml:", "TARGET_CTAS", "010")),
    "an exponent": (line("decode.yml", CTAS, CTAS.replace("512", "1e3")), ("group_vars/decode.yml:", "TARGET_CTAS", "1e3")),
    "a null": (line("decode.yml", CTAS, CTAS.replace("512", "null")), ("group_vars/decode.yml:", "TARGET_CTAS", "null")),
    "a value systemd would drop": (line("decode.yml", CTAS, CTAS.replace("512", '"a\\u00a0b"')), ("group_vars/decode.yml:", "U+00A0")),
    "an instance in no group": (inventory("    pd:\n", "    pd:\n      hosts:\n        stray0:\n"), ("stray0", "prefill")),
    "no decode": (inventory("                decode0: null\n", "                prefill9: null\n"), ("prefill9",)),
    "a model that is not there": (variable("model_name", "nowhere"), ("group_vars/test.yml:", "/srv/nowhere", "model_name")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_before_anything_is_stopped(pair: Pair, case: str) -> None:
    """Done-when 7: one mistake each; the pair goes on serving with the very same processes."""
    edit, told = REFUSED[case]
    edit(pair)
    before = pair.pids()
    done = pair.project.play("restart-pd.yml")
    assert done.rc != 0, done.stdout
    for part in told:
        assert part in done.stdout, done.stdout[-3000:]
    assert pair.pids() == before


def test_a_stranger_on_a_port_is_named(pair: Pair) -> None:
    """A process that is not one of our units holds decode's new port."""
    line("decode.yml", "engine_port: 30001", "engine_port: 30009")(pair)
    pair.machine.exec("systemd-run -q --unit stranger python3 -m http.server 30009 --bind 127.0.0.1")
    before = pair.pids()
    done = pair.project.play("restart-pd.yml")
    pair.machine.exec(["systemctl", "stop", "stranger"])
    assert done.rc != 0 and "port 30009 is held by process" in done.stdout and "http.server" in done.stdout
    assert pair.pids() == before


def test_not_enough_disk_for_the_release_is_refused(pair: Pair) -> None:
    """Before a byte of it is written, and long before anything is stopped."""
    pair.project.write_inventory({**double.VARIABLES, "runtime_needed_mib": 10_000_000})
    lock = pair.project.root / "requirements" / "double.lock"
    lock.write_text(lock.read_text() + "# another release\n")
    before = pair.pids()
    done = pair.project.play("site.yml")
    assert done.rc != 0 and "10000000 MiB" in done.stdout and "are free" in done.stdout
    assert pair.pids() == before
    assert len(pair.machine.exec("ls /opt/sglang-pd/releases/*/release.json").stdout.split()) == 1

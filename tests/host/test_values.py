"""What a value goes through: systemd must not change a byte of it, and a secret must not be seen on its way."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.support import double
from tests.support.pairs import Pair
from tests.unit.nasty import NASTY

pytestmark = pytest.mark.host
KEY = "k3y-s3cr3t-0451"


def test_every_nasty_value_reaches_every_process_byte_for_byte(pair: Pair) -> None:
    """Done-when 7: newline, %, $, quotes, spaces, # and the rest, through the env file, systemd and exec."""
    wanted = {f"PDTEST_{number}": value for number, value in enumerate(NASTY)}
    pair.project.write_inventory({**double.VARIABLES, "engine_common_env": wanted})
    pair.project.play("site.yml").ok()
    for env in [*pair.environs("prefill0"), *pair.environs("decode0")]:
        assert {name: env.get(name) for name in wanted} == wanted
    done = pair.project.play("verify.yml").ok()
    assert done.changed == 0


def test_a_secret_is_seen_nowhere_but_in_its_file(pair: Pair) -> None:
    """Field report 095: not in -vvv --diff, not on a command line, not in ledger or manifest; and it works."""
    (pair.project.root / "group_vars" / "all.yml").open("a").write("\n")
    path = pair.project.root / "group_vars" / "all.yml"
    path.write_text(path.read_text().replace('pd_api_key: ""', f"pd_api_key: {KEY}"))
    done = pair.project.play("site.yml", "-vvv", "--diff").ok()
    assert KEY not in done.stdout
    assert KEY not in json.dumps(list(done.events))
    shown = pair.machine.exec("cat /var/lib/sglang-pd/ledger.jsonl /etc/sglang-pd/current/manifest.json; cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
    assert KEY not in shown.stdout
    logged = pair.machine.exec("journalctl --no-pager -o cat _COMM=python3 | grep ansible- | head -c 2000000", check=False).stdout
    assert KEY not in logged, "a module's own log line has it"
    held = pair.machine.exec(["grep", "-rlF", KEY, "/etc/sglang-pd"]).stdout.split()
    assert held and {name.rpartition("/")[2] for name in held} == {"config.yaml"}
    modes = pair.machine.exec(["stat", "-c", "%a %U:%G", *held]).stdout.split("\n")
    assert set(filter(None, modes)) == {"640 root:sglang"}
    answer = pair.ask("repeat: hello", headers={"Authorization": f"Bearer {KEY}"})
    assert answer["choices"][0]["message"]["content"] == "hello"
    assert yaml.safe_load(pair.machine.exec(["cat", "/etc/sglang-pd/current/router0/config.yaml"]).stdout)["api-key"] == KEY
    pair.project.play("verify.yml").ok()

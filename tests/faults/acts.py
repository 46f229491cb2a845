"""What an operator does in a scenario, and what is wrong with the machine meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pexpect

from tests.support import double
from tests.support.pairs import Pair
from tests.support.project import Outcome

VARIABLES = {**double.VARIABLES, "pd_rollback_on_failure": True}
"""Of the doubles' machine; a run that fails goes back, as it does by default."""
Act = Callable[[Pair], Outcome]
Arrange = Callable[[Pair], object]


def play(playbook: str, *options: str, **extra: Any) -> Act:
    """Run a playbook as an operator does."""
    return lambda pair: pair.project.play(playbook, *options, **extra)


restart = play("restart-pd.yml")


def then(*acts: Act) -> Act:
    """One act after the other; the last one's end counts, and everything they say."""

    def act(pair: Pair) -> Outcome:
        done = [one(pair) for one in acts]
        return replace(done[-1], stdout="\n".join(one.stdout for one in done), events=[e for one in done for e in one.events])

    return act


def seen(command: str) -> Act:
    """What a command on the machine says; it must succeed."""
    return lambda pair: Outcome(0, pair.machine.exec(command).stdout, [])


def on_node(*commands: str) -> Arrange:
    """Commands in a shell of the machine, each must succeed."""
    return lambda pair: [pair.machine.exec(command) for command in commands]


def variables(**values: Any) -> Arrange:
    """Other values in the test's own group_vars."""
    return lambda pair: pair.project.write_inventory({**VARIABLES, **values})


def scripted(instance: str, **faults: Any) -> Arrange:
    """A fault of a double, whichever generation it runs."""
    return lambda pair: double.script(pair.machine, instance, **faults)


def both(*arranged: Arrange) -> Arrange:
    """Several things, in order."""
    return lambda pair: [one(pair) for one in arranged]


def command(pair: Pair, playbook: str, **extra: Any) -> list[str]:
    """The command line of a playbook."""
    words = [word for name, value in extra.items() for word in ("-e", f"{name}={value}")]
    return [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(pair.project.inventory), playbook, *words]


def environment(pair: Pair) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "ANSIBLE_CONFIG": str(pair.project.root / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}


def unattended(playbook: str, **extra: Any) -> Act:
    """Run it as cron does: no terminal."""

    def act(pair: Pair) -> Outcome:
        done = subprocess.run(
            command(pair, playbook, **extra),
            cwd=pair.project.root, env=environment(pair), stdin=subprocess.DEVNULL, start_new_session=True,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout + done.stderr, [])

    return act


def at_a_terminal(playbook: str, says: str, types: str, **extra: Any) -> Act:
    """Run it at a terminal, and type an answer when it says something."""

    def act(pair: Pair) -> Outcome:
        program, *words = command(pair, playbook, **extra)
        child = pexpect.spawn(
            program, words, cwd=str(pair.project.root), env=environment(pair), encoding="utf-8", timeout=90, dimensions=(50, 300)
        )
        printed = ""
        if child.expect([says, pexpect.EOF]) == 0:
            printed = f"{child.before}{child.after}"
            child.sendline(types)
            child.expect(pexpect.EOF)
        child.close()
        return Outcome(int(child.exitstatus or 0), printed + str(child.before), [])

    return act


def hung(instance: str) -> Arrange:
    """The instance's scheduler is stopped by a signal: it publishes nothing any more, and its port still answers."""
    found = f"for p in $(pgrep -f sglang::scheduler); do grep -q sglang-engine@{instance} /proc/$p/cgroup && kill -STOP $p && echo it; done"
    return on_node(f"{{ {found}; }} | grep it")


def in_generation(instance: str, **faults: Any) -> Arrange:
    """A fault of a double that is a knob: the generation that is asked for has it, the one before has not."""
    file = {"prefill0": "prefill.yml", "decode0": "decode.yml"}[instance]
    return lambda pair: pair.project.knob(file, "engine_env", "PD_DOUBLE", f"'{json.dumps(faults)}'")

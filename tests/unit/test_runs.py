"""The id of a run tells whether its process is dead, on its own machine only."""

from __future__ import annotations

import os
import subprocess

from pd import runs


def test_a_living_run_is_not_dead() -> None:
    assert runs.is_dead_here(runs.new(os.getpid())) is False
    assert runs.new() == runs.new(os.getppid())


def test_a_killed_run_is_dead_also_before_its_parent_has_noticed() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        run = runs.new(child.pid)
        assert runs.is_dead_here(run) is False
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert runs.is_dead_here(run) is True, "a zombie does nothing any more"
    assert runs.is_dead_here(run) is True


def test_a_pid_that_another_process_got_is_another_run() -> None:
    host, boot, pid, _ = runs.new(os.getpid()).split(":")
    assert runs.is_dead_here(f"{host}:{boot}:{pid}:1") is True


def test_a_run_before_this_boot_is_dead() -> None:
    host, _, pid, start = runs.new(os.getpid()).split(":")
    assert runs.is_dead_here(f"{host}:00000000:{pid}:{start}") is True


def test_a_run_of_another_machine_cannot_be_seen_from_here() -> None:
    _, boot, _, _ = runs.new(os.getpid()).split(":")
    assert runs.is_dead_here(f"elsewhere:{boot}:999999999:1") is False
    assert runs.is_dead_here("") is False
    assert runs.is_dead_here("typed by hand") is False

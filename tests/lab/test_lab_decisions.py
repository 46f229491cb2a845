"""The lab's decisions, without a guest: subnets, images to keep, orphans, locks, what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from lab import cleanup, host, image, network, paths
from lab.__main__ import main
from lab.errors import HostError, LabError
from lab.image import Image
from lab.machine import Machine
from lab.progress import Plain, Progress, Rich
from lab.record import Owner


def test_the_subnet_overlaps_no_address_no_route_and_no_name_server() -> None:
    addresses = [{"addr_info": [{"local": "10.211.77.9", "prefixlen": 24}]}, {}]
    routes = [
        {"dst": "default", "gateway": "10.212.77.1"},
        {"dst": "10.213.0.0/16"},
        {"dst": "10.214.77.4", "gateway": "192.0.2.1"},
    ]
    taken = network.networks_in(addresses, routes, "nameserver 10.215.77.53\nnameserver fd00::1\n")
    assert network.free_subnet(taken) == IPv4Network("10.216.77.0/24")


def test_no_free_subnet_is_said() -> None:
    with pytest.raises(HostError, match="no free private /24"):
        network.free_subnet([IPv4Network("0.0.0.0/0")])


def test_a_firewall_that_drops_forwarded_packets_is_found() -> None:
    chain = {"family": "ip", "table": "filter", "name": "FORWARD", "hook": "forward", "policy": "drop"}
    quiet = {"chain": {**chain, "name": "INPUT", "hook": "input"}}
    found = network.dropping_chains({"nftables": [{"metainfo": {}}, {"chain": chain}, quiet]})
    assert found == ["table ip filter, chain FORWARD"]


def stocked(name: str, digest: str, *below: str) -> Image:
    layers = (paths.IMAGES / f"{name}-{digest}" / "layer", *(paths.IMAGES / layer / "layer" for layer in below))
    return Image(name, digest, layers, digest)


def test_images_to_keep_are_the_current_base_the_last_site_and_the_last_two_of_a_name() -> None:
    known = [
        stocked("base", "old"),
        stocked("converged", "0", "base-old"),
        stocked("base", "new"),
        stocked("site", "1"),
        *(stocked("converged", str(number), "base-new") for number in range(1, 4)),
        stocked("site", "2"),
    ]
    kept = {layer.parent.name for layer in cleanup.current_layers(known, "new")}
    assert kept == {"base-new", "site-2", "converged-2", "converged-3"}


def test_an_owner_is_a_process_and_not_its_number() -> None:
    me = Owner.of(os.getpid())
    assert me is not None
    assert me.alive()
    assert not Owner(me.pid, "1", me.boot).alive()
    assert not Owner(me.pid, me.started, "another boot").alive()


def test_a_zombie_owns_nothing() -> None:
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert Owner.of(child.pid) is None


def test_a_lock_whose_file_was_removed_locks_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "LOCKS", tmp_path)
    with paths.locked("x"):
        paths.unlock_for_good("x")
        with paths.locked("x", wait=False) as fresh:
            assert fresh
            with paths.locked("x", wait=False) as second:
                assert not second


def test_a_half_made_image_is_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "IMAGES", tmp_path)
    building = image.fresh(".new-x-1")
    (building / "layer").mkdir()
    assert image.images() == []
    made = image.commit(building, "x", "1", ())
    assert image.images() == [made]
    (made.path / "layer").rmdir()
    assert image.images() == []


def test_missing_packages_are_named_after_what_lacks() -> None:
    needs = {"sh": "dash", "no-such-command": "nothing", "/no/such/file": "keyring"}
    assert host.missing_packages(needs) == ["keyring", "nothing"]


def test_without_root_the_command_says_so_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["up"]) == 1
    assert "needs root: it mounts overlays" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "Upper", "1st", "a_b", "x" * 41, "../x"])
def test_a_name_that_cannot_be_a_host_name_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="write a lower-case letter"):
        Machine(name)


def test_the_api_imports_without_rich() -> None:
    code = "import sys; sys.modules['rich'] = None; import lab; lab.Machine('x')"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=paths.REPO)


@pytest.mark.parametrize("progress", [Rich(), Plain()], ids=["rich", "plain"])
def test_brackets_in_what_a_guest_said_are_shown_and_not_obeyed(
    progress: Progress, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress.step("step [/x]") as detail:
        detail("[  OK  ] [/y]")
    said = capsys.readouterr().err

    def fail() -> None:
        raise LabError("console: [  OK  ] Reached [/target]")

    monkeypatch.setattr(host, "require_root", fail)
    assert main(["status"]) == 1
    assert "step [/x]" in said
    assert "[  OK  ] Reached [/target]" in capsys.readouterr().err

"""Run by test_lab_teardown in network and mount namespaces of its own: `lab up` and `lab down` on an empty machine.

Prints, as JSON, what is on this (private) machine before, between and after.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from lab import network, paths
from lab.__main__ import main


def run(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def seclude(home: Path) -> None:
    """A lab cache of its own (with the real images in it), and an empty place for nspawn's notes."""
    images = paths.IMAGES
    own = home / "cache"
    (own / "images").mkdir(parents=True)
    run("mount", "--bind", str(images), str(own / "images"))
    run("mount", "--rbind", str(own), str(paths.CACHE))
    Path("/run/systemd/nspawn").mkdir(parents=True, exist_ok=True)
    run("mount", "-t", "tmpfs", "tmpfs", "/run/systemd/nspawn")
    run("ip", "link", "set", "lo", "up")


def snapshot(name: str) -> dict[str, object]:
    """Everything that the machine `name` could leave behind.

    Only its own mounts: those of other tests' machines, copied into this namespace, vanish when their directories are removed.
    """
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "links": sorted(link["ifname"] for link in json.loads(run("ip", "-j", "link"))),
        "nft": run("nft", "list", "ruleset"),
        "mounts": sorted(line.split()[4] for line in mounts if name in line.split()[4]),
        "ip_forward": network.IP_FORWARD.read_text().strip(),
        "machines": sorted(path.name for path in paths.MACHINES.glob("*")),
        "nspawn": sorted(str(path) for path in Path("/run/systemd/nspawn").glob("*/*")),
        "recorded": paths.NETWORK.exists(),
    }


def story(name: str, home: Path, forward: str) -> dict[str, object]:
    """up, up, down, down."""
    seclude(home)
    network.IP_FORWARD.write_text(forward)
    before = snapshot(name)
    statuses = [main(["up", name]), main(["up", name])]
    during = snapshot(name)
    ssh = subprocess.run(["ssh", "-F", str(paths.STATE / name / "ssh_config"), name, "hostname"], check=False)
    statuses += [ssh.returncode, main(["down", name]), main(["down", name])]
    return {"before": before, "during": during, "after": snapshot(name), "statuses": statuses}


if __name__ == "__main__":
    told = story(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
    Path(sys.argv[2], "told.json").write_text(json.dumps(told))

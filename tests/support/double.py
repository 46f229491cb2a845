"""A machine that runs the pair with the engine double: same units, same modules, same router, an engine that starts in a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lab
from tests.support.pairs import digest
from tests.support.project import Project

IMAGE = "pair-on-doubles"
VARIABLES: dict[str, Any] = {
    "runtime_engine_lock": "double.lock",
    "runtime_packages": ["tests/fakes/double"],
    "runtime_check_imports": ["sglang.launch_server"],
    "model_source": "path",
    "model_name": "fake",
    "model_dir": "/srv",
    "engine_common_args": {"disaggregation-transfer-backend": "nixl", "enable-metrics": True, "chunked-prefill-size": 256},
    "pd_start_deadline": 40,
    "pd_serve_deadline": 40,
    "pd_stop_deadline": 40,
    "pd_drain_timeout": 10,
    "pd_settle": 2,
    "pd_request_timeout": 8,
}
QUICK = {"drain_poll_s": 0.2}
MADE_FROM = ("roles", "requirements", "group_vars", "tests/fakes/double", "module_utils/pd", "library/pd_recovery.py")
"""What the machine's disk is made of. The playbooks and modules that a test runs come from its scratch project, always as they are now."""


def image(folder: Path) -> lab.Image:
    """The image with the pair brought up once by site.yml; made on first use, by one of the test processes."""

    def make(machine: lab.Machine) -> None:
        machine.exec("mkdir -p /srv/fake && echo {} > /srv/fake/config.json")
        # a real engine looks every 5 s whether it has drained; the tests have no use for that wait, also after a reboot
        quick = "".join(f"f /run/pd-double/{name}.json 0644 root root - {json.dumps(QUICK)}\n" for name in ("prefill0", "decode0"))
        machine.exec("cat > /etc/tmpfiles.d/pd-double.conf && systemd-tmpfiles --create pd-double.conf", stdin=quick)
        Project(folder, machine, VARIABLES).play("site.yml").ok()

    return lab.ensure_image(IMAGE, digest(MADE_FROM, VARIABLES), make)


def script(machine: lab.Machine, instance: str, **faults: Any) -> None:
    """Tell one double how to behave from now on; it reads the file again when it changes."""
    where = f"/run/pd-double/{instance}.json"
    machine.exec(f"cat > {where}.new && chmod 644 {where}.new && mv {where}.new {where}", stdin=json.dumps({**QUICK, **faults}))


#!/usr/bin/python
"""What only the machine can say, before anything on it is stopped."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pd_preflight
short_description: Find what would make a restart fail, while everything still runs
description:
  - Disk, the model, the release (whole, unchanged, its interpreters run as the services' user), ports inside the kernel's ephemeral
    range, ports held by somebody else, processes that are left over or that the kernel does not let go, units and their drop-ins, flags
    that the release's SGLang does not have, the lab's stand-ins on a machine with GPUs, and what commands of the user's own say.
  - All problems are reported at once, under one verdict. Nothing is changed, and no process is ended.
options:
  ports:
    description: Every port of every instance of this machine, made by the action plugin from the inventory.
    type: list
    elements: dict
    default: []
  units:
    description: The systemd unit of every instance of this machine, made by the action plugin.
    type: list
    elements: str
    default: []
  models:
    description: Where models must be, and which line asks for each (C(path), C(where)), made by the action plugin.
    type: list
    elements: dict
    required: true
  made:
    description: Whether site.yml makes the model itself.
    type: bool
    default: false
  release:
    description: The release that must be there, whole. Left out of a rollback, whose generation brings its own release (M(pd_generation) judges it).
    type: str
  flags:
    description: Flags of the engines that are the user's (C(flag), C(value), C(where)), made by the action plugin.
    type: list
    elements: dict
    default: []
  device:
    description: What the engines compute on; C(cuda) refuses a release with the lab's stand-ins.
    type: str
    default: cuda
  floor_mib:
    description: C(pd_disk_floor_mib), what must be free on every file system that a restart writes to.
    type: int
    default: 512
  commands:
    description: C(pd_preflight_commands), each a program with its arguments. Exit status 0, 1 and 2 are fine, refused, refused for a
      reboot or the hardware; the last line is the reason. Each has 8 s, all run at once, as root, and must change nothing.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: In check mode what site.yml itself would make (a release, a made model) is not missed.
  diff_mode:
    support: none
author: [pdstack]
"""

EXAMPLES = r"""
- name: Look for what would make a restart fail
  pd_preflight:
"""

RETURN = r"""
verdict:
  description: One of a closed set, the worst of what was found.
  returned: always
  type: str
  choices: ['ok', 'refused: mend what is asked for', 'refused: clear the machine first', 'refused: reboot or hardware']
"""

from pathlib import Path  # noqa: E402  the documentation comes first
from typing import Any  # noqa: E402  the documentation comes first

from ansible.module_utils.basic import AnsibleModule  # noqa: E402  the documentation comes first
from ansible.module_utils.pd import fragments, observe, ports, preflight, refusal, strays  # noqa: E402  the documentation comes first

SPEC: dict[str, Any] = {
    "ports": {"type": "list", "elements": "dict", "default": []},
    "units": {"type": "list", "elements": "str", "default": []},
    "models": {"type": "list", "elements": "dict", "required": True},
    "made": {"type": "bool", "default": False},
    "release": {"type": "str"},
    "flags": {"type": "list", "elements": "dict", "default": []},
    "device": {"type": "str", "default": "cuda"},
    "floor_mib": {"type": "int", "default": 512},
    "commands": {"type": "list", "elements": "str", "default": []},
}


def asked(params: dict[str, Any], check: bool) -> list[refusal.Problem]:
    """What an edit mends: ports the kernel hands out, flags, stand-ins, units."""
    wanted = [ports.Port(**{**port, "number": int(port["number"])}) for port in params["ports"]]
    found = list(ports.ephemeral_conflicts(wanted, preflight.sysctl("ip_local_port_range"), preflight.sysctl("ip_local_reserved_ports")))
    if params["release"]:
        found += preflight.flags(params["flags"], params["release"])
        found += preflight.stand_ins(params["release"]) if params["device"] == "cuda" else []
    return found + list(fragments.look(params["units"], may_be_absent=check))


def machine(params: dict[str, Any], check: bool, seen: list[strays.Process]) -> list[refusal.Problem]:
    """What a hand on the machine mends: disk, model, release, strangers, left-over processes."""
    found = list(preflight.disk(preflight.WRITTEN, params["floor_mib"]))
    missing = [one for model in params["models"] for one in preflight.model(Path(model["path"]), model["where"])]
    found += missing if not (check and params["made"]) else []
    if params["release"]:
        found += preflight.release(params["release"]) if not check else []
        found += preflight.runs(params["release"], [Path(model["path"]) / "config.json" for model in params["models"] if not missing])
    wanted = [ports.Port(**{**port, "number": int(port["number"])}) for port in params["ports"]]
    found += strays.strangers(wanted, params["units"])
    idle = [unit for unit in params["units"] if observe.unit(unit).active_state in ("inactive", "failed")]
    return found + list(strays.left_over(seen, strays.user_id(), params["units"], idle))


def look(params: dict[str, Any], check: bool) -> dict[refusal.Verdict, list[refusal.Problem]]:
    """Everything that speaks against a restart, under the verdict it leads to."""
    seen = strays.processes(strays.user_id(), params["units"])
    said = preflight.asked_of(params["commands"])
    return {
        refusal.ASKED: asked(params, check),
        refusal.MACHINE: [*machine(params, check, seen), *said[refusal.MACHINE]],
        refusal.REBOOT: [*strays.stuck(seen), *said[refusal.REBOOT]],
    }


def main() -> None:
    """Observe, judge, report."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    try:
        found = look(module.params, module.check_mode)
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        module.fail_json(msg=f"preflight: {type(error).__name__}: {error}")
    verdict = refusal.judge(found)
    if verdict != refusal.OK:
        module.fail_json(msg=refusal.told(found), verdict=verdict)
    module.exit_json(changed=False, verdict=verdict)


if __name__ == "__main__":
    main()

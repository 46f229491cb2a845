"""Tell the node what the inventory asks of it; the node says what speaks against it."""

from __future__ import annotations

import errno
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from pd import generation, project, refusal, rules_machine
from pd.problem import Problem
from pd.spec import instance_args

NO_SPACE = os.strerror(errno.ENOSPC)


class ActionModule(ActionBase):
    """Ports with the line that gives each, the model, the release."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        told = task_vars or {}
        root = Path(told["playbook_dir"])
        spec = project.read_spec(root, told.get("ansible_inventory_sources") or [], told["groups"], told["hostvars"])
        models = {engine.vars["engine_model_path"]: spec.where(engine, "model_name") for engine in spec.engines}
        asked = {
            "ports": [asdict(port) for instance in spec.instances for port in rules_machine.located_ports(spec, instance)],
            "units": [generation.unit(instance.name, instance.role) for instance in spec.instances],
            "models": [{"path": path, "where": where} for path, where in models.items()],
            "made": told["model_source"] != "path",
            "release": None if told.get("pd_rollback") else project.release_of(root, told),
            "device": spec.engines[0].vars["engine_device"],
            "floor_mib": told["pd_disk_floor_mib"],
            "commands": told["pd_preflight_commands"],
            "flags": [
                {"flag": flag, "value": str(value), "where": spec.where_arg(one, flag)}
                for one in spec.engines
                for flag, value in instance_args(one).items()
            ],
        }
        seen = self._execute_module(module_args=asked, task_vars=told)
        if seen.get("failed") and "verdict" not in seen and NO_SPACE in str(seen):
            # so full that not even the module could be put there
            full = Problem(str(told["inventory_hostname"]), "disk", f"{NO_SPACE}: not even this check could be written", "free some space")
            seen = {"failed": True, "verdict": refusal.MACHINE, "msg": refusal.told({refusal.MACHINE: [full]})}
        return {**result, **seen}

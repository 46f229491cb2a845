"""Tell the node what the inventory asks of it; the node says what speaks against it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from pd import project, rules_machine
from pd.spec import instance_args


class ActionModule(ActionBase):  # type: ignore[misc]
    """Ports with the line that gives each, the model, the release."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The module's answer."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        told = task_vars or {}
        root = Path(told["playbook_dir"])
        spec = project.read_spec(root, told.get("ansible_inventory_sources") or [], told["groups"], told["hostvars"])
        engine = spec.engines[0]
        asked = {
            "ports": [asdict(port) for instance in spec.instances for port in rules_machine.located_ports(spec, instance)],
            "model": {
                "path": engine.vars["engine_model_path"],
                "source": told["model_source"],
                "where": spec.where(engine, "model_name"),
            },
            "release": project.release_of(root, told),
            "device": engine.vars["engine_device"],
            "flags": [
                {"flag": flag, "value": str(value), "where": spec.where_arg(one, flag)}
                for one in spec.engines
                for flag, value in instance_args(one).items()
            ],
        }
        return {**result, **self._execute_module(module_args=asked, task_vars=told)}

"""The configs that an inventory of this repository leads to, by Ansible's own variables and the product's own rendering."""

from pathlib import Path
from typing import Any

from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar
from ansible.vars.manager import VariableManager
from pd.generation import Member
from pd.members import members
from pd.spec import from_hostvars

ROOT = Path(__file__).resolve().parents[2]
OURS = ("engine_", "router_", "ansible_host")


def inventory(name: str) -> tuple[Member, ...]:
    """Every instance of inventory/`name`, as it would be rendered into a generation."""
    loader = DataLoader()
    loader.set_basedir(str(ROOT))
    hosts = InventoryManager(loader=loader, sources=[str(ROOT / "inventory" / name)])
    manager = VariableManager(loader=loader, inventory=hosts)
    hostvars: dict[str, dict[str, Any]] = {}
    for host in hosts.get_hosts():
        raw = manager.get_vars(host=host, include_hostvars=False)
        template = Templar(loader=loader, variables=raw).template
        hostvars[host.name] = {key: template(value) for key, value in raw.items() if key.startswith(OURS)}
    return members(from_hostvars(hosts.get_groups_dict(), hostvars, {}), release="r1")

"""What an inventory asks for, as plain data: the instances, their variables, and what their processes get.

Built from Ansible's `groups` and `hostvars` by `from_hostvars`, judged by `inventory.check`. The keys the product adds
itself (PD_GENERATION, disaggregation-mode, ...) are not in here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .sources import Sources

PREFILL, DECODE, ROUTER = "prefill", "decode", "router"
GROUP_OF_ROLE = {PREFILL: "prefill", DECODE: "decode", ROUTER: "routers"}
ALIASES = {
    "tensor-parallel-size": "tp-size",
    "pipeline-parallel-size": "pp-size",
    "data-parallel-size": "dp-size",
    "attention-data-parallel-size": "attn-dp-size",
    "attention-context-parallel-size": "attn-cp-size",
    "decode-context-parallel-size": "dcp-size",
    "moe-data-parallel-size": "moe-dp-size",
    "expert-parallel-size": "ep-size",
    "ep": "ep-size",
    "nccl-init-addr": "dist-init-addr",
    "model": "model-path",
}
"""Second spellings of SGLang 0.5.23's flags (srt/arg_groups/fields/parallel.py, model.py)."""
_RANK = {"all": 0, "pd": 1, "engines": 1, "nodes": 1, "routers": 1, "prefill": 3, "decode": 3}
"""Any other group, such as `lab`, ranks 2: above the common ones, below a role's own (by depth, then priority)."""


@dataclass(frozen=True)
class Instance:
    """One service. `roles` are those of the groups it is in: one when all is well, none or several when not.

    `groups` are its inventory groups, weakest first; `vars` its variables after templating; `machine` is the inventory
    name of its node.
    """

    name: str
    roles: tuple[str, ...]
    machine: str
    vars: Mapping[str, Any] = field(default_factory=dict)
    groups: tuple[str, ...] = ()

    @property
    def role(self) -> str:
        """The first role, "" for an instance in no role's group."""
        return self.roles[0] if self.roles else ""

    @property
    def is_engine(self) -> bool:
        return self.role in (PREFILL, DECODE)

    @property
    def scopes(self) -> tuple[str, ...]:
        """The groups and the host whose files can set its variables, weakest first."""
        return (*self.groups, self.name)


@dataclass(frozen=True)
class Spec:
    """What `inventory.check` judges. `declared`: the variable names the plays of prefill, decode, router, node know."""

    instances: tuple[Instance, ...]
    nodes: Mapping[str, Mapping[str, Any]]
    declared: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sources: Sources | None = None

    def of(self, *roles: str) -> list[Instance]:
        """The instances of these roles."""
        return [instance for instance in self.instances if instance.role in roles]

    @property
    def engines(self) -> list[Instance]:
        return self.of(PREFILL, DECODE)

    def where(self, instance: Instance, variable: str, *keys: str) -> str:
        """`file:line` that gives this instance this variable (and key), or the file it should be written in."""
        place = self.sources.where(variable, *keys, scopes=instance.scopes) if self.sources else None
        group = GROUP_OF_ROLE.get(instance.role)
        return place or (f"group_vars/{group}.yml ({instance.name})" if group else f"inventory ({instance.name})")

    def where_arg(self, instance: Instance, flag: str) -> str:
        """`where` of an argument, whichever dictionary and spelling it is set in: the role's, else the common one."""
        for variable in reversed(arg_variables(instance)):
            for written in dictionary(instance, variable):
                if arg_name(written) == flag:
                    return self.where(instance, variable, str(written))
        return self.where(instance, arg_variables(instance)[-1], flag)

    def where_env(self, instance: Instance, name: str) -> str:
        """`where` of an environment knob: the role's dictionary, else the common one."""
        given = [variable for variable in env_variables(instance) if name in dictionary(instance, variable)]
        return self.where(instance, given[-1] if given else env_variables(instance)[-1], name)


def instance_env(instance: Instance) -> dict[str, str]:
    """The knobs of an instance as text, the role's over the common ones. `check` names those that have no text."""
    return {
        str(name): str(value) if isinstance(value, (str, int)) else repr(value)
        for variable in env_variables(instance)
        for name, value in dictionary(instance, variable).items()
        if isinstance(value, (str, int, float)) and not isinstance(value, bool)
    }


def instance_args(instance: Instance) -> dict[str, Any]:
    """The arguments of an instance under SGLang's own names with dashes, the role's over the common ones.

    `false` stays in: SGLang's --config leaves such a flag out (sglang-facts 1.3).
    """
    return {
        arg_name(name): value
        for variable in arg_variables(instance)
        for name, value in dictionary(instance, variable).items()
    }


def arg_name(name: object) -> str:
    """The one spelling of a flag: dashes, and the first of its aliases."""
    dashed = str(name).replace("_", "-")
    return ALIASES.get(dashed, dashed)


def env_variables(instance: Instance) -> tuple[str, ...]:
    """The variables with its environment, weakest first."""
    return ("router_env",) if instance.role == ROUTER else ("engine_common_env", "engine_env")


def arg_variables(instance: Instance) -> tuple[str, ...]:
    """The variables with its arguments, weakest first."""
    return ("router_args",) if instance.role == ROUTER else ("engine_common_args", "engine_args")


def dictionary(instance: Instance, variable: str) -> Mapping[Any, Any]:
    """A variable that should be a dictionary; empty when it is not (`check` names that)."""
    value = instance.vars.get(variable)
    return value if isinstance(value, Mapping) else {}


def number(value: object) -> int | None:
    """An integer given as a number or as its text, else None. A boolean is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None


def from_hostvars(
    groups: Mapping[str, Sequence[str]],
    hostvars: Mapping[str, Mapping[str, Any]],
    declared: Mapping[str, Iterable[str]],
    sources: Sources | None = None,
) -> Spec:
    """The spec of an inventory. An instance runs on the node with its ansible_host (by default a host's own name)."""
    members = {role: set(groups.get(group, ())) for role, group in GROUP_OF_ROLE.items()}
    nodes = {name: hostvars[name] for name in groups.get("nodes", ())}
    machine_at = {str(values.get("ansible_host", name)): name for name, values in nodes.items()}
    hosts = [
        host for group in ("pd", "engines", *GROUP_OF_ROLE.values(), "ungrouped") for host in groups.get(group, ())
    ]
    instances = tuple(
        Instance(
            name=host,
            roles=tuple(role for role, names in members.items() if host in names),
            machine=machine_at.get(str(hostvars[host].get("ansible_host", host)), ""),
            vars=hostvars[host],
            groups=_groups_of(host, groups),
        )
        for host in dict.fromkeys(hosts)
        if host not in nodes
    )
    return Spec(instances, nodes, {role: frozenset(names) for role, names in declared.items()}, sources)


def _groups_of(host: str, groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The groups of a host, weakest first (`_RANK`)."""
    mine = {group for group, names in groups.items() if host in names and group != "ungrouped"} | {"all"}
    return tuple(sorted(mine, key=lambda group: (_RANK.get(group, 2), group)))

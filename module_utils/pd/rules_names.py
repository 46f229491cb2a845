"""Rules on names: roles, groups, variables, and the keys of the knob dictionaries."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import MappingProxyType

from . import envfile, kernels, knobs
from .generation import IDENTITY
from .problem import Problem
from .spec import GROUP_OF_ROLE, ROUTER, Instance, Spec, arg_name, arg_variables, dictionary, env_variables

RESERVED_ENGINE_ARGS = MappingProxyType(
    {
        "model-path": "engine_model_path",
        "served-model-name": "engine_served_model_name",
        "api-key": "pd_api_key",
        "host": "engine_host",
        "port": "engine_port",
        "device": "engine_device",
        "base-gpu-id": "engine_gpus",
        "gpu-id-step": "engine_gpus",
        "disaggregation-bootstrap-port": "engine_bootstrap_port",
        "disaggregation-mode": "the inventory: the group prefill or decode",
        "config": "engine_args, engine_common_args: they become the --config file",
    }
)
RESERVED_ROUTER_ARGS = MappingProxyType(
    {
        "api-key": "pd_api_key",
        "host": "router_host",
        "port": "router_port",
        "prometheus-host": "router_metrics_host",
        "prometheus-port": "router_metrics_port",
        "pd-disaggregation": "nothing: it is always on",
        "prefill": "the inventory: the group prefill",
        "decode": "the inventory: the group decode",
        "mini-lb": "nothing: it is for debugging, without health checks or retries (sglang-facts 5.3)",
    }
)
RESERVED_ENV = MappingProxyType(
    {
        "SPT_NOENV": "nothing: always set, without it a knob cannot be seen in the ranks (sglang-facts 2.7)",
        "SGLANG_EXPOSE_OWN_ENV_VARS": "nothing: always set on engines (sglang-facts 2.7)",
        "CUDA_VISIBLE_DEVICES": "engine_gpus",
        **dict.fromkeys((kernels.WANTED, kernels.REPORTS), "engine_kernels"),
        **dict.fromkeys(IDENTITY, "nothing: it names the generation, which is computed"),
    }
)
FORBIDDEN_ENV = MappingProxyType(
    {
        "SGL_FORCE_SHUTDOWN": (
            "it makes SIGTERM skip the drain (sglang-facts 2.5)",
            "nothing: the playbooks drain first",
        ),
        "PROMETHEUS_MULTIPROC_DIR": (
            "its files are never cleaned, so counters survive restarts (sglang-facts 2.7)",
            "nothing: SGLang makes a directory of its own",
        ),
        "SGLANG_PLUGINS": (
            "it is a list of the only plugins to load: one typo leaves the others out silently (sglang-facts 7.1)",
            "nothing: installed plugins are loaded; leave out the package instead",
        ),
        "CUDA_DEVICE_MAX_CONNECTIONS": ("SGLang overwrites it with 8 (sglang-facts 2.7)", "nothing: it has no effect"),
    }
)
SCOPE_ROLES = MappingProxyType(
    {
        "nodes": ("node",),
        "engines": ("prefill", "decode"),
        "prefill": ("prefill",),
        "decode": ("decode",),
        "routers": ("router",),
    }
)
"""Which plays read a group's variables; any other group's (all, pd, lab) may be for all of them."""
_ARGUMENT = re.compile(r"[a-z][a-z0-9_-]*")


def every_role(spec: Spec) -> Iterator[Problem]:
    for role, group in GROUP_OF_ROLE.items():
        if not spec.of(role):
            yield Problem(
                "inventory",
                f"group {group}",
                f"no instance: a set needs a {role}",
                f"a host, such as {role}0, in the group {group}",
            )


def one_role(spec: Spec) -> Iterator[Problem]:
    groups = ", ".join(GROUP_OF_ROLE.values())
    for instance in spec.instances:
        if len(instance.roles) != 1:
            found = (
                f"in the groups of {' and '.join(instance.roles)}"
                if instance.roles
                else f"in none of the groups {groups}"
            )
            yield Problem("inventory", instance.name, found, f"the host {instance.name} in exactly one of {groups}")
        if instance.machine not in spec.nodes:
            address = instance.vars.get("ansible_host", instance.name)
            found = f"on no machine: no host of the group nodes has its ansible_host {address}"
            yield Problem(
                "inventory",
                instance.name,
                found,
                "the same ansible_host on the instance and on its machine in the group nodes",
            )


def known_names(spec: Spec) -> Iterator[Problem]:
    """Top-level variables no play reads: misspelt, or in the file of a group that has no use for them."""
    everything = frozenset().union(*spec.declared.values())
    hosts = {instance.name: instance.roles for instance in spec.instances}
    for place in spec.sources.variables() if spec.sources and everything else ():
        name = place.path[0]
        if name.startswith("ansible_"):
            continue
        roles = SCOPE_ROLES.get(place.scope) or hosts.get(place.scope) or ("node",) * (place.scope in spec.nodes)
        here = frozenset().union(*(spec.declared.get(role, frozenset()) for role in roles)) if roles else everything
        if name not in everything:
            guess = difflib.get_close_matches(name, sorted(here), 1, 0.6) or difflib.get_close_matches(
                name, sorted(everything), 1, 0.6
            )
            yield Problem(
                str(place),
                name,
                "a variable that nothing reads: it would be ignored silently",
                guess[0] if guess else f"nothing: delete {name}",
            )
        elif name not in here:
            owners = " or ".join(sorted(role for role, names in spec.declared.items() if name in names))
            yield Problem(
                str(place),
                name,
                f"a variable of {owners}, which nothing reads for {place.scope}",
                f"{name} in the file of {owners}",
            )


def known_files(spec: Spec) -> Iterator[Problem]:
    """Vars files with a name one letter off: Ansible never reads group_vars/router.yml when the group is `routers`."""
    names = (
        {scope for instance in spec.instances for scope in instance.scopes}
        | set(spec.nodes)
        | {*SCOPE_ROLES, "all", "pd", "lab"}
    )
    for place in spec.sources.variables() if spec.sources else ():
        guess = difflib.get_close_matches(place.scope, sorted(names), 1, 0.8)
        if place.scope not in names and guess:
            file = place.file
            yield Problem(
                file,
                place.scope,
                f"there is no group or host {place.scope}: the file is never read",
                file.replace(place.scope, guess[0]),
            )


def shapes(spec: Spec) -> Iterator[Problem]:
    for instance in _placed(spec):
        for variable in (*env_variables(instance), *arg_variables(instance)):
            value = instance.vars.get(variable, {})
            if value is not None and value is not dictionary(instance, variable) and not isinstance(value, dict):
                yield Problem(
                    spec.where(instance, variable),
                    variable,
                    f"a {type(value).__name__}",
                    f"{variable}: {{}}   or `NAME: value` lines below it",
                )


def environment(spec: Spec) -> Iterator[Problem]:
    """Values and names that would not reach the process as they are."""
    for instance in _placed(spec):
        for variable in env_variables(instance):
            for name, value in dictionary(instance, variable).items():
                where, key = spec.where(instance, variable, str(name)), f"{variable}.{name}"
                wrong = knobs.knob_problems(where, variable, {name: value}) or envfile.problems(
                    {str(name): knobs.canonical(value)}, where
                )
                yield from (Problem(where, key, problem.found, problem.fix) for problem in wrong)


def arguments(spec: Spec) -> Iterator[Problem]:
    for instance in _placed(spec):
        for variable in arg_variables(instance):
            for name, value in dictionary(instance, variable).items():
                where = spec.where(instance, variable, str(name))
                yield from knobs.arg_problems(where, variable, {name: value})
                if not _ARGUMENT.fullmatch(str(name)):
                    fix = str(name).strip().lstrip("-").lower()
                    yield Problem(
                        where,
                        f"{variable}.{name}",
                        "no name of a flag (lower case, no leading dashes, no blanks)",
                        f"{fix}: ...",
                    )


def one_spelling(spec: Spec) -> Iterator[Problem]:
    """tp_size, tp-size and tensor-parallel-size are one flag: of two in one dictionary the winner would be chance."""
    for instance in _placed(spec):
        for variable in arg_variables(instance):
            spellings: dict[str, list[str]] = defaultdict(list)
            for name in dictionary(instance, variable):
                spellings[arg_name(name)].append(str(name))
            for flag, names in spellings.items():
                if len(names) > 1:
                    where = spec.where(instance, variable, names[-1])
                    yield Problem(
                        where,
                        f"{variable}.{names[-1]}",
                        f"the flag {flag} under {len(names)} names: {', '.join(names)}",
                        f"{flag} once",
                    )


def reserved(spec: Spec) -> Iterator[Problem]:
    """Keys that have a variable of their own, or that the product always sets."""
    for instance in _placed(spec):
        args = RESERVED_ROUTER_ARGS if instance.role == ROUTER else RESERVED_ENGINE_ARGS
        for variable, name in _keys(instance, arg_variables(instance)):
            if arg_name(name) in args:
                yield _taken(spec, instance, variable, name, args[arg_name(name)])
        for variable, name in _keys(instance, env_variables(instance)):
            if name in RESERVED_ENV:
                yield _taken(spec, instance, variable, name, RESERVED_ENV[name])


def _taken(spec: Spec, instance: Instance, variable: str, name: str, instead: str) -> Problem:
    return Problem(
        spec.where(instance, variable, name), f"{variable}.{name}", "a key that is set from elsewhere", instead
    )


def forbidden(spec: Spec) -> Iterator[Problem]:
    """Environment names that do something else than their reader thinks."""
    for instance in _placed(spec):
        for variable, name in _keys(instance, env_variables(instance)):
            reason, instead = FORBIDDEN_ENV.get(name, ("", ""))
            if not reason and name.startswith("SGL_"):
                reason = "an old name, which SGLang copies to another one, so it cannot be proven (sglang-facts 4.1)"
                instead = f"SGLANG_{name.removeprefix('SGL_')}"
            if reason:
                yield Problem(spec.where(instance, variable, name), f"{variable}.{name}", reason, instead)


def _placed(spec: Spec) -> Iterable[Instance]:
    """The instances whose role, and so whose variables, are known."""
    return (instance for instance in spec.instances if instance.role)


def _keys(instance: Instance, variables: Iterable[str]) -> Iterator[tuple[str, str]]:
    for variable in variables:
        for name in dictionary(instance, variable):
            yield variable, str(name)

"""Is this inventory fit to be converged? Every mistake in it, found before anything is stopped. Pure.

Each check is a small function `Spec -> problems`; CHECKS names them. The files' mistakes as text (duplicate keys, `yes`
where text is meant) come from `sources` and `knobs`. What only the node knows (sysctls, disk, the model directory)
is checked there; `ports` has its part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from . import knobs, rules_drain, rules_machine, rules_names, rules_pair
from .problem import Problem, report, tidy
from .spec import Instance, Spec, from_hostvars, instance_args, instance_env

__all__ = ["CHECKS", "Instance", "Problem", "Spec", "check", "from_hostvars", "instance_args", "instance_env", "report"]


def files(spec: Spec) -> Iterable[Problem]:
    """Unreadable files and duplicate keys."""
    return spec.sources.problems if spec.sources else ()


def spelling(spec: Spec) -> Iterable[Problem]:
    """Values that YAML reads differently from what is written."""
    return knobs.lint(spec.sources) if spec.sources else ()


CHECKS: Mapping[str, Callable[[Spec], Iterable[Problem]]] = MappingProxyType(
    {
        "files": files,
        "spelling": spelling,
        "every role has an instance": rules_names.every_role,
        "every instance has one role and a machine": rules_names.one_role,
        "every name is known": rules_names.known_names,
        "vars files belong to a group": rules_names.known_files,
        "dictionaries are dictionaries": rules_names.shapes,
        "environment reaches the process": rules_names.environment,
        "arguments are SGLang's": rules_names.arguments,
        "one spelling of an argument": rules_names.one_spelling,
        "nothing the product sets itself": rules_names.reserved,
        "nothing that breaks silently": rules_names.forbidden,
        "GPUs": rules_machine.gpus,
        "GPUs of two instances": rules_machine.gpu_overlap,
        "port numbers": rules_machine.port_numbers,
        "ports of a machine": rules_machine.port_overlap,
        "hosts": rules_machine.hosts,
        "lab stand-ins": rules_machine.stand_ins,
        "model": rules_pair.model,
        "prefill and decode agree": rules_pair.agreement,
        "transfer backend": rules_pair.transfer_backend,
        "chunk and page": rules_pair.chunk_of_pages,
        "keep-alive": rules_pair.keep_alive,
        "router health timeout": rules_pair.router_patience,
        "time to drain": rules_drain.drain_fits,
    }
)


def check(spec: Spec) -> list[Problem]:
    """All problems of an inventory, sorted by file and line; empty when it is fit."""
    written = {(problem.where, problem.key) for problem in spelling(spec)}
    return tidy(
        problem
        for rule in CHECKS.values()
        for problem in rule(spec)
        # What a key's text is said to be wrong with is not said again of the value YAML made of it.
        if rule is spelling or (problem.where, problem.key) not in written
    )

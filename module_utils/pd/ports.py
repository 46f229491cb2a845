"""Every TCP port of an instance, also those SGLang derives, and what collides. Pure; the node passes its sysctls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .problem import Problem
from .spec import PREFILL, ROUTER, Instance, instance_args, number

ZMQ_TCP_PORT_DELTA = 233
"""srt/server_args.py of SGLang 0.5.23: where attention-DP begins to derive ports, from the HTTP port."""
DERIVED_PORTS = 6
"""... and how many follow the rendezvous port (sglang-facts 1.6)."""
FIRST_UNPRIVILEGED = 1024
_ROLE_PORTS = {PREFILL: ("engine_port", "engine_bootstrap_port"), ROUTER: ("router_port", "router_metrics_port")}
_EXTRA_ARGS = ("nccl-port", "grpc-port", "gated-launch-port", "engine-info-bootstrap-port", "smg-http-sidecar-port")


@dataclass(frozen=True)
class Port:
    """One port, the instance that listens on it, and the variable or derivation that gives it (`where`: file:line)."""

    number: int
    instance: str
    name: str
    where: str = "inventory"

    def __str__(self) -> str:
        return f"{self.number} ({self.instance} {self.name})"


def required(instance: Instance) -> tuple[str, ...]:
    """The port variables an instance of its role must have."""
    return _ROLE_PORTS.get(instance.role, ("engine_port",) if instance.is_engine else ())


def ports_of(instance: Instance) -> list[Port]:
    """The ports of an instance, as far as they are numbers (`inventory.check` names those that are not)."""
    args = instance_args(instance)
    given = {name: instance.vars.get(name) for name in required(instance)}
    if instance.is_engine:
        given |= {name: args.get(name) for name in _EXTRA_ARGS}
    found = [Port(n, instance.name, name) for name, value in given.items() if (n := number(value)) is not None]
    return found + (_rendezvous(instance) if instance.is_engine else [])


def _rendezvous(instance: Instance) -> list[Port]:
    """dist-init-addr, and the ports attention-DP derives: 7 in a row, from dist-init-addr or the HTTP port + 233."""
    args = instance_args(instance)
    address = args.get("dist-init-addr")
    base = number(str(address).rpartition(":")[2]) if address is not None else None
    found = [] if base is None else [Port(base, instance.name, "dist-init-addr")]
    if not attention_dp(instance):
        return found
    if base is None:
        http = number(instance.vars.get("engine_port"))
        if http is None:
            return found
        base = http + (ZMQ_TCP_PORT_DELTA if http + ZMQ_TCP_PORT_DELTA <= 65535 else -ZMQ_TCP_PORT_DELTA)
        found = [Port(base, instance.name, "attention-DP rendezvous, engine_port + 233")]
    first = base + 1 if base + DERIVED_PORTS <= 65535 else base - DERIVED_PORTS - 1
    return found + [
        Port(first + n, instance.name, f"attention-DP, derived {n + 1} of {DERIVED_PORTS}")
        for n in range(DERIVED_PORTS)
    ]


def attention_dp(instance: Instance) -> bool:
    """Whether the engine runs data-parallel attention groups inside its tensor-parallel group."""
    args = instance_args(instance)
    return (number(args.get("attn-dp-size")) or 1) > 1 or args.get("enable-dp-attention") is True


def duplicates(ports: Iterable[Port]) -> list[Problem]:
    """Ports of one machine that two want."""
    by_number: dict[int, list[Port]] = defaultdict(list)
    for port in ports:
        by_number[port.number].append(port)
    found = []
    for same in by_number.values():
        for earlier, later in pairwise(same):
            taken = f"port {later.number}, which {earlier.instance} {earlier.name} has ({earlier.where})"
            found.append(Problem(later.where, f"{later.instance}.{later.name}", taken, _advice(later)))
    return found


def _advice(port: Port) -> str:
    if port.name.startswith("attention-DP"):
        return f"dist-init-addr: 127.0.0.1:PORT in engine_args, with {DERIVED_PORTS + 1} free ports from PORT on"
    return f"{port.name}: another port, outside the kernel's ephemeral range"


def ephemeral_conflicts(ports: Iterable[Port], ip_local_port_range: str, reserved: str) -> list[Problem]:
    """Ports the kernel may hand to any outgoing connection (report 018).

    `ip_local_port_range` and `reserved` (ip_local_reserved_ports) are the sysctls' texts: "32768 60999", "80,90-99".
    """
    low, high = (int(word) for word in ip_local_port_range.split())
    kept = _ranges(reserved)
    reason = f"any outgoing connection may hold: in net.ipv4.ip_local_port_range ({low} to {high}), not reserved"
    advice = f"a port below {low}, or put this one in net.ipv4.ip_local_reserved_ports"
    return [
        Problem(port.where, f"{port.instance}.{port.name}", f"port {port.number}, which {reason}", advice)
        for port in ports
        if low <= port.number <= high and not any(first <= port.number <= last for first, last in kept)
    ]


def _ranges(text: str) -> Sequence[tuple[int, int]]:
    pairs = [part.strip().partition("-") for part in text.split(",") if part.strip()]
    return [(int(first), int(last or first)) for first, _, last in pairs]

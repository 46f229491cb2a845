"""Ports: all of an instance, also the derived ones, and what they collide with (report 018)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pd import ports
from pd.ports import Port
from pd.spec import Instance


def engine(role: str = "prefill", port: int = 30000, **args: Any) -> Instance:
    told = {
        "engine_port": port,
        "engine_bootstrap_port": 8998,
        "engine_args": {k.replace("_", "-"): v for k, v in args.items()},
    }
    return Instance(f"{role}0", (role,), "node0", told)


def numbers(instance: Instance) -> list[int]:
    return [port.number for port in ports.ports_of(instance)]


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        (engine(), [30000, 8998]),
        (engine("decode"), [30000]),
        (Instance("router0", ("router",), "n", {"router_port": "30002", "router_metrics_port": 29000}), [30002, 29000]),
        (Instance("x", (), "n", {"engine_port": 1}), []),
        (engine(nccl_port=28000, grpc_port="28001"), [30000, 8998, 28000, 28001]),
        (engine(dist_init_addr="127.0.0.1:25000"), [30000, 8998, 25000]),
        (engine(nccl_init_addr="[::1]:25000"), [30000, 8998, 25000]),
        (engine(dist_init_addr="nonsense"), [30000, 8998]),
        (engine("decode", attn_dp_size=2), [30000, 30233, *range(30234, 30240)]),
        (engine("decode", enable_dp_attention=True), [30000, 30233, *range(30234, 30240)]),
        (engine("decode", enable_dp_attention=False, attn_dp_size=1), [30000]),
        (engine("decode", attn_dp_size=4, dist_init_addr="127.0.0.1:25000"), [30000, *range(25000, 25007)]),
        (engine("decode", 65400, attn_dp_size=2), [65400, 65167, *range(65168, 65174)]),
        (engine("decode", attn_dp_size=2, dist_init_addr="h:65530"), [30000, 65530, *range(65523, 65529)]),
    ],
)
def test_every_port_of_an_instance(instance: Instance, expected: list[int]) -> None:
    """The derivation is that of PortArgs.init_new in SGLang 0.5.23's srt/server_args.py."""
    assert numbers(instance) == expected


def test_ports_that_are_no_numbers_are_left_to_the_check() -> None:
    assert numbers(Instance("d", ("decode",), "n", {"engine_port": True})) == []
    assert numbers(Instance("d", ("decode",), "n", {"engine_port": "x", "engine_args": {"attn-dp-size": 2}})) == []


def test_a_duplicate_names_both_places() -> None:
    found = ports.duplicates(
        [
            Port(30000, "prefill0", "engine_port", "prefill.yml:2"),
            Port(30000, "router0", "router_port", "routers.yml:3"),
        ]
    )
    assert [str(p) for p in found] == [
        "routers.yml:3: router0.router_port\n"
        "    found: port 30000, which prefill0 engine_port has (prefill.yml:2)\n"
        "    write: router_port: another port, outside the kernel's ephemeral range"
    ]


def test_attention_dp_of_neighbouring_ports_collides() -> None:
    """30000 and 30001 derive 30233 to 30239 and 30234 to 30240 (sglang-facts 1.6)."""
    both = [
        *ports.ports_of(engine("prefill", 30000, attn_dp_size=2)),
        *ports.ports_of(engine("decode", 30001, attn_dp_size=2)),
    ]
    found = ports.duplicates(both)
    assert len(found) == 6
    assert all("dist-init-addr" in problem.fix for problem in found)


@pytest.mark.parametrize(
    ("number", "sysctl", "reserved", "conflict"),
    [
        (30000, "32768\t60999", "", False),
        (32767, "32768 60999", "", False),
        (32768, "32768 60999", "", True),
        (60999, "32768 60999", "", True),
        (61000, "32768 60999\n", "\n", False),
        (30000, "10000 61000", "", True),
        (30000, "10000 61000", "30000", False),
        (30000, "10000 61000", "8080,29990-30010\n", False),
        (30011, "10000 61000", "8080, 29990-30010", True),
    ],
)
def test_a_port_in_the_ephemeral_range_must_be_reserved(
    number: int, sysctl: str, reserved: str, conflict: bool
) -> None:
    found = ports.ephemeral_conflicts(
        [Port(number, "decode0", "engine_port", "group_vars/decode.yml:2")], sysctl, reserved
    )
    assert bool(found) is conflict
    for problem in found:
        assert problem.where == "group_vars/decode.yml:2"
        assert str(number) in problem.found
        assert "ip_local_reserved_ports" in problem.fix


@settings(deadline=None)
@given(st.lists(st.integers(1, 20), max_size=12))
def test_there_is_a_duplicate_for_each_port_too_many(given_ports: list[int]) -> None:
    found = ports.duplicates([Port(n, f"i{at}", "engine_port") for at, n in enumerate(given_ports)])
    assert len(found) == len(given_ports) - len(set(given_ports))

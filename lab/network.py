"""The guests' network: one bridge, one nftables table, one subnet that nothing else here uses.

The bridge keeps the outer address: the outer end of a guest's own link is made anew at each reboot (lab-facts).
What is changed is written down in `paths.NETWORK` before it is changed, and undone when the last machine goes.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

from lab import paths
from lab.errors import HostError
from lab.host import run

BRIDGE = "pdlab0"
TABLE = "pdlab"
IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")
SLOTS = range(2, 255)
"""Host parts of guest addresses: .1 is the bridge."""


@dataclass(frozen=True)
class Network:
    """The subnet in use, and `ip_forward` as it was before."""

    subnet: IPv4Network
    ip_forward_before: str

    @property
    def gateway(self) -> IPv4Address:
        """The bridge's own address."""
        return self.subnet[1]


def candidates() -> Iterator[IPv4Network]:
    """Private /24 networks, the least popular ones first."""
    for second in (*range(211, 254), *range(101, 211)):
        yield IPv4Network(f"10.{second}.77.0/24")
    yield from (IPv4Network(f"172.{second}.77.0/24") for second in range(31, 15, -1))
    yield from (IPv4Network(f"192.168.{third}.0/24") for third in range(250, 1, -1))


def free_subnet(taken: Iterable[IPv4Network]) -> IPv4Network:
    """The first candidate that overlaps nothing in `taken`. Raises HostError when there is none."""
    used = list(taken)
    for candidate in candidates():
        if not any(candidate.overlaps(network) for network in used):
            return candidate
    raise HostError("no free private /24: every candidate overlaps an address or a route (`ip route show table all`)")


def networks_in(
    addresses: Iterable[dict[str, Any]], routes: Iterable[dict[str, Any]], resolv_conf: str
) -> list[IPv4Network]:
    """What this machine reaches already: `ip -j address`, `ip -j route show table all` and the name servers.

    The default route reaches everything and rules nothing out; its gateway is in a connected network anyway.
    """
    words = [f"{info['local']}/{info['prefixlen']}" for link in addresses for info in link.get("addr_info", ())]
    words += [word for route in routes for word in (route["dst"], route.get("gateway", ""))]
    words += [line.split()[1] for line in resolv_conf.splitlines() if line.startswith("nameserver ")]
    return [ipaddress.IPv4Network(word, strict=False) for word in words if word[:1].isdigit() and ":" not in word]


def nat_rules(subnet: IPv4Network) -> str:
    """An nft script that (re)makes the lab's table in one step; no other table is touched."""
    return f"""
add table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {subnet} oifname != "{BRIDGE}" masquerade
  }}
}}
"""


def dropping_chains(listing: dict[str, Any]) -> list[str]:
    """Chains of `nft -j list chains` that drop forwarded packets (Docker makes one); no table overrules them."""
    chains = [item["chain"] for item in listing["nftables"] if "chain" in item]
    return [
        f"table {chain['family']} {chain['table']}, chain {chain['name']}"
        for chain in chains
        if chain.get("hook") == "forward" and chain.get("policy") == "drop"
    ]


def load() -> Network | None:
    """The network that is written down, if any."""
    data = paths.read_json(paths.NETWORK)
    return Network(IPv4Network(data["subnet"]), data["ip_forward_before"]) if data else None


def ensure(note: Callable[[str], None]) -> Network:
    """Bring the network up, or make sure that it is. The caller holds the lock `state`."""
    network = load()
    up = _link_exists(BRIDGE)
    if network is None or not up:
        network = Network(free_subnet(_taken()), IP_FORWARD.read_text().strip())
        paths.write_json(paths.NETWORK, {"subnet": str(network.subnet), "ip_forward_before": network.ip_forward_before})
    if not up:
        run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    run(["ip", "address", "replace", f"{network.gateway}/{network.subnet.prefixlen}", "dev", BRIDGE])
    run(["ip", "link", "set", BRIDGE, "up"])
    run(["nft", "-f", "-"], stdin=nat_rules(network.subnet))
    IP_FORWARD.write_text("1\n")
    for chain in dropping_chains(json.loads(run(["nft", "-j", "list", "chains"]).stdout)):
        note(f"{chain} drops forwarded packets: guests have no internet until it lets {BRIDGE} pass")
    return network


def release() -> None:
    """Undo `ensure`, in reverse. The caller holds the lock `state` and knows that no machine is left."""
    network = load()
    if network is None:
        return
    if _link_exists(BRIDGE):
        IP_FORWARD.write_text(f"{network.ip_forward_before}\n")
    run(["nft", "-f", "-"], stdin=f"add table ip {TABLE}\ndelete table ip {TABLE}\n")
    delete_link(BRIDGE)
    paths.NETWORK.unlink()


def delete_link(name: str) -> None:
    """Delete a link if it is there."""
    if _link_exists(name):
        # check=False: the kernel removes a dead guest's link by itself, maybe right now
        run(["ip", "link", "delete", name], check=False)


def _link_exists(name: str) -> bool:
    return run(["ip", "link", "show", name], check=False).returncode == 0


def _taken() -> list[IPv4Network]:
    addresses = json.loads(run(["ip", "-j", "-4", "address"]).stdout or "[]")
    routes = json.loads(run(["ip", "-j", "-4", "route", "show", "table", "all"]).stdout or "[]")
    return networks_in(addresses, routes, Path("/etc/resolv.conf").read_text())

"""Facts of hosts that several families of findings ask for. Pure."""

from ipaddress import ip_address, ip_network
from typing import NamedTuple

from clusterip.diagnosis.doctor.known import Key, Known
from clusterip.diagnosis.findings import Evidence

# Interfaces whose addresses are not the machine's own: bridges and tunnels of network plugins, Docker, IPVS.
_NOT_OWN = (
    *("lo", "kube-ipvs", "cni", "cip", "flannel", "docker", "br-", "veth", "cali", "tunl", "vxlan", "weave"),
    *("cilium", "lxc", "nodelocaldns", "dummy", "virbr"),
)


def setting(known: Known, name: str) -> tuple[int | None, tuple[Evidence, ...]]:
    """A sysctl's value and where it is said; (None, ()) where it was not given."""
    for source in known.settings:
        number = source.values.number(name)
        if number is not None:
            return number, (source.at(source.values.lines.get(name, 0), f"{name} = {number}"),)
    return None, ()


def node_addresses(known: Known) -> dict[str, tuple[str, Evidence]]:
    """Addresses that nodes have for themselves -> whose, and where it is said."""
    found: dict[str, tuple[str, Evidence]] = {}
    for source in known.interfaces:
        for interface in source.values.interfaces:
            if interface.name.startswith(_NOT_OWN):
                continue
            for address in interface.addresses:
                if address.scope not in ("link", "host"):
                    text = f"{interface.name} has {address.address}/{address.length}"
                    found[address.address] = ("this node", source.at(address.line, text))
    for name, node in known.nodes.items():
        for given in node.status.addresses:
            if given.type in ("InternalIP", "ExternalIP"):
                text = f"node {name}: {given.type} {given.address}"
                found[given.address] = (f"node {name}", known.evidence("Node", Key("", name), text))
    return found


class Leaving(NamedTuple):
    """The route that a packet to some address takes."""

    device: str
    source: str  # that the host's own packets get by it; "": the first of the device
    place: Evidence
    via: str = ""  # the router; "": it is behind the device itself


def route_to(known: Known, address: str) -> Leaving | None:
    """The most specific one; None where none was given."""
    best: tuple[int, Leaving] | None = None
    for given in known.routes:
        for route in given.values.routes:
            length = _length(route.destination, address)
            if length < 0 or not route.hops or route.table not in ("main", "default"):
                continue
            if length == 0 and route.hops[0].gateway and (":" in route.hops[0].gateway) != (":" in address):
                continue  # both families call it "default"
            if best is None or length > best[0]:
                hop = route.hops[0]
                text = f"{route.destination} dev {hop.device}" + (f" src {route.source}" if route.source else "")
                best = (length, Leaving(hop.device, route.source, given.at(route.line, text), hop.gateway))
    return best[1] if best else None


def neighbours(known: Known, client: str, backend: str) -> tuple[Leaving, ...]:
    """The routes to both, where they lead to neighbours on a link outside; (): they do not, or nothing tells."""
    one, other = route_to(known, client), route_to(known, backend)
    if one is None or other is None or one.via or other.via or one.device != other.device:
        return ()
    return () if client == backend or one.device.startswith(_NOT_OWN) else tuple(dict.fromkeys((one, other)))


def _length(destination: str, address: str) -> int:
    """Of the prefix that holds the address; -1: it does not."""
    if destination == "default":
        return 0
    try:
        network, wanted = ip_network(destination, strict=False), ip_address(address)
    except ValueError:
        return -1
    return network.prefixlen if network.version == wanted.version and wanted in network else -1

"""Where node ports answer, today and in nftables mode. Pure."""

from collections.abc import Iterator, Sequence

from clusterip.diagnosis.doctor.hostfacts import node_addresses, setting
from clusterip.diagnosis.doctor.known import Known
from clusterip.diagnosis.doctor.programmed import Programmed
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.model.status import Object

NAMED = 12


def find(known: Known, programs: Sequence[Programmed], mode: str) -> Iterator[Finding]:
    ports = _node_ports(known, programs)
    if not ports:
        return
    given = _configuration(known)
    if not given.get("nodePortAddresses"):
        yield from _addresses(known, mode, ports)
    section = given.get("iptables")
    localhost = not isinstance(section, dict) or section.get("localhostNodePorts") is not False
    if mode == "iptables" and localhost:
        yield from _loopback(known, ports)


def _configuration(known: Known) -> Object:
    return next((c.values.document for c in known.of_kind("KubeProxyConfiguration")), {})


def _node_ports(known: Known, programs: Sequence[Programmed]) -> dict[int, str]:
    """Node ports, and the Service of each; as the API has them, else as the rules do."""
    found = {
        port.node_port: f"{key}:{port.name}" if port.name else f"{key}"
        for key, service in known.services.items()
        for port in service.spec.ports or ()
        if port.node_port
    }
    return found or {p.frontend.port: p.name for p in programs if not p.frontend.address}


def _addresses(known: Known, mode: str, ports: dict[int, str]) -> Iterator[Finding]:
    """All of the node's today, unless nodePortAddresses says otherwise; then the primary one of each family."""
    primary = {
        a.address
        for name, node in known.nodes.items()
        for a in node.status.addresses
        if a.type == "InternalIP" and known.node in ("", name)
    }
    today = _served(known, mode, ports)
    lost = {address: place for address, place in today.items() if address not in primary}
    if not lost:
        return
    shown = ", ".join(f"{port} ({name})" for port, name in sorted(ports.items())[:NAMED])
    kept = ", ".join(sorted(a for a in today if a in primary)) or "the node's InternalIP"
    message = f"Node ports {shown} answer on every address of the node today. In nftables mode nodePortAddresses means "
    message += f"the primary address alone where it is not set: {kept}. "
    message += f"{', '.join(sorted(lost))} would stop answering." if primary else "Which one that is was not told."
    remedy = "nodePortAddresses: [0.0.0.0/0, '::/0'] in the proxy's configuration keeps them all"
    yield Finding("move-node-ports", "W", "node ports", message, tuple(lost.values())[:NAMED], None, remedy)


def _served(known: Known, mode: str, ports: dict[int, str]) -> dict[str, Evidence]:
    """As the virtual servers have it; where there are none, all that the node has."""
    if mode == "ipvs" and known.ipvs:
        found = {
            s.frontend.address: source.at(s.line, f"virtual server {s.frontend.address}:{s.frontend.port}")
            for source in known.ipvs
            for s in source.values.services
            if s.frontend.port in ports and s.frontend.address
        }
        of_services = {a for s in known.services.values() for a in (s.spec.cluster_ip, *s.spec.cluster_ips)}
        return {address: place for address, place in found.items() if address not in of_services}
    addresses = {
        address.address: source.at(address.line, f"{interface.name} has {address.address}")
        for source in known.interfaces
        for interface in source.values.interfaces
        for address in interface.addresses
        if address.scope not in ("link", "host")
    }
    return addresses or {address: place for address, (_, place) in node_addresses(known).items()}


def _loopback(known: Known, ports: dict[int, str]) -> Iterator[Finding]:
    """iptables mode alone serves them there, by route_localnet."""
    value, said = setting(known, "net.ipv4.conf.all.route_localnet")
    if value == 0:
        return
    shown = ", ".join(f"127.0.0.1:{port} ({name})" for port, name in sorted(ports.items())[:NAMED])
    message = (
        f"A process of the node reaches {shown} today. No node port answers on a loopback address in nftables mode."
    )
    remedy = "let such clients (a registry mirror, a health check) use the node's own address"
    yield Finding("move-localhost-node-ports", "W", "node ports on 127.0.0.1", message, said, None, remedy)

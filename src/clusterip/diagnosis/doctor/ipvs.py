"""Faults that only IPVS has. Pure."""

from collections.abc import Iterator
from fractions import Fraction

from clusterip.diagnosis.doctor.backends import members
from clusterip.diagnosis.doctor.hostfacts import setting
from clusterip.diagnosis.doctor.known import Key, Known, Sourced
from clusterip.diagnosis.doctor.programmed import Frontend, names_by_address
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.diagnosis.packet import socket
from clusterip.rulesets import ipvs

NAMED = 5  # connections that are shown


def find(known: Known) -> Iterator[Finding]:
    names = names_by_address(known)
    for source in known.ipvs:
        for service in source.values.services:
            yield from _weights(known, source, service, names)
            yield from _persistent(known, source, service, names)
    yield from _port_reuse(known)


def _object(service: ipvs.VirtualService, names: dict[Frontend, str]) -> str:
    protocol, address, port = service.frontend
    frontend = Frontend(protocol.lower(), address, port)
    return f"service {names[frontend]}" if frontend in names else f"virtual server {frontend}"


# --- weights ----------------------------------------------------------------------------------------------------------


def _weights(
    known: Known, source: Sourced[ipvs.Services], service: ipvs.VirtualService, names: dict[Frontend, str]
) -> Iterator[Finding]:
    quiet = [s for s in service.servers if s.weight == 0]
    alive = [s for s in service.servers if s.weight != 0]
    ready, held = _endpoints(known)
    protocol, address, port = service.frontend
    flag = {"TCP": "-t", "UDP": "-u"}.get(protocol, "--sctp-service")
    for server in quiet:
        backend = socket(server.address, server.port)
        place = source.at(service.line, f"{protocol} {socket(address, port)}: {backend} weight 0")
        if backend in ready:
            message = f"{backend} is ready in its slice and has weight 0: IPVS gives it no new connection. "
            message += (
                "No other server is left, so all are refused."
                if not alive
                else (f"The other {len(alive)} get them all.")
            )
            remedy = f"ipvsadm -e {flag} {socket(address, port)} -r {backend} -m -w 1   # then upgrade kube-proxy"
            yield Finding(
                "ipvs-weight-zero",
                "E",
                _object(service, names),
                message,
                (place, ready[backend]),
                Fraction(1) if not alive else None,
                remedy,
            )
        elif not service.persistent and (server.active or server.inactive or backend in held):
            message = f"{backend} has weight 0 and {server.active or 0} connections: it keeps them and gets no new one "
            message += "until they end. This is how kube-proxy lets a backend go, not a fault."
            yield Finding("draining", "I", _object(service, names), message, (place,))
    if quiet and not alive and not any(socket(s.address, s.port) in ready for s in quiet):
        message = "Every server has weight 0: new connections are refused."
        evidence = (source.at(service.line, f"{protocol} {socket(address, port)}"),)
        yield Finding("no-endpoints", "E", _object(service, names), message, evidence, Fraction(1),
                      "kubectl get endpointslices -A | grep " + address)  # fmt: skip


def _endpoints(known: Known) -> tuple[dict[str, Evidence], frozenset[str]]:
    """The ready ones, and where it is said; and all."""
    ready: dict[str, Evidence] = {}
    held: set[str] = set()
    for s in known.slices:
        for _, endpoint, backend in members(s):
            held.add(backend)
            if endpoint.conditions.ready is not False and not endpoint.conditions.terminating:
                name = Key(s.metadata.namespace, s.metadata.name)
                ready[backend] = known.evidence("EndpointSlice", name, f"slice {s.metadata.name}: {backend} is ready")
    for key, endpoints in known.endpoints.items():
        for subset in endpoints.subsets or ():
            for a in subset.addresses:
                for p in subset.ports:
                    ready[socket(a.ip, p.port)] = known.evidence("Endpoints", key, f"{a.ip} is ready")
    return ready, frozenset(held | ready.keys())


def _persistent(
    known: Known, source: Sourced[ipvs.Services], service: ipvs.VirtualService, names: dict[Frontend, str]
) -> Iterator[Finding]:
    quiet = [s for s in service.servers if s.weight == 0]
    if not service.persistent or not quiet:
        return
    value, said = setting(known, "net.ipv4.vs.expire_quiescent_template")
    if value == 1:
        return
    gone = ", ".join(socket(s.address, s.port) for s in quiet)
    alive = ", ".join(socket(s.address, s.port) for s in service.servers if s.weight != 0)
    protocol, address, port = service.frontend
    message = (
        f"Clients that are remembered (persistent {service.persistent} s) keep going to {gone}, which has weight 0: "
    )
    message += f"all of their new connections. Others go to {alive or 'nobody'}. "
    message += "net.ipv4.vs.expire_quiescent_template=1 would make IPVS forget them" + (
        f"; it is {value}." if value is not None else "; what it is here was not given."
    )
    place = source.at(
        service.line, f"{protocol} {socket(address, port)} persistent {service.persistent}; {gone} weight 0"
    )
    yield Finding(
        "ipvs-persistent-quiescent",
        "E" if value == 0 else "W",
        _object(service, names),
        message,
        (place, *said),
        None,
        "sysctl -w net.ipv4.vs.expire_quiescent_template=1",
    )


def _port_reuse(known: Known) -> Iterator[Finding]:
    value, said = setting(known, "net.ipv4.vs.conn_reuse_mode")
    conntrack, _ = setting(known, "net.ipv4.vs.conntrack")
    stuck = tuple(_stuck(known))
    if value == 1 and conntrack != 0:
        message = "net.ipv4.vs.conn_reuse_mode=1: the first SYN of a client that uses a source port again within two "
        message += "minutes is dropped, and the client waits a second (kernels before 5.9)."
        remedy = "sysctl -w net.ipv4.vs.conn_reuse_mode=0   # or a kernel from 5.9 on"
    elif value == 0 or stuck:
        message = "A client that uses a source port again while IPVS remembers the old connection is sent to the "
        message += "server "
        message += "it had before, also when that has weight 0 or is gone: no route to host, or a timeout."
        message += " net.ipv4.vs.conn_reuse_mode is 0." if value == 0 else ""
        remedy = "a kernel from 5.9 on, and sysctl -w net.ipv4.vs.conn_reuse_mode=1"
    else:
        return
    evidence = (*stuck[:NAMED], *said)
    yield Finding("ipvs-port-reuse", "W", "setting net.ipv4.vs.conn_reuse_mode", message, evidence, None, remedy)


def _stuck(known: Known) -> Iterator[Evidence]:
    """Connections that are over and still lead to a server that gets no new one."""
    alive = {
        (s.frontend, server.address, server.port)
        for source in known.ipvs
        for s in source.values.services
        for server in s.servers
        if server.weight != 0
    }
    frontends = {frontend for frontend, _, _ in alive}
    for source in known.ipvs_connections:
        for c in source.values.connections:
            frontend = ipvs.Frontend(c.protocol, c.virtual, c.virtual_port)
            over = c.state in ("TIME_WAIT", "FIN_WAIT", "CLOSE", "CLOSE_WAIT", "LAST_ACK")
            if over and frontend in frontends and (frontend, c.destination, c.destination_port) not in alive:
                text = f"{c.protocol} {c.state} {socket(c.client, c.client_port)} -> "
                text += f"{socket(c.virtual, c.virtual_port)}"
                yield source.at(c.line, f"{text} -> {socket(c.destination, c.destination_port)}")

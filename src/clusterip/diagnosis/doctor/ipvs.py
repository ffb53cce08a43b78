"""Faults that only IPVS has. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from clusterip.diagnosis.doctor.backends import members
from clusterip.diagnosis.doctor.hostfacts import setting
from clusterip.diagnosis.doctor.known import Key, Known, Sourced
from clusterip.diagnosis.doctor.programmed import Frontend, names_by_address
from clusterip.diagnosis.findings import Evidence, Finding, Level
from clusterip.diagnosis.packet import socket
from clusterip.rulesets import ipvs

NAMED = 5  # connections that are shown


def find(known: Known) -> Iterator[Finding]:
    names = names_by_address(known)
    api = _endpoints(known)
    for source in known.ipvs:
        for service in source.values.services:
            of = _Virtual(source, service, _object(service, names))
            yield from _weights(known, of, api)
            yield from _persistent(known, of)
    yield from _port_reuse(known)


@dataclass(frozen=True, slots=True)
class _Virtual:
    """A virtual service, where it stands, and what a finding names."""

    source: Sourced[ipvs.Services]
    service: ipvs.VirtualService
    object: str

    @property
    def frontend(self) -> str:
        return socket(self.service.frontend.address, self.service.frontend.port)

    def at(self, text: str) -> Evidence:
        return self.source.at(self.service.line, f"{self.service.frontend.protocol} {self.frontend}{text}")


def _object(service: ipvs.VirtualService, names: Mapping[Frontend, str]) -> str:
    protocol, address, port = service.frontend
    frontend = Frontend(protocol.lower(), address, port)
    return f"service {names[frontend]}" if frontend in names else f"virtual server {frontend}"


class _Endpoints(NamedTuple):
    """What the API says of backends."""

    ready: Mapping[str, Evidence]  # and where it says so
    held: frozenset[str]  # ready or not


def _endpoints(known: Known) -> _Endpoints:
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
    return _Endpoints(ready, frozenset(held | ready.keys()))


# --- weights ----------------------------------------------------------------------------------------------------------


def _weights(known: Known, of: _Virtual, api: _Endpoints) -> Iterator[Finding]:
    servers = of.service.servers
    quiet = [(socket(s.address, s.port), s) for s in servers if s.weight == 0]
    alive = len(servers) - len(quiet)
    for backend, server in quiet:
        if backend in api.ready:
            yield _forgotten(known, of, backend, alive, api.ready[backend])
        elif not of.service.persistent and (server.active or server.inactive or backend in api.held):
            message = f"{backend} has weight 0 and {server.active or 0} connections: it keeps them and gets no new one "
            message += "until they end. This is how a proxy lets a backend go, not a fault."
            yield Finding("draining", "I", of.object, message, (of.at(f": {backend} weight 0"),))
    if quiet and not alive and not any(backend in api.ready for backend, _ in quiet):
        message = "Every server has weight 0: new connections are refused."
        remedy = f"kubectl get endpointslices -A | grep {quiet[0][1].address}"
        yield Finding("no-endpoints", "E", of.object, message, (of.at(""),), Fraction(1), remedy)


def _forgotten(known: Known, of: _Virtual, backend: str, alive: int, ready: Evidence) -> Finding:
    message = f"{backend} is ready in its slice and has weight 0: IPVS gives it no new connection. "
    message += f"The other {alive} get them all." if alive else "No other server is left, so all are refused."
    flag = {"TCP": "-t", "UDP": "-u"}.get(of.service.frontend.protocol, "--sctp-service")
    remedy = f"ipvsadm -e {flag} {of.frontend} -r {backend} -m -w 1   # then restart or upgrade {known.proxy.name}"
    evidence = (of.at(f": {backend} weight 0"), ready)
    share = None if alive else Fraction(1)
    return Finding("ipvs-weight-zero", "E", of.object, message, evidence, share, remedy)


def _persistent(known: Known, of: _Virtual) -> Iterator[Finding]:
    service = of.service
    quiet = [s for s in service.servers if s.weight == 0]
    if not service.persistent or not quiet:
        return
    value, said = setting(known, "net.ipv4.vs.expire_quiescent_template")
    if value == 1:
        return
    gone = ", ".join(socket(s.address, s.port) for s in quiet)
    alive = ", ".join(socket(s.address, s.port) for s in service.servers if s.weight != 0)
    message = f"Clients that are remembered (persistent {service.persistent} s) keep going to {gone}, which has "
    message += f"weight 0: all of their new connections. Others go to {alive or 'nobody'}. "
    message += "net.ipv4.vs.expire_quiescent_template=1 would make IPVS forget them; "
    message += f"it is {value}." if value is not None else "what it is here was not given."
    evidence = (of.at(f" persistent {service.persistent}; {gone} weight 0"), *said)
    remedy = "sysctl -w net.ipv4.vs.expire_quiescent_template=1"
    level: Level = "E" if value == 0 else "W"
    yield Finding("ipvs-persistent-quiescent", level, of.object, message, evidence, None, remedy)


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
        message += "server it had before, also when that has weight 0 or is gone: no route to host, or a timeout."
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

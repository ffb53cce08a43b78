"""Faults that only IPVS has. Pure."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from ipaddress import ip_address

from clusterip.diagnosis.doctor.backends import members
from clusterip.diagnosis.doctor.hostfacts import node_addresses, setting
from clusterip.diagnosis.doctor.known import Key, Known, Sourced
from clusterip.diagnosis.doctor.programmed import Frontend, Programmed, names_by_address
from clusterip.diagnosis.findings import Evidence, Finding, Level
from clusterip.diagnosis.packet import socket
from clusterip.rulesets import ipvs
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt

DEVICE = "kube-ipvs0"  # carries every Service address, so that packets to it are taken for the node's own
ADDRESSES = "KUBE-IPVS-IPS"
BY_PORT = ("KUBE-CLUSTER-IP", "KUBE-LOAD-BALANCER", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL")
FILTER = "KUBE-IPVS-FILTER"
LOOPBACK = "KUBE-LOOP-BACK"


def find(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    names = names_by_address(known)
    for source in known.ipvs:
        for service in source.values.services:
            yield from _weights(known, source, service, names)
            yield from _persistent(known, source, service, names)
    yield from _port_reuse(known)
    yield from _conflicts(known)
    yield from _filter(known)
    yield from _loopback(known)


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
    conntrack, more = setting(known, "net.ipv4.vs.conntrack")
    if not said or not (known.ipvs or more) or value is None:
        return
    if value == 1 and conntrack != 0:
        message = "net.ipv4.vs.conn_reuse_mode=1: a client that uses a source port again within two minutes waits one "
        message += "second, because IPVS drops the first SYN (kernels before 5.9)."
        remedy = "sysctl -w net.ipv4.vs.conn_reuse_mode=0   # or a kernel from 5.9 on"
    elif value == 0:
        message = "net.ipv4.vs.conn_reuse_mode=0: a client that uses a source port again is sent to the server it had "
        message += "before, also when that has weight 0 or is gone."
        remedy = "a kernel from 5.9 on, and sysctl -w net.ipv4.vs.conn_reuse_mode=1"
    else:
        return
    yield Finding("ipvs-port-reuse", "W", "setting net.ipv4.vs.conn_reuse_mode", message, (*said, *more), None, remedy)


# --- addresses --------------------------------------------------------------------------------------------------------


def _conflicts(known: Known) -> Iterator[Finding]:
    """Addresses on the dummy interface that belong to a node: traffic to that node never leaves this one."""
    owners = node_addresses(known)
    for source in known.interfaces:
        for interface in source.values.interfaces:
            if interface.name != DEVICE:
                continue
            taken = [(a, owners[a.address]) for a in interface.addresses if a.address in owners]
            if not taken:
                continue
            shown = ", ".join(f"{a.address} ({owner[0]})" for a, owner in taken)
            services = sorted({name for a, _ in taken for name in _services_at(known, a.address)})
            message = (
                f"{DEVICE} carries {shown}, which are addresses of nodes. This node answers for them itself, so the "
            )
            message += (
                "kubelet (10250), ssh and the network plugin's tunnels of those nodes cannot be reached from here."
            )
            message += f" They come from {', '.join(services)}." if services else ""
            evidence = [source.at(a.line, f"inet {a.address}/{a.length} {DEVICE}") for a, _ in taken]
            evidence += [owner[1] for _, owner in taken]
            remedy = (
                f"take them out of spec.externalIPs or the load balancer status of {', '.join(services)}"
                if (services)
                else "take them out of the Services' spec.externalIPs"
            )
            yield Finding("ipvs-address-conflict", "E", f"interface {DEVICE}", message, tuple(evidence), None, remedy)


def _services_at(known: Known, address: str) -> Iterator[str]:
    for key, service in known.services.items():
        ingress = [i.ip for i in service.status.load_balancer.ingress or ()]
        if address in (*service.spec.external_ips, *ingress):
            yield str(key)


def _filter(known: Known) -> Iterator[Finding]:
    """KUBE-IPVS-FILTER refuses what no Service port claims, on addresses that are a node's own as well."""
    rule = next(_filter_rules(known), None)
    sets = {name: (source, s) for source in known.ipsets for name, s in source.values.sets.items()}
    if rule is None or ADDRESSES not in sets:
        return
    owners = node_addresses(known)
    source, held = sets[ADDRESSES]
    addresses = [m.parts[0] for m in held.members]
    external = {m.parts[0] for n in BY_PORT[1:] if n in sets for m in sets[n][1].members}
    for address in addresses:
        if address not in external and address not in owners:
            continue
        ports = ", ".join(sorted({m.parts[1] for n in BY_PORT if n in sets for m in sets[n][1].members
                                  if m.parts[0] == address}))  # fmt: skip
        sure = address in owners
        owner = (
            f"{address} is an address of {owners[address][0]}"
            if sure
            else (f"{address} is a Service's external address; if a node has it as its own (ip addr was not given)")
        )
        evidence = (rule, source.at(held.line, f"{ADDRESSES} holds {address}"), *([owners[address][1]] if sure else ()))
        message = (
            f"{owner}, {'and' if sure else 'then'} {FILTER} rejects everything new to it but {ports or 'nothing'}: "
        )
        message += "ssh, the API server, the kubelet."
        remedy = f"let the load balancer give an address that no node has; ip -4 addr | grep {address} tells"
        level: Level = "E" if sure else "W"
        yield Finding("ipvs-address-conflict", level, f"address {address}", message, evidence, None, remedy)
        yield Finding(
            "ipvs-filter-rejects-host",
            level,
            f"filter/{FILTER}",
            f"Since 1.26 this chain rejects what no Service port claims on an address in {ADDRESSES}, as {address} is. "
            "A ping of a Service address is rejected by it as well, by design.",
            evidence,
            None,
            remedy,
        )


def _filter_rules(known: Known) -> Iterator[Evidence]:
    for source in known.iptables:
        for number, rule in enumerate(source.values.ruleset.rules("filter", FILTER)):
            asks = any(isinstance(m, ipt.InSet) and m.name.endswith(ADDRESSES) for m in rule.matches)
            if asks and isinstance(rule.target, (ipt.Reject, ipt.Drop)):
                yield source.rule("filter", FILTER, number, line_text(FILTER, rule))


def _loopback(known: Known) -> Iterator[Finding]:
    """A backend that reaches itself needs its own triple in KUBE-LOOP-BACK."""
    sets = {name: (source, s) for source in known.ipsets for name, s in source.values.sets.items()}
    if LOOPBACK not in sets or not known.ipvs:
        return
    source, held = sets[LOOPBACK]
    have = {(m.parts[0], m.parts[1].partition(":")[2]) for m in held.members if len(m.parts) == 3}
    local = {a.address for s in known.interfaces for i in s.values.interfaces for a in i.addresses}
    lacking = sorted(
        {
            socket(server.address, server.port)
            for of in known.ipvs
            for service in of.values.services
            for server in service.servers
            if (server.address, str(server.port)) not in have
            and _is_pod(known, server.address)
            and (server.address not in local)
        }
    )
    if not lacking:
        return
    message = f"{', '.join(lacking[:5])} {'is' if len(lacking) == 1 else 'are'} not in {LOOPBACK}: such a pod does not "
    message += "reach itself through its Service, because its reply does not come back through this node."
    evidence = (source.at(held.line, f"{LOOPBACK} holds {len(have)} members"),)
    remedy = "kubectl rollout restart daemonset/kube-proxy -n kube-system"
    yield Finding("ipvs-loopback-missing", "E", f"ipset {LOOPBACK}", message, evidence, None, remedy)


def _is_pod(known: Known, address: str) -> bool:
    """A pod of the node whose IPVS this is: only those stand in the set."""
    if not known.node:
        return False
    pods = {ip.ip for p in known.pods if p.spec.node_name == known.node for ip in p.status.pod_ips}
    return address in pods and ip_address(address).version in (4, 6)

"""Addresses and masquerade in IPVS mode: whose packets the node takes for its own, and whose source it hides. Pure."""

from collections.abc import Iterator
from fractions import Fraction

from clusterip.diagnosis.doctor.hostfacts import node_addresses, route_to, setting
from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.diagnosis.findings import Evidence, Finding, Level
from clusterip.diagnosis.packet import socket
from clusterip.rulesets.ipset import IPSet, IPSets
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt

DEVICE = "kube-ipvs0"  # carries every Service address, so that packets to it are taken for the node's own
ADDRESSES = "KUBE-IPVS-IPS"
BY_PORT = ("KUBE-CLUSTER-IP", "KUBE-LOAD-BALANCER", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL")
FILTER = "KUBE-IPVS-FILTER"
LOOPBACK = "KUBE-LOOP-BACK"
MARK = "KUBE-MARK-MASQ"
_OF_PODS = ("cali", "veth", "cni", "cbr", "cip", "lxc", "docker", "br-")


def find(known: Known) -> Iterator[Finding]:
    yield from _conflicts(known)
    yield from _filter(known)
    yield from _loopback(known)
    yield from _loopback_rule(known)
    yield from _host_masquerade(known)


def _sets(known: Known) -> dict[str, tuple[Sourced[IPSets], IPSet]]:
    return {name: (source, held) for source in known.ipsets for name, held in source.values.sets.items()}


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
            message = f"{DEVICE} carries {shown}, which are addresses of nodes. This node answers for them itself, so "
            message += "the kubelet (10250), ssh and the network plugin's tunnels of those nodes cannot be reached "
            message += "from here."
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
    sets = _sets(known)
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
        message = f"{owner}, {'and' if sure else 'then'} {FILTER} rejects everything new to it but "
        message += f"{ports or 'nothing'}: ssh, the API server, the kubelet."
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


# --- masquerade -------------------------------------------------------------------------------------------------------


def _loopback(known: Known) -> Iterator[Finding]:
    """A pod that is given itself needs its own triple in KUBE-LOOP-BACK; only pods of this node stand in it."""
    sets = _sets(known)
    if LOOPBACK not in sets or not known.ipvs:
        return
    source, held = sets[LOOPBACK]
    have = {(m.parts[0], m.parts[1].partition(":")[2]) for m in held.members if len(m.parts) == 3}
    servers = {
        (server.address, server.port)
        for of in known.ipvs
        for service in of.values.services
        for server in service.servers
    }
    lacking = sorted(s for s in servers if (s[0], str(s[1])) not in have)
    local = [s for s in lacking if _is_local(known, s[0])]
    if not local and (have or not lacking):
        return  # those that are not in it may be of other nodes
    shown = ", ".join(socket(*s) for s in (local or lacking)[:5])
    message = f"{shown} {'is' if len(local or lacking) == 1 else 'are'} not in {LOOPBACK}: a pod that is given itself "
    message += "by its own Service is not masqueraded, answers itself directly, and waits until it gives up."
    message += "" if local else " The set is empty; that is right only if none of these pods is on this node."
    evidence = (source.at(held.line, f"{LOOPBACK} holds {len(have)} members"),)
    level: Level = "E" if local else "W"
    yield Finding("ipvs-loopback-missing", level, f"ipset {LOOPBACK}", message, evidence, None, known.proxy.restart())


def _loopback_rule(known: Known) -> Iterator[Finding]:
    """The set alone does nothing: a rule of KUBE-POSTROUTING asks for it."""
    for source in known.iptables:
        rules = source.values.ruleset.rules("nat", "KUBE-POSTROUTING")
        if not known.ipvs or not rules or source.values.told_by == "listing":
            continue
        asks = any(isinstance(m, ipt.InSet) and m.name.endswith(LOOPBACK) for rule in rules for m in rule.matches)
        if not asks and LOOPBACK in _sets(known):
            message = f"No rule of KUBE-POSTROUTING asks for {LOOPBACK}: a pod that is given itself by its own "
            message += "Service is not masqueraded, answers itself directly, and waits until it gives up."
            evidence = (source.rule("nat", "KUBE-POSTROUTING", 0, line_text("KUBE-POSTROUTING", rules[0])),)
            yield Finding(
                "ipvs-loopback-missing", "E", "nat/KUBE-POSTROUTING", message, evidence, None, known.proxy.restart()
            )


def _is_local(known: Known, address: str) -> bool:
    """A pod of the node that the dump is of: by its object, or by a route to a pod's own interface."""
    if known.node and any(
        p.spec.node_name == known.node and address in {ip.ip for ip in p.status.pod_ips} for p in known.pods
    ):
        return True
    route = route_to(known, address)
    return route is not None and route.device.startswith(_OF_PODS)


def _host_masquerade(known: Known) -> Iterator[Finding]:
    """Of the host's own packets the kernel takes the ClusterIP as their source, as kube-ipvs0 has it."""
    value, said = setting(known, "net.ipv4.vs.conntrack")
    if value == 0:
        message = "net.ipv4.vs.conntrack is 0 and must be 1: without it nothing that IPVS sends on is masqueraded, "
        message += "so clients that are no pods, this host among them, get no answer from other nodes."
        remedy = "sysctl -w net.ipv4.vs.conntrack=1"
        name = "setting net.ipv4.vs.conntrack"
        yield Finding("ipvs-host-masquerade-missing", "E", name, message, said, Fraction(1), remedy)
    for source in known.iptables:
        nat = source.values.ruleset.tables.get("nat")
        if nat is None or not known.ipvs or source.values.told_by == "listing" or "KUBE-SERVICES" not in nat.chains:
            continue
        marks = any(
            isinstance(rule.target, ipt.Jump) and rule.target.chain == MARK
            for rule in nat.rules("KUBE-SERVICES")
            if any(isinstance(m, ipt.InSet) and m.name.endswith("CLUSTER-IP") for m in rule.matches)
        )
        hides = any(isinstance(rule.target, ipt.Masquerade) for rule in nat.rules("KUBE-POSTROUTING"))
        if marks and hides:
            continue
        what = (
            f"no rule of KUBE-SERVICES sends KUBE-CLUSTER-IP to {MARK}"
            if not marks
            else ("KUBE-POSTROUTING masquerades nothing")
        )
        message = "In IPVS mode the host's own packets to a ClusterIP carry the ClusterIP as their source, because "
        message += f"{DEVICE} has it. They must be masqueraded, and {what}: this host reaches no backend on another "
        message += "node."
        chain = "KUBE-POSTROUTING" if marks else "KUBE-SERVICES"
        evidence = (Evidence(f"nat/{chain}: {what}", source.file),)
        yield Finding(
            "ipvs-host-masquerade-missing", "E", f"nat/{chain}", message, evidence, None, known.proxy.restart()
        )

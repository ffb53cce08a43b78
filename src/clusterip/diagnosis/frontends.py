"""Which addresses are a Service's: told by the API where it is known, else by what proxies write beside their rules."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from clusterip.diagnosis.facts import Facts
from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.nft import values as n

_COMMENT = re.compile(r"([a-z0-9.-]+)/([a-z0-9.-]+)(?::([a-z0-9-]*))? (?:cluster IP|has no (?:local )?endpoints)")
_OUTSIDE = re.compile(r"([a-z0-9.-]+)/([a-z0-9.-]+)(?::([a-z0-9-]*))? (external|loadbalancer) IP")
_CHAIN = re.compile(r"(service|external|firewall)-[A-Z0-9]{8}-([^/]+)/([^/]+)/(tcp|udp|sctp)/(.*)")
_ELEMENT = re.compile(r"([a-z0-9.-]+)/([a-z0-9.-]+)(?::([a-z0-9-]+))?")


class Frontend(NamedTuple):
    address: str
    port: int
    protocol: str  # "tcp"
    kind: str  # "clusterIP", "external"
    namespace: str = ""  # "": the rules do not tell whose it is
    service: str = ""
    port_name: str = ""

    @property
    def name(self) -> str:
        """ "default/web:http"."""
        if not self.service:
            return ""
        return f"{self.namespace}/{self.service}" + (f":{self.port_name}" if self.port_name else "")


def frontends(facts: Facts) -> tuple[Frontend, ...]:
    found: dict[tuple[str, int, str], Frontend] = {}
    for one in (*_of_objects(facts), *_of_iptables(facts), *_of_nft(facts), *_of_ipvs(facts)):
        found.setdefault((one.address, one.port, one.protocol), one)
    return tuple(found.values())


def _of_objects(facts: Facts) -> Iterator[Frontend]:
    for service in facts.services:
        spec, meta = service.spec, service.metadata
        own = [a for a in spec.cluster_ips or (spec.cluster_ip,) if a not in ("", "None")]
        balancers = [i.ip for i in service.status.load_balancer.ingress or () if i.ip]
        for port in spec.ports or ():
            rest = (meta.namespace, meta.name, port.name)
            for address in own:
                yield Frontend(address, port.port, port.protocol.lower(), "clusterIP", *rest)
            for address in (*spec.external_ips, *balancers):
                yield Frontend(address, port.port, port.protocol.lower(), "external", *rest)


def _of_iptables(facts: Facts) -> Iterator[Frontend]:
    for given in facts.iptables:
        for table, chain in (
            ("nat", "KUBE-SERVICES"),
            ("filter", "KUBE-SERVICES"),
            ("filter", "KUBE-EXTERNAL-SERVICES"),
        ):
            for rule in given.ruleset.rules(table, chain):
                if found := _of_rule(rule, external=chain == "KUBE-EXTERNAL-SERVICES"):
                    yield found


def _of_rule(rule: v.Rule, *, external: bool) -> Frontend | None:
    address, port, protocol = "", 0, ""
    for match in rule.matches:
        match match:
            case v.Destination(network, False) if lone := v.lone_address(network):
                address = lone
            case v.Ports(destination=v.PortRange() as ports, destination_negated=False):
                port, protocol = ports.first, match.protocol
    if not (address and port):
        return None
    told = _COMMENT.match(rule.comment)
    if told is None or external:
        told = _OUTSIDE.match(rule.comment) or told
        kind = "external"
    else:
        kind = "clusterIP"
    names = (told[1], told[2], told[3] or "") if told else ()
    return Frontend(address, port, protocol, kind, *names)


def _of_nft(facts: Facts) -> Iterator[Frontend]:
    for given in facts.nft:
        for table in given.ruleset:
            own = _addresses(table.sets.get("cluster-ips"))
            for name in ("service-ips", "no-endpoint-services", "no-endpoints"):
                for element in table.sets[name].elements if name in table.sets else ():
                    match element:
                        case n.Element(n.Concat((n.Address(address), n.Word(protocol), n.Number(port)))):
                            kind = "clusterIP" if address in own else "external"
                            yield Frontend(address, port, protocol, kind, *_names(element))


def _addresses(named: n.Set | None) -> set[str]:
    return {e.key.text for e in named.elements if isinstance(e.key, n.Address)} if named else set()


def _names(element: n.Element) -> tuple[str, ...]:
    match element.value:
        case n.Goto(chain) | n.Jump(chain) if told := _CHAIN.match(chain):
            return told[2], told[3], told[5]
    if told := _ELEMENT.fullmatch(element.comment):
        return told[1], told[2], told[3] or ""
    return ()


def _of_ipvs(facts: Facts) -> Iterator[Frontend]:
    for service in facts.ipvs.services if facts.ipvs else ():
        protocol, address, port = service.frontend
        if address:
            yield Frontend(address, port, protocol.lower(), "clusterIP")

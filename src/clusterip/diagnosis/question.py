"""What a person asks: from where, to where. Names are looked up among the objects and rules at hand."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.frontends import Frontend
from clusterip.diagnosis.walk.surroundings import within
from clusterip.errors import BadInput
from clusterip.model.objects import Pod
from clusterip.services.table import FAMILIES, Family

SOURCE_HINT = "write it like pod:10.244.1.7, node, node:192.168.50.11, outside:203.0.113.9, or a pod's name"
DESTINATION_HINT = "write it like 10.96.0.20:80/tcp, web.default:80 or icmp:10.96.0.20"

_KINDS = ("pod", "node", "outside")
_TRANSPORTS = frozenset({"tcp", "udp", "sctp"})
_ICMP = {"icmp": "icmp", "icmp6": "ipv6-icmp", "icmpv6": "ipv6-icmp"}
_FOUR_NUMBERS = re.compile(r"\d+(\.\d+){3}")  # an address, right or wrong: no Service is called so
_HOST = re.compile(r"\[(?P<six>[^\[\]]+)\](?::(?P<port>[^:/]+))?|(?P<host>[^:\[\]]+)(?::(?P<other>[^:/]+))?")


@dataclass(frozen=True, slots=True)
class Client:
    kind: Literal["pod", "node", "outside"]
    address: str  # canonical; "": the node's own, whichever routing takes
    port: int = 0  # 0: any that is free
    interface: str | None = None  # it comes in by; None: not said
    name: str = ""  # "pod default/web-1"


@dataclass(frozen=True, slots=True)
class Target:
    protocol: str  # "tcp", "udp", "sctp", "icmp", "ipv6-icmp"
    address: str  # canonical
    port: int = 0


class _Host(NamedTuple):
    host: str
    port: str  # "": none given


def families(source: str, destination: str, facts: Facts, frontends: Iterable[Frontend]) -> tuple[Family, ...]:
    """Those that a question can be asked over: an address says its own, a Service's name all that it has, its own
    first one first. Never none: where nothing tells, the question itself finds out what is wrong."""
    kind, colon, rest = source.partition(":")
    given = _family_of(rest if colon and kind in _KINDS else source)
    named = _families_of(destination, facts, frontends)
    return (given,) if given and given in named else named


def _families_of(destination: str, facts: Facts, frontends: Iterable[Frontend]) -> tuple[Family, ...]:
    kind, colon, rest = destination.partition(":")
    ping = bool(colon) and kind in _ICMP
    host = rest if ping else _host(_transport(destination)[0], destination, DESTINATION_HINT).host
    if family := _family_of(host):
        return (family,)
    name, namespace = _service_name(host)
    for service in facts.services:
        if (service.metadata.namespace, service.metadata.name) == (namespace, name):
            own = service.spec.cluster_ips or (service.spec.cluster_ip,)
            return tuple(f for a in own if (f := _family_of(a))) or ("IPv4",)
    held = {_family_of(f.address) for f in frontends if (f.namespace, f.service) == (namespace, name)}
    return tuple(f for f in FAMILIES if f in held) or ("IPv4",)


def _family_of(text: str) -> Family | None:
    """ "10.244.1.7", "10.244.1.7:4000", "[fd00::1]:80"; None: it is no address."""
    found = _HOST.fullmatch(text) if text.count(":") < 2 or text.startswith("[") else None
    address = _address((found["six"] or found["host"]) if found else text)
    return ("IPv6" if ":" in address else "IPv4") if address else None


def client(text: str, facts: Facts, *, ipv6: bool = False, interface: str | None = None) -> Client:
    """Raises BadInput. `ipv6` says which of a pod's addresses counts."""
    kind, colon, rest = text.partition(":")
    if kind == "node" and not colon:
        return Client("node", _own_address(facts, ipv6=ipv6), interface=interface)
    if kind in _KINDS and colon:
        place, port = _host(rest, text, SOURCE_HINT)
        if _address(place):
            number = _port(port, text, SOURCE_HINT) if port else 0
            return Client(_kind(kind), _address(place), number, interface, _name_of(place, facts))
        if kind != "pod":
            raise BadInput(f"source {text!r}: {place!r} is no IP address", hint=SOURCE_HINT)
        return _pod(rest, facts, ipv6=ipv6, interface=interface)
    place, port = _host(text, text, SOURCE_HINT)
    if address := _address(place):
        number = _port(port, text, SOURCE_HINT) if port else 0
        return Client(_guessed(address, facts), address, number, interface, _name_of(address, facts))
    return _pod(text, facts, ipv6=ipv6, interface=interface)


def target(text: str, facts: Facts, frontends: Iterable[Frontend], *, ipv6: bool = False) -> Target:
    """Raises BadInput."""
    kind, colon, rest = text.partition(":")
    if kind in _ICMP and colon:
        address = _address(rest.strip("[]")) or _service_address(rest, frontends, ipv6=ipv6)
        if not address:
            raise BadInput(f"destination {text!r}: {rest!r} is no IP address", hint=DESTINATION_HINT)
        return Target("ipv6-icmp" if ":" in address else "icmp", address)
    place, wanted = _transport(text)
    host, port = _host(place, text, DESTINATION_HINT)
    if address := _address(host):
        if not port:
            return _only_port(text, address, wanted, [f for f in frontends if f.address == address])
        return Target(wanted or "tcp", address, _port(port, text, DESTINATION_HINT))
    if _FOUR_NUMBERS.fullmatch(host):
        raise BadInput(f"destination {text!r}: {host!r} is no IP address", hint=DESTINATION_HINT)
    return _named(text, host, port, wanted, tuple(frontends), ipv6=ipv6)


def _transport(text: str) -> tuple[str, str]:
    """ "10.96.0.20:80/udp" -> what comes before, "udp". A slash before any port divides a namespace from a name."""
    place, slash, last = text.rpartition("/")
    if last.lower() in _TRANSPORTS and slash:
        return place, last.lower()
    if ":" in place:
        raise BadInput(f"destination {text!r}: {last!r} is not tcp, udp or sctp", hint=DESTINATION_HINT)
    return text, ""


def _named(text: str, host: str, port: str, protocol: str, frontends: Iterable[Frontend], *, ipv6: bool) -> Target:
    """A Service by its name, a port of it by name or number."""
    name, namespace = _service_name(host)
    both = [f for f in frontends if (f.namespace, f.service) == (namespace, name) and f.kind == "clusterIP"]
    ours = [f for f in both if (":" in f.address) == ipv6]
    if both and not ours:
        has = ", ".join(sorted({f.address for f in both}))
        raise BadInput(f"destination {text!r}: the Service has no IPv{6 if ipv6 else 4} address", hint=f"it has {has}")
    if not ours:
        known = ", ".join(sorted({f"{f.service}.{f.namespace}" for f in frontends if f.service})[:5])
        raise BadInput(
            f"destination {text!r}: no Service {namespace}/{name} in what was given",
            hint=f"known are {known}" if known else "give manifests with -f, --kubeconfig, or an address",
        )
    if not port:
        return _only_port(text, ours[0].address, protocol, ours)
    for f in ours:
        if port in (str(f.port), f.port_name) and protocol in ("", f.protocol):
            return Target(f.protocol, f.address, f.port)
    if port.isdecimal():
        return Target(protocol or "tcp", ours[0].address, _port(port, text, DESTINATION_HINT))
    raise BadInput(f"destination {text!r}: the Service has no port {port!r}", hint=_ports_of(ours))


def _only_port(text: str, address: str, protocol: str, frontends: list[Frontend]) -> Target:
    ours = [f for f in frontends if protocol in ("", f.protocol)]
    if len({(f.port, f.protocol) for f in ours}) == 1:
        return Target(ours[0].protocol, address, ours[0].port)
    raise BadInput(f"destination {text!r}: which port?", hint=_ports_of(ours) if ours else DESTINATION_HINT)


def _ports_of(frontends: Iterable[Frontend]) -> str:
    return "it has " + ", ".join(sorted({f"{f.port}/{f.protocol}" for f in frontends}))


def _service_address(text: str, frontends: Iterable[Frontend], *, ipv6: bool) -> str:
    name, namespace = _service_name(text)
    return next(
        (
            f.address
            for f in frontends
            if (f.namespace, f.service, f.kind) == (namespace, name, "clusterIP") and (":" in f.address) == ipv6
        ),
        "",
    )


def _service_name(host: str) -> tuple[str, str]:
    """ "web", "web.default", "web.default.svc.cluster.local", "default/web" -> name, namespace."""
    if "/" in host:
        namespace, _, name = host.partition("/")
        return name, namespace
    parts = host.split(".")
    return parts[0], parts[1] if len(parts) > 1 else "default"


def _host(text: str, whole: str, hint: str) -> _Host:
    """ "10.0.0.1:80", "[fd00::1]:80", "fd00::1", "web.default:http"."""
    if text.count(":") > 1 and not text.startswith("["):
        return _Host(text, "")
    found = _HOST.fullmatch(text)
    if found is None:
        raise BadInput(f"{whole!r} cannot be read", hint=hint)
    return _Host(found["six"] or found["host"], found["port"] or found["other"] or "")


def _address(text: str) -> str:
    """Canonical; "" if it is none."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""


def _port(text: str, whole: str, hint: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise BadInput(f"{whole!r}: port {text!r} is not within 1 to 65535", hint=hint)
    return int(text)


def _kind(text: str) -> Literal["pod", "node", "outside"]:
    return "pod" if text == "pod" else "node" if text == "node" else "outside"


def _pod(text: str, facts: Facts, *, ipv6: bool, interface: str | None) -> Client:
    """By "name" or "namespace/name"."""
    namespace, slash, name = text.partition("/")
    if not slash:
        namespace, name = "", text
    found = [p for p in facts.pods if p.metadata.name == name and namespace in ("", p.metadata.namespace)]
    if not found:
        hint = SOURCE_HINT if facts.pods else "no pods are known: give its address, as pod:10.244.1.7"
        raise BadInput(f"source {text!r}: no such pod in what was given", hint=hint)
    if len(found) > 1:
        names = ", ".join(f"{p.metadata.namespace}/{p.metadata.name}" for p in found)
        raise BadInput(f"source {text!r}: several pods are called so", hint=f"say which: {names}")
    address = next((a for a in addresses(found[0]) if (":" in a) == ipv6), "")
    if not address:
        raise BadInput(f"source {text!r}: the pod has no {'IPv6' if ipv6 else 'IPv4'} address yet")
    kind: Literal["pod", "node"] = "node" if found[0].spec.host_network else "pod"
    return Client(kind, address, interface=interface, name=_pod_name(found[0]))


def addresses(pod: Pod) -> list[str]:
    return [a for ip in pod.status.pod_ips if (a := _address(ip.ip))] or [
        a for a in (_address(pod.status.pod_ip),) if a
    ]


def _pod_name(pod: Pod) -> str:
    return f"pod {pod.metadata.namespace}/{pod.metadata.name}"


def _name_of(address: str, facts: Facts) -> str:
    return next((_pod_name(p) for p in facts.pods if not p.spec.host_network and address in addresses(p)), "")


def _guessed(address: str, facts: Facts) -> Literal["pod", "node", "outside"]:
    """What an address without a kind is."""
    own = {a.address for i in (facts.interfaces.interfaces if facts.interfaces else ()) for a in i.addresses}
    if address in own or any(a.address == address for node in facts.nodes for a in node.status.addresses):
        return "node"
    ranges = [r for node in facts.nodes for r in (node.spec.pod_cidr, *node.spec.pod_cidrs) if r]
    in_range = any(within(address, r) for r in ranges)
    return "pod" if in_range or _name_of(address, facts) else "outside"


def _own_address(facts: Facts, *, ipv6: bool) -> str:
    """The node's own, where the API tells it; "": routing will say, or nobody."""
    for node in facts.nodes:
        if node.metadata.name == facts.node or (not facts.node and len(facts.nodes) == 1):
            for found in node.status.addresses:
                if found.type == "InternalIP" and (":" in found.address) == ipv6:
                    return found.address
    return ""

"""Rules for EndpointSlices and legacy Endpoints: conformance 3.1."""

from collections.abc import Collection, Iterator

from clusterip.model import names
from clusterip.model.causes import IMMUTABLE, duplicate, invalid, not_supported, required, too_many
from clusterip.model.status import Cause, Object
from clusterip.model.validation import addresses, meta
from clusterip.model.validation.service import app_protocol, port_number, protocol

ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
MOST_ENDPOINTS = 1000
MOST_PORTS = 20_000
MOST_ADDRESSES = 100  # of one endpoint
MOST_HINTS = 8
MOST_TOPOLOGY_LABELS = 16


def validate_slice(obj: Object, old: Object | None) -> list[Cause]:
    kind = obj.get("addressType") or ""
    causes: list[Cause] = []
    if kind not in ADDRESS_TYPES:
        causes.append(not_supported("addressType", kind, ADDRESS_TYPES) if kind else required("addressType"))
    if old is not None and kind != old.get("addressType"):
        causes.append(invalid("addressType", kind, IMMUTABLE))
    endpoints = obj.get("endpoints") or []
    if len(endpoints) > MOST_ENDPOINTS:
        return [*causes, too_many("endpoints", len(endpoints), MOST_ENDPOINTS)]
    kept = {one for endpoint in (old or {}).get("endpoints") or () for one in endpoint.get("addresses") or ()}
    for index, endpoint in enumerate(endpoints):
        causes += _endpoint(endpoint, f"endpoints[{index}]", kind, kept)
    return [*causes, *_slice_ports(obj.get("ports") or [])]


def _endpoint(endpoint: Object, field: str, kind: str, kept: Collection[str]) -> Iterator[Cause]:
    found = endpoint.get("addresses") or []
    if not found:
        yield required(f"{field}.addresses", "must contain at least 1 address")
    elif len(found) > MOST_ADDRESSES:
        yield too_many(f"{field}.addresses", len(found), MOST_ADDRESSES)
    for index, one in enumerate(found[:MOST_ADDRESSES]):
        if wrong := _address(one, kind, kept):
            yield invalid(f"{field}.addresses[{index}]", one, wrong)
    hostname, node = endpoint.get("hostname"), endpoint.get("nodeName")
    if hostname is not None and (wrong := names.dns_label(hostname)):
        yield invalid(f"{field}.hostname", hostname, wrong)
    if node is not None and (wrong := names.dns_subdomain(node)):
        yield invalid(f"{field}.nodeName", node, wrong)
    topology = endpoint.get("deprecatedTopology") or {}
    if len(topology) > MOST_TOPOLOGY_LABELS:
        yield too_many(f"{field}.deprecatedTopology", len(topology), MOST_TOPOLOGY_LABELS)
    yield from meta.labels(topology, f"{field}.deprecatedTopology")
    hints = endpoint.get("hints") or {}
    yield from _hints(hints.get("forZones") or [], f"{field}.hints.forZones", names.label_value)
    yield from _hints(hints.get("forNodes") or [], f"{field}.hints.forNodes", names.dns_subdomain)


def _address(text: str, kind: str, kept: Collection[str]) -> str:
    match kind:
        case "IPv4" | "IPv6":
            if wrong := addresses.ordinary(text, kept):
                return wrong
            if addresses.family(text) != kind:
                return f"must be an {kind} address"
            return addresses.canonical(text) if kind == "IPv6" and text not in kept else ""
        case "FQDN":
            wrong = names.dns_subdomain(text.removesuffix("."))
            return wrong or ("" if "." in text.removesuffix(".") else "should be a domain with at least two segments")
        case _:
            return ""


def _hints(hints: list[Object], field: str, rule: names.Rule) -> Iterator[Cause]:
    if len(hints) > MOST_HINTS:
        yield too_many(field, len(hints), MOST_HINTS)
        return
    seen: set[str] = set()
    for index, hint in enumerate(hints):
        name = hint.get("name") or ""
        if not name:
            yield required(f"{field}[{index}].name")
        elif name in seen:
            yield duplicate(f"{field}[{index}].name", name)
        elif wrong := rule(name):
            yield invalid(f"{field}[{index}].name", name, wrong)
        seen.add(name)


def _slice_ports(ports: list[Object]) -> Iterator[Cause]:
    if len(ports) > MOST_PORTS:
        yield too_many("ports", len(ports), MOST_PORTS)
        return
    seen: set[str] = set()
    for index, port in enumerate(ports):
        field, name = f"ports[{index}]", port.get("name") or ""
        if name in seen:
            yield duplicate(f"{field}.name", name)
        seen.add(name)
        if name and (wrong := names.dns_label(name)):
            yield invalid(f"{field}.name", name, wrong)
        yield from protocol(port.get("protocol"), f"{field}.protocol")
        yield from app_protocol(port.get("appProtocol"), f"{field}.appProtocol")
        if port.get("port") is not None:
            yield from port_number(port["port"], f"{field}.port")


def validate_endpoints(obj: Object, old: Object | None) -> list[Cause]:
    kept = {address.get("ip", "") for subset in (old or {}).get("subsets") or () for address in _all(subset)}
    causes: list[Cause] = []
    for index, subset in enumerate(obj.get("subsets") or ()):
        causes += _subset(subset, f"subsets[{index}]", kept)
    return causes


def _subset(subset: Object, field: str, kept: Collection[str]) -> Iterator[Cause]:
    if not _all(subset):
        yield required(f"{field}.addresses", "must specify `addresses` or `notReadyAddresses`")
    for group in ("addresses", "notReadyAddresses"):
        for index, one in enumerate(subset.get(group) or ()):
            if wrong := addresses.ordinary(one.get("ip") or "", kept):
                yield invalid(f"{field}.{group}[{index}].ip", one.get("ip"), wrong)
            if one.get("hostname") and (wrong := names.dns_label(one["hostname"])):
                yield invalid(f"{field}.{group}[{index}].hostname", one["hostname"], wrong)
    ports = subset.get("ports") or []
    for index, port in enumerate(ports):
        name = port.get("name") or ""
        if not name and len(ports) > 1:
            yield required(f"{field}.ports[{index}].name")
        elif name and (wrong := names.dns_label(name)):
            yield invalid(f"{field}.ports[{index}].name", name, wrong)
        yield from port_number(port.get("port", 0), f"{field}.ports[{index}].port")
        yield from protocol(port.get("protocol"), f"{field}.ports[{index}].protocol")
        yield from app_protocol(port.get("appProtocol"), f"{field}.ports[{index}].appProtocol")


def _all(subset: Object) -> list[Object]:
    return [*(subset.get("addresses") or ()), *(subset.get("notReadyAddresses") or ())]

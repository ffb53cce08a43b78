"""Services and EndpointSlices in a page's short form, and the API's documents that it stands for.

    Service web:                        # or namespace/name; `gone` deletes it
      clusterIP: [10.96.0.10, fd00:96::a]
      ports: [http 80/tcp node 30080]   # or the API's own mapping
      labels: {...}                     # its metadata's
      ingress: [{ip: 192.0.2.200}]      # its status' load balancer's
      externalTrafficPolicy: Local      # and whatever else its spec has
    Slice web:                          # of the Service of that name; `Slice web-more of web`
      ports: [http 8080/tcp]
      endpoints: [a, b leaving, x for zone z1]
      family: IPv4                      # left out: one slice in each family that the Service has
      labels: {...}

In a later step the fields given are laid over those that were; `null` takes one away.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios.members import FAMILIES, MEMBERS, Member, family_of

from clusterip.errors import BadInput
from clusterip.model.status import Object
from clusterip.services.addresses import canonical_address
from clusterip.services.resolve import SERVICE_NAME_LABEL
from clusterip.services.table import Family

STATES = {
    "ready": {},  # nothing said means ready and serving, not terminating
    "unready": {"ready": False, "serving": False, "terminating": False},
    "leaving": {"ready": False, "serving": True, "terminating": True},
    "gone": {"ready": False, "serving": False, "terminating": True},
    "published": {"ready": True, "serving": True, "terminating": True},
}
SLICE_FIELDS = frozenset(("ports", "endpoints", "family", "labels"))
Short = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """What there is: by namespaced name, in the short form. A slice's Service is `of`."""

    services: Mapping[str, Short] = field(default_factory=dict)
    slices: Mapping[str, Short] = field(default_factory=dict)


def laid_over(before: State, given: Mapping[str, Any]) -> State:
    """Raises BadInput."""
    services, slices = dict(before.services), dict(before.slices)
    for key, value in given.items():
        form = re.fullmatch(r"(Service|Slice) ((?:[\w.-]+/)?[\w.-]+)(?: of ([\w.-]+))?", key)
        if form is None or (form[1] == "Service" and form[3]):
            raise BadInput(f"{key!r}: write 'Service NAME', 'Slice NAME' or 'Slice NAME of SERVICE'")
        name = form[2] if "/" in form[2] else f"default/{form[2]}"
        there = services if form[1] == "Service" else slices
        if value == "gone":
            if there.pop(name, None) is None:
                raise BadInput(f"{key}: there is none that could go")
            continue
        if not isinstance(value, dict):
            raise BadInput(f"{key}: not a mapping of fields, and not 'gone'")
        whole = {**there.get(name, {}), **value}
        there[name] = {field: v for field, v in whole.items() if v is not None}
        if form[1] == "Slice":
            if unknown := there[name].keys() - SLICE_FIELDS - {"of"}:
                raise BadInput(f"{key}: {', '.join(sorted(unknown))}: the fields are {', '.join(sorted(SLICE_FIELDS))}")
            there[name] = {"of": form[3] or name.partition("/")[2], **there[name]}
    after = State(services, slices)
    for _ in documents_of(after):
        pass  # each can be made
    return after


def addresses(service: Short) -> list[str]:
    """The ClusterIPs, canonical where they can be."""
    given = service.get("clusterIP", [])
    return [str(a) for a in (given if isinstance(given, list) else [given])]


def places_of(state: State, name: str) -> Iterator[str]:
    """The ClusterIPs of the Service, canonical."""
    service = state.services.get(name if "/" in name else f"default/{name}", {})
    for text in addresses(service):
        if text != "None":
            yield canonical_address(text, family_of(text)) or text


def families(state: State) -> tuple[Family, ...]:
    found = {family_of(a) for s in state.services.values() for a in addresses(s) if a != "None"}
    return tuple(f for f in FAMILIES if f in found)


def documents_of(state: State) -> Iterator[Object]:
    """As the API has them, Services first, each kind by name. Raises BadInput."""
    for name, short in sorted(state.services.items()):
        yield service(name, short)
    for name, short in sorted(state.slices.items()):
        yield from slices(name, short, state)


def service(name: str, short: Short) -> Object:
    namespace, _, own = name.partition("/")
    spec = {k: v for k, v in short.items() if k not in ("labels", "ingress", "clusterIP", "ports")}
    found = addresses(short)
    if found:
        spec |= {"clusterIP": found[0], "clusterIPs": found}
    spec["ports"] = [_service_port(p) for p in short.get("ports", ())]
    status = {"loadBalancer": {"ingress": short["ingress"]}} if "ingress" in short else {}
    metadata = {"name": own, "namespace": namespace, "labels": short.get("labels", {})}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": "ClusterIP", **spec},
        "status": status,
    }


def _service_port(given: object) -> Object:
    """`80`, `80/udp`, `http 80`, `http 80/tcp node 30080`."""
    if isinstance(given, dict):
        return given
    form = re.fullmatch(r"(?:([\w-]+) )?([0-9]+)(?:/(tcp|udp|sctp))?(?: node ([0-9]+))?", str(given))
    if form is None:
        raise BadInput(f"port {given!r} is not written like 'http 80/tcp node 30080'")
    node_port = {"nodePort": int(form[4])} if form[4] else {}
    return {"name": form[1] or "", "port": int(form[2]), "protocol": (form[3] or "tcp").upper(), **node_port}


def slices(name: str, short: Short, state: State) -> Iterator[Object]:
    namespace, _, own = name.partition("/")
    owner = state.services.get(f"{namespace}/{short['of']}", {})
    has = [f for f in FAMILIES if f in {family_of(a) for a in addresses(owner) if a != "None"}]
    wanted: list[str] = [short["family"]] if "family" in short else list(has)
    for family in wanted:
        suffix = "" if "family" in short else f"-{family[-1]}"
        labels = {SERVICE_NAME_LABEL: short["of"], **short.get("labels", {})}
        yield {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": own + suffix, "namespace": namespace, "labels": labels},
            "addressType": family,
            "endpoints": [_endpoint(e, family) for e in short.get("endpoints", ())],
            "ports": [_slice_port(p) for p in short.get("ports", ())],
        }


def _slice_port(given: object) -> Object:
    if isinstance(given, dict):
        return given
    form = re.fullmatch(r"(?:([\w-]+) )?([0-9]+)(?:/(tcp|udp|sctp))?", str(given))
    if form is None:
        raise BadInput(f"port {given!r} is not written like 'http 8080/tcp'")
    return {"name": form[1] or "", "port": int(form[2]), "protocol": (form[3] or "tcp").upper()}


def _endpoint(given: object, family: str) -> Object:
    """`a`, `a leaving`, `x for zone z1`, `x unready for node node-2`; or the API's own mapping."""
    if isinstance(given, dict):
        return given
    form = re.fullmatch(r"(\w+)(?: (\w+))??(?: for zone (\S+?))?(?: for node (\S+?))?", str(given))
    if form is None or (form[2] and form[2] not in STATES):
        raise BadInput(f"endpoint {given!r} is not written like 'a', 'a {' | '.join(STATES)}' or 'a for zone z1'")
    member: Member | None = MEMBERS.get(form[1])
    if member is None:
        raise BadInput(f"endpoint {given!r}: members are {', '.join(MEMBERS)}")
    hints = {"forZones": [{"name": form[3]}]} if form[3] else {}
    hints |= {"forNodes": [{"name": form[4]}]} if form[4] else {}
    address = member.six if family == "IPv6" else member.four
    where = {"nodeName": member.node} if member.node else {}
    return {
        "addresses": [address],
        "conditions": STATES[form[2] or "ready"],
        **where,
        **({"hints": hints} if hints else {}),
    }

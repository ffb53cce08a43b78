"""What is odd about the slices of a Service: those no proxy uses, doubles, dying backends. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from clusterip.diagnosis.doctor.backends import entries_of, equal_shares, families_of, members, service_object
from clusterip.diagnosis.doctor.known import Key, Known, key_of
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.diagnosis.nobody import by_address, nobody_at
from clusterip.diagnosis.packet import socket
from clusterip.model import objects as o
from clusterip.services.resolve import HEADLESS_LABEL, SERVICE_NAME_LABEL, is_served
from clusterip.services.table import Entry

MOST_ENDPOINTS = 1000  # that an Endpoints object holds
TRUNCATED = "endpoints.kubernetes.io/over-capacity"


def find(known: Known) -> Iterator[Finding]:
    for s in known.slices:
        yield from _ignored(known, s)
    held = {e.addresses[0] for s in known.slices for e in s.endpoints or () if e.addresses}
    pods = by_address(known.pods, held)
    for key in {**known.services, **known.slices_of}:
        yield from _doubles(known, key)
        yield from _terminating(known, key)
        yield from _nobody(known, key, pods)
        yield from _mixed_ports(known, key)
    for key, endpoints in known.endpoints.items():
        yield from _truncated(known, key, endpoints)


# --- slices that no proxy uses ----------------------------------------------------------------------------------------


def _ignored(known: Known, s: o.EndpointSlice) -> Iterator[Finding]:
    if not any(endpoint.addresses for endpoint in s.endpoints or ()):
        return
    why, remedy = _why_ignored(known, s)
    if not why:
        return
    backends = ", ".join(a for e in s.endpoints or () for a in e.addresses[:1])
    message = f"No proxy uses slice {s.metadata.name} ({backends}): {why}."
    name = key_of(s)
    evidence = (known.evidence("EndpointSlice", name, f"slice {s.metadata.name}: {why}"),)
    yield Finding("slice-ignored", "E", f"slice {name}", message, evidence, None, remedy)


def _why_ignored(known: Known, s: o.EndpointSlice) -> tuple[str, str]:
    """("", ""): it is used, or there is nothing to tell by."""
    meta = s.metadata
    owner = meta.labels.get(SERVICE_NAME_LABEL, "")
    label = f"kubectl label endpointslice {meta.name} -n {meta.namespace}"
    if not owner:
        near = _likely_owner(known, s)
        return f"it has no label {SERVICE_NAME_LABEL}", f"{label} {SERVICE_NAME_LABEL}={near or 'SERVICE'}"
    service = known.services.get(Key(meta.namespace, owner))
    if service is None:
        empty = _without_slices(known, meta.namespace)
        if not empty:
            return "", ""
        why = f"its label {SERVICE_NAME_LABEL} names {owner}, and no Service of that name is in {meta.namespace}"
        return why, f"{label} --overwrite {SERVICE_NAME_LABEL}={empty}"
    if not is_served(service):
        return "", ""
    if HEADLESS_LABEL in meta.labels:
        why = f"its label {HEADLESS_LABEL} keeps it for DNS, and the Service is not headless"
        return why, f"{label} {HEADLESS_LABEL}-"
    families = families_of(service)
    if s.address_type not in families:
        return _other_family(known, s, families)
    return _ports_unused(s, service)


def _other_family(known: Known, s: o.EndpointSlice, families: Sequence[str]) -> tuple[str, str]:
    """A slice of the wrong family is a mismatch of the Service where no slice fits, and said there."""
    if s.address_type in ("IPv4", "IPv6"):
        owner = Key(s.metadata.namespace, s.metadata.labels[SERVICE_NAME_LABEL])
        if not any(other.address_type in families and other.endpoints for other in known.slices_of[owner]):
            return "", ""
    why = f"its addressType is {s.address_type}, and the Service has addresses of {' and '.join(families)}"
    return why, f"write a slice with addressType: {families[0]}"


def _ports_unused(s: o.EndpointSlice, service: o.Service) -> tuple[str, str]:
    wanted = {(p.name, p.protocol) for p in service.spec.ports or ()}
    named = ", ".join(f'"{name}" {protocol}' for name, protocol in sorted(wanted))
    edit = f"kubectl edit endpointslice {s.metadata.name} -n {s.metadata.namespace}"
    if not s.ports:
        return "it has no ports", f"{edit}: ports: [{{name: ..., port: ...}}], the Service's are {named}"
    if any((p.name or "", p.protocol or "TCP") in wanted and p.port for p in s.ports):
        return "", ""
    numberless = [p for p in s.ports if (p.name or "", p.protocol or "TCP") in wanted]
    if numberless:
        return f'its port "{numberless[0].name or ""}" has no number', f"{edit}: ports[].port"
    have = ", ".join(f'"{p.name or ""}" {p.protocol or "TCP"}' for p in s.ports)
    why = f"its ports are {have}, the Service's are {named}: they are joined by name and protocol"
    first = next(iter(service.spec.ports or ()), None)
    return why, f'{edit}: ports[].name: "{first.name if first else ""}"'


def _likely_owner(known: Known, s: o.EndpointSlice) -> str:
    """Of a slice without a label: the Service whose name its own begins with."""
    names = [k.name for k in known.services if k.namespace == s.metadata.namespace]
    return max((n for n in names if s.metadata.name.startswith(n)), key=len, default="")


def _without_slices(known: Known, namespace: str) -> str:
    """A Service kept by hand that has no slice: it may be whom a slice with a wrong label is meant for."""
    return next(
        (
            key.name
            for key, service in known.services.items()
            if key.namespace == namespace and not service.spec.selector and is_served(service)
            if not known.slices_of.get(key)
        ),
        "",
    )


def _nobody(known: Known, key: Key, pods: Mapping[str, Sequence[o.Pod]] | None) -> Iterator[Finding]:
    """Endpoints that are called ready, and that no pod is behind: written by hand, or not taken away."""
    ready: dict[str, o.EndpointSlice] = {}
    for s in known.slices_of.get(key, ()):
        ready |= {e.addresses[0]: s for e in s.endpoints or () if e.addresses and e.conditions.ready is not False}
    gone = {a: why for a in ready if (why := nobody_at(a, pods, known.nodes.values()))}
    if not gone:
        return
    first, why = next(iter(gone.items()))
    more = f", and so it is with {len(gone) - 1} more" if len(gone) > 1 else ""
    message = f"The slices call {first} ready, and {why}{more}: connections that are sent there get no answer, or "
    message += '"No route to host".'
    evidence = tuple(
        known.evidence("EndpointSlice", key_of(ready[a]), f"slice {ready[a].metadata.name}: {a} is ready") for a in gone
    )
    owner = ready[first].metadata
    remedy = f"kubectl describe endpointslice {owner.name} -n {owner.namespace}   # who writes it, and is it alive?"
    share = Fraction(len(gone), len(ready))
    yield Finding("endpoint-without-pod", "E", service_object(key), message, evidence, share, remedy)


# --- doubles, ports, truncation ---------------------------------------------------------------------------------------


def _doubles(known: Known, key: Key) -> Iterator[Finding]:
    found: defaultdict[tuple[str, str], list[o.EndpointSlice]] = defaultdict(list)
    for s in known.slices_of.get(key, ()):
        for port, backend in {(port.name or "", backend) for port, _, backend in members(s)}:
            found[port, backend].append(s)
    for (port, backend), slices in sorted(found.items()):
        if len(slices) < 2:
            continue
        names = ", ".join(s.metadata.name for s in slices)
        evidence = tuple(
            known.evidence("EndpointSlice", key_of(s), f"slice {s.metadata.name}: {backend}") for s in slices
        )
        message = f"{backend} stands in {len(slices)} slices ({names}). A proxy counts it once, so it gets no more "
        message += "connections than the others: this is not a fault. Slices are moved like this while they are "
        message += "rewritten."
        yield Finding("duplicate-endpoint", "I", service_object(key, port), message, evidence)


def _mixed_ports(known: Known, key: Key) -> Iterator[Finding]:
    for entry in entries_of(known, key):
        numbers = Counter(b.port for b in entry.cluster or entry.local)
        if len(numbers) < 2:
            continue
        backends = entry.cluster or entry.local
        counts = ", ".join(f"{number} ({times})" for number, times in sorted(numbers.items()))
        message = f"One port name, several numbers: behind port {entry.port} the backends listen on {counts}. Each "
        message += f"keeps its own, and each is as likely as the others: {equal_shares(backends)}. This is not a fault."
        evidence = tuple(
            known.evidence("EndpointSlice", key_of(s), f"slice {s.metadata.name}: port {p.port}")
            for s in known.slices_of.get(key, ())
            for p in s.ports or ()
            if (p.name or "") == entry.name.port
        )
        yield Finding("mixed-target-ports", "I", service_object(key, entry.name.port), message, evidence)


def _truncated(known: Known, key: Key, endpoints: o.Endpoints) -> Iterator[Finding]:
    held = sum(len(s.addresses) + len(s.not_ready_addresses) for s in endpoints.subsets or ())
    in_slices = {a for s in known.slices_of.get(key, ()) for e in s.endpoints or () for a in e.addresses[:1]}
    note = endpoints.metadata.annotations.get(TRUNCATED, "")
    if note != "truncated" and not (held >= MOST_ENDPOINTS and len(in_slices) > held):
        return
    more = f" of {len(in_slices)}" if len(in_slices) > held else ""
    message = f"The Endpoints object holds {held} addresses{more}; more than {MOST_ENDPOINTS} never fit. Proxies read "
    message += "slices and see all; programs that read Endpoints (ingress controllers, meshes) do not."
    evidence = (known.evidence("Endpoints", key, f"{TRUNCATED}: {note or 'not set'}"),)
    remedy = f"kubectl get endpointslices -n {key.namespace} -l {SERVICE_NAME_LABEL}={key.name}"
    yield Finding("endpoints-truncated", "W", service_object(key), message, evidence, None, remedy)


# --- backends that are going ------------------------------------------------------------------------------------------


def _terminating(known: Known, key: Key) -> Iterator[Finding]:
    dying: dict[str, tuple[o.EndpointSlice, o.Endpoint]] = {}
    for s in known.slices_of.get(key, ()):
        for _, endpoint, backend in members(s):
            if endpoint.conditions.terminating:
                dying[backend] = (s, endpoint)
    if not dying:
        return
    service = known.services.get(key)
    for entry in entries_of(known, key):
        used = entry.cluster or entry.local
        gone = [b for b in used if str(b) in dying]
        if gone:
            share = Fraction(len(gone), len(used))
            yield _to_terminating(known, key, entry, share, [dying[str(b)] for b in gone])
    if service is None and (ready := {b: e for b, e in dying.items() if e[1].conditions.ready}):
        usable = {b for s in known.slices_of[key] for _, e, b in members(s) if e.conditions.ready is not False}
        yield _to_terminating(known, key, None, Fraction(len(ready), len(usable)), list(ready.values()))


def _to_terminating(
    known: Known, key: Key, entry: Entry | None, share: Fraction, gone: Sequence[tuple[o.EndpointSlice, o.Endpoint]]
) -> Finding:
    service = known.services.get(key)
    if service and service.spec.publish_not_ready_addresses:
        why = "publishNotReadyAddresses: true calls every pod ready, one that is shutting down too"
        remedy = f"kubectl patch service {key.name} -n {key.namespace} -p "
        remedy += '\'{"spec":{"publishNotReadyAddresses":false}}\''
    elif any(e.conditions.ready for _, e in gone):
        why = "its slice says ready: true and terminating: true"
        remedy = "find out who writes this slice: the endpoint slice controller does so only for "
        remedy += "publishNotReadyAddresses"
    else:
        why = "no other backend is ready, and one that still serves is better than none"
        remedy = f"kubectl get pods -n {key.namespace} -w   # until a new pod is ready"
    evidence: list[Evidence] = []
    for s, endpoint in gone:
        flags = endpoint.conditions
        said = f"ready: {_said(flags.ready)}, serving: {_said(flags.serving)}, terminating: {_said(flags.terminating)}"
        ports = [p.port for p in s.ports or () if p.port]
        backend = socket(endpoint.addresses[0], ports[0] if ports else 0)
        evidence.append(known.evidence("EndpointSlice", key_of(s), f"slice {s.metadata.name}: {backend} {said}"))
    message = f"New connections go to {'a pod' if len(gone) == 1 else f'{len(gone)} pods'} shutting down: {why}. They "
    message += "break when it ends."
    object_ = service_object(key, entry.name.port if entry else "")
    return Finding("traffic-to-terminating", "W", object_, message, tuple(evidence), share, remedy)


def _said(flag: bool | None) -> str:
    return "not set" if flag is None else str(flag).lower()

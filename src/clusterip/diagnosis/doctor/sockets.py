"""eBPF mode: what its maps give a socket for each frontend, and what is wrong with maps and programs. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from clusterip.dataplane.ebpf.attach import HOOKS
from clusterip.dataplane.ebpf.layout import service_id
from clusterip.diagnosis.doctor import proxies
from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.diagnosis.doctor.programmed import Frontend, Programmed, ports
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.diagnosis.packet import socket
from clusterip.rulesets.socketmaps import Service, SocketMaps
from clusterip.services.table import EntryKey, PortName

NAMED = 5
# What it costs that one of a kind does not run: only without the first a client loses anything.
_COSTS = {
    "recvmsg": " A client that sends datagrams to a Service gets answers from the backend's address and drops them.",
    "getpeername": " Connected sockets show the backend.",
    "sendmsg": " Datagrams of sockets that are not connected are left to the rules beneath.",
    "connect": " New connections are left to the rules beneath.",
}


def socket_frontends(known: Known) -> Iterator[Programmed]:
    names = _names(known)
    for source in known.sockets:
        sets = _sets(source.values)
        for service in source.values.services:
            frontend = Frontend(service.protocol.lower(), service.address, service.port)
            held = sets.get(service.set, {})
            shares = {b: Fraction(1, service.backends) for i, b in held.items() if i < service.backends}
            name = names.get(service.id, service.name)
            place = _place(source, service)
            yield Programmed("ebpf", source.file, "", frontend, name, "", shares, place, writer="clusterip")


def find(known: Known) -> Iterator[Finding]:
    names = _names(known)
    for source in known.sockets:
        yield from _programs(known, source)
        yield from _incomplete(known, source, names)


def _programs(known: Known, source: Sourced[SocketMaps]) -> Iterator[Finding]:
    hooks = source.values.hooks
    lost = [name for name in HOOKS if hooks is not None and name not in hooks]
    if not lost:
        return
    message = f"{', '.join(lost)}: no program of eBPF mode is attached."
    if len(lost) == len(HOOKS):
        message += " No socket is served: the rules beneath answer for every Service."
    else:
        kinds = {name[:-1] for name in lost}
        message += "".join(cost for kind, cost in _COSTS.items() if kind in kinds)
    evidence = (Evidence(f"attached: {', '.join(hooks or ()) or 'none'}", source.file), *_instead(source, lost))
    remedy = proxies.by(known, "clusterip").restart("while it runs it attaches them within a second")
    serious = any(name.startswith("recvmsg") for name in lost) and len(lost) < len(HOOKS)
    yield Finding("ebpf-detached", "E" if serious else "W", "eBPF programs", message, evidence, None, remedy)


def _instead(source: Sourced[SocketMaps], lost: Sequence[str]) -> Iterator[Evidence]:
    """What is in their place, or where they are."""
    for stray in (s for s in source.values.strays if s.hook in lost):
        where = f"is attached to {stray.cgroup}" if stray.cgroup else "runs in its place"
        yield Evidence(f"{stray.hook}: program {stray.program} {where}", source.file)


def _incomplete(known: Known, source: Sourced[SocketMaps], names: Mapping[str, str]) -> Iterator[Finding]:
    """A slot that is not there refuses whoever draws it."""
    sets = _sets(source.values)
    told: set[str] = set()
    for service in source.values.services:
        held = sets.get(service.set, {})
        gone = [str(i) for i in range(service.backends) if i not in held]
        if gone and service.id not in told:
            told.add(service.id)
            share = Fraction(len(gone), service.backends)
            name = names.get(service.id, service.name)
            message = (
                f"The maps say that it has {service.backends} backends, and slot {', '.join(gone[:NAMED])} of them "
            )
            message += f"{'is' if len(gone) == 1 else 'are'} not there: connect() of who draws it is refused."
            remedy = proxies.by(known, "clusterip").restart("while it runs it mends its maps within the sync period")
            place = (_place(source, service),)
            object_ = f"service {name}" if name else f"frontend {service.address}:{service.port}"
            yield Finding("ebpf-slot-missing", "E", object_, message, place, share, remedy)


def _sets(maps: SocketMaps) -> dict[str, dict[int, str]]:
    found: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for slot in maps.slots:
        found[slot.set][slot.index] = socket(slot.address, slot.port)
    return found


def _place(source: Sourced[SocketMaps], service: Service) -> Evidence:
    where = f"{socket(service.address, service.port)}/{service.protocol.lower()}"
    return Evidence(f"map services: {where} -> set {service.set}, {service.backends} backends", source.file)


def _names(known: Known) -> dict[str, str]:
    """Of Service ports by the ids that the maps know them by."""
    found: dict[str, str] = {}
    for namespace, service, port, protocol in ports(known):
        name = PortName(namespace, service, port)
        for family in ("IPv4", "IPv6"):
            found[service_id(EntryKey(name, family, protocol)).hex()] = str(name)
    return found

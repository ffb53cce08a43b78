"""Services that have backends, and that a node's program does not know at all. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

from msgspec import structs

from clusterip.diagnosis.doctor import proxies
from clusterip.diagnosis.doctor.backends import equal_shares, wanted
from clusterip.diagnosis.doctor.known import Key, Known
from clusterip.diagnosis.doctor.programmed import Frontend, Programmed
from clusterip.diagnosis.doctor.refusals import Refusal
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.model.objects import Service
from clusterip.services.resolve import is_served

_FOR_SOCKETS = frozenset({"tcp", "udp"})


class _Plane(NamedTuple):
    """What answers together for one family on one node: all of its rules, or the maps that sockets ask."""

    folder: str  # files of one node stand in one folder
    sockets: bool
    six: bool


def find(known: Known, programs: Sequence[Programmed], refused: Sequence[Refusal]) -> Iterator[Finding]:
    held: defaultdict[_Plane, dict[Frontend, Evidence]] = defaultdict(dict)
    served = {p.frontend for p in programs}
    writers: dict[_Plane, proxies.Writer] = {}
    told: tuple[Programmed | Refusal, ...] = (*programs, *refused)
    for p in told:
        if p.frontend.address:
            plane = _Plane(p.file.rpartition("/")[0], p.form == "ebpf", ":" in p.frontend.address)
            held[plane][p.frontend] = p.place
            if p.writer:
                writers[plane] = p.writer
    asked = [a for key, service in known.services.items() if is_served(service) for a in _asked(known, key, service)]
    yield from _none(known, held, asked)
    beneath = {p.frontend for p in programs if p.form != "ebpf" and p.shares}
    for plane, there in held.items():
        # A program that serves none of these Services is of another cluster, from another time, or not all of it.
        ours = [a for a in asked if a.frontend in there and a.frontend in served]
        for one in asked if ours else ():
            if one.frontend not in there and _is_for(plane, one.frontend):
                proxy = proxies.by(known, writers.get(plane, ""))
                finding = _finding(known, one, plane, (there[ours[0].frontend], len(ours)), proxy)
                yield _for_rules(finding) if plane.sockets and one.frontend in beneath else finding


def _none(known: Known, held: Collection[_Plane], asked: Sequence["_Asked"]) -> Iterator[Finding]:
    """A family that the rules know nothing of: where all that a node holds was read."""
    for six in (False, True) if proxies.is_told(known) else ():
        wanted = [a for a in asked if (":" in a.frontend.address) == six]
        if wanted and not any(plane.six == six and not plane.sockets for plane in held):
            family = "IPv6" if six else "IPv4"
            message = f"The node's rules have nothing of any Service for {family}: {wanted[0].frontend} and "
            message += f"{len(wanted) - 1} other frontends of the API are not there. Somebody has taken them away, or "
            message += "the proxy has never written them."
            shown = known.evidence("Service", wanted[0].key, f"clusterIP: {wanted[0].frontend.address}")
            name = f"node {known.node}, {family}"
            yield Finding("no-service-rules", "E", name, message, (shown,), Fraction(1), known.proxy.restart())


def _for_rules(finding: Finding) -> Finding:
    message = f"{finding.message} Sockets leave it to the rules beneath, which serve it."
    return structs.replace(finding, level="W", share=None, message=message)


class _Asked(NamedTuple):
    key: Key
    name: str
    frontend: Frontend
    usable: Collection[str]


def _asked(known: Known, key: Key, service: Service) -> Iterator[_Asked]:
    """Its ClusterIPs with backends that any node should use."""
    wants = wanted(known, key)
    for port in service.spec.ports or ():
        found = wants.get(port.name)
        for address in service.spec.cluster_ips or (service.spec.cluster_ip,):
            usable = found.of_family(six=":" in address).usable if found and found.exact else ()
            if usable:
                name = f"{key}:{port.name}" if port.name else str(key)
                yield _Asked(key, name, Frontend(port.protocol.lower(), address, port.port), usable)


def _is_for(plane: _Plane, frontend: Frontend) -> bool:
    same = plane.six == (":" in frontend.address)
    return same and (not plane.sockets or frontend.protocol in _FOR_SOCKETS)


def _finding(known: Known, one: _Asked, plane: _Plane, others: tuple[Evidence, int], proxy: proxies.Proxy) -> Finding:
    """`others`: frontends that are there: where one of them is, and how many."""
    other, count = others
    whose = "The maps of eBPF mode" if plane.sockets else "The rules"
    message = f"{whose} have nothing for {one.frontend}, and the API has {equal_shares(one.usable)}; {count} "
    message += (
        f"other {'frontend of the API is' if count == 1 else 'frontends of the API are'} there. The proxy is not "
    )
    message += "applying updates, or the Service is newer than the dump."
    shown = known.evidence("Service", one.key, f"clusterIP: {one.frontend.address}")
    remedy = proxy.restart()
    return Finding("missing-endpoint", "E", f"service {one.name}", message, (shown, other), Fraction(1), remedy)

"""The programs of eBPF mode: does each run at its hook, and what do clients see where one does not? Pure.

A program that does not run is a difference even where every packet ends as the API says, because the rules beneath do
the same. Its proxy attaches it again within a second: if it is missing now, the proxy does not run, or cannot, and the
next change of a Service is written by nobody; whoever asks once an hour by a script has to learn that from the exit
status. But no connection is lost, which whoever is called at night has to learn at once: the share is 0, and the words
are "in the way, not in the outcome".
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from clusterip.dataplane.ebpf.layout import NODE_ONLY, Frontend, read_frontend, read_service
from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.verify.report import Difference, Unproven, Verdict, Verification, Witness
from clusterip.diagnosis.verify.sockets import CLIENTS, Clients
from clusterip.diagnosis.walk.surroundings import is_loopback
from clusterip.rulesets.socketmaps import Stray
from clusterip.services.notation import Destination
from clusterip.services.route import Source
from clusterip.services.table import Family

Call: TypeAlias = Literal["connect", "sendmsg", "recvmsg", "getpeername"]

_SAME = "a difference in the way, not in the outcome"
_PROTOCOLS: Mapping[Call, tuple[str, ...]] = {
    "connect": ("TCP", "UDP"),
    "sendmsg": ("UDP",),
    "recvmsg": ("UDP",),
    "getpeername": ("TCP", "UDP"),
}
_SHOULD: Mapping[Call, str] = {
    "connect": "connect() is given a backend",
    "sendmsg": "a datagram of a socket that is not connected is sent to a backend",
    "recvmsg": "the answer to a datagram has the Service's address as its sender",
    "getpeername": "a connected socket is told the Service's address",
}
_BESIDE = {
    "foreign": "runs there as well, which is not the proxy's: what it does to sockets is not known",
    "other-code": "reads the maps, and is not what this version of clusterip attaches: what it does is not known",
    "unread-maps": "has maps that are not pinned where they should be: what they hold is not known",
}


class _Served(NamedTuple):
    """What the sockets of one family of hooks may ask for."""

    family: Family  # of its addresses
    frontends: Sequence[Frontend]
    mapped: bool  # it is IPv4, asked for by sockets of IPv6


def verify_hooks(
    facts: Facts, beneath: Mapping[Family, Verdict], these: Mapping[Family, Clients]
) -> Iterator[Verification]:
    """`beneath`: of the rules. Nothing where no programs were looked for."""
    if facts.sockets is None or facts.hooks is None:
        return
    differences: list[Difference] = []
    unproven: list[Unproven] = []
    for call in _PROTOCOLS:
        for number in ("4", "6"):
            name = f"{call}{number}"
            if name in facts.hooks:
                met = [s for s in facts.strays if s.hook == name and s.why in _BESIDE]
                unproven += [Unproven(f"program {s.program} {_BESIDE[s.why]}", f"hook {name}") for s in met]
                continue
            served = _served(facts, call, ipv6=number == "6")
            if served is not None:  # otherwise nobody has anything to ask for there
                differences.append(_difference(facts, call, name, served, (beneath, these)))
    verdict: Verdict = "different" if differences else "unproven" if unproven else "equal"
    yield Verification(verdict=verdict, differences=tuple(differences), unproven=tuple(unproven))


def _served(facts: Facts, call: Call, *, ipv6: bool) -> _Served | None:
    """Where the maps have no address of IPv6, sockets of IPv6 still speak to ::ffff:a.b.c.d. What they send there
    without connect() meets sendmsg4, but for the answer they ask at recvmsg6. Source: net/ipv6/udp.c."""
    families: tuple[Family, ...] = ("IPv6", "IPv4") if ipv6 else ("IPv4",)
    if ipv6 and call == "sendmsg":
        families = ("IPv6",)
    for family in families:
        services = (facts.sockets or {})[family]["services"]
        found = [read_frontend(key) for key, value in services.items() if not read_service(value).flags & NODE_ONLY]
        found = sorted((f for f in found if f.protocol in _PROTOCOLS[call]), key=lambda f: (f.protocol, f))
        if found:
            return _Served(family, found, mapped=ipv6 and family == "IPv4")
    return None


def _difference(
    facts: Facts,
    call: Call,
    name: str,
    served: _Served,
    by: tuple[Mapping[Family, Verdict], Mapping[Family, Clients]],
) -> Difference:
    beneath, these = by
    place = str(Destination(*served.frontends[0]))
    rules = beneath.get(served.family, "unproven")
    number = name[-1]
    sends = f"sendmsg{'4' if served.mapped else number}" in (facts.hooks or ())
    share, means = _means(facts, call, number, (rules, sends))
    sockets = " (sockets of IPv6, which ask for it by ::ffff:)" if served.mapped else ""
    return Difference(
        kind="program",
        object=f"hook {name}",
        frontend=place,
        clients=", ".join(CLIENTS.values()),
        api=f"eBPF mode: {_SHOULD[call]}{sockets}",
        kernel=f"{_why(facts, name)}: {means}",
        witness=Witness(these[served.family].of(Source.POD), place),
        share=share,
    )


def _why(facts: Facts, name: str) -> str:
    to = f" to {facts.served_cgroup}" if facts.served_cgroup else ""
    for stray in (s for s in facts.strays if s.hook == name):
        match stray:
            case Stray(why="elsewhere", program=program, cgroup=cgroup):
                return f"program {program} is attached to {cgroup}, not{to}"
            case Stray(program=program):
                return f"program {program} runs there in its place and reads none of the maps"
    return f"no program is attached{to}"


def _means(facts: Facts, call: Call, number: str, by: tuple[Verdict, bool]) -> tuple[Fraction, str]:
    """For clients; and the share of them that it means something for. `by`: what the rules beneath are, and whether
    datagrams without connect() are given a backend."""
    rules, sends = by
    connects = f"connect{number}" in (facts.hooks or ())
    match call:
        case "connect":
            return _left("connections are left to the rules beneath", rules, _alone(facts, number))
        case "sendmsg":
            return _left("such datagrams are left to the rules beneath", rules, _alone(facts, number))
        case "recvmsg" if sends:
            what = "the sender is the backend, and a client whose socket is not connected, as a resolver's, drops it"
            return Fraction(1), what
        case "recvmsg" if connects:
            return Fraction(0), f"recvfrom() of a connected socket names the backend; {_SAME}"
        case "getpeername" if connects:
            return Fraction(0), f"getpeername() names the backend, with whom the socket speaks; {_SAME}"
    return Fraction(0), f"no new connection is given a backend, so that none has an address to be given back; {_SAME}"


def _left(what: str, rules: Verdict, alone: bool) -> tuple[Fraction, str]:
    match rules:
        case "equal" if alone:
            besides = "but those to the loopback's addresses, which are told by themselves"
            return Fraction(0), f"{what}, which do the same with every packet {besides}; for the rest {_SAME}"
        case "equal":
            return Fraction(0), f"{what}, which do the same with every packet; {_SAME}"
        case "different":
            return Fraction(1), f"{what}, and they differ as is told here"
        case "unproven":
            return Fraction(1), f"{what}, and what they do is not known for all of them"


def _alone(facts: Facts, number: str) -> bool:
    """Node ports on the loopback, which no rule serves."""
    held = (facts.sockets or {})["IPv6" if number == "6" else "IPv4"]["services"]
    return any(is_loopback(read_frontend(key).address) for key in held)

"""What rules compare destinations with: it tells which destinations they cannot tell apart.

Two addresses that lie between the same edges of networks, in the same sets, and are named by no rule, are treated
alike; one of them stands for all.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple, TypeAlias

from clusterip.diagnosis.packet import PORTED, Packet
from clusterip.diagnosis.verify.sources import number
from clusterip.rulesets.ipset import IPSet
from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.nft import values as n

Ports: TypeAlias = tuple[int, int]  # first, last
WHOLE: Ports = (0, 65535)
EVERY_PROTOCOL = ("tcp", "udp", "sctp", "icmp")

_OF_DESTINATIONS = frozenset({v.Destination, v.Ports, v.MultiPort, v.InSet, v.OtherMatch})


class Place(NamedTuple):
    address: str
    protocol: str
    port: int


def _place(port: str) -> tuple[str, int] | None:
    """ "tcp:80" -> "tcp", 80; None: it is a range."""
    protocol, colon, number = port.rpartition(":")
    return (protocol if colon else "tcp", int(number)) if number.isdecimal() else None


class Literals:
    """Of one family. `add_*` are called before anything is asked."""

    def __init__(self, ipsets: Mapping[str, IPSet], *, ipv6: bool) -> None:
        self.ipv6 = ipv6
        self._ipsets = ipsets
        self.loose: set[str] = set()  # addresses that a rule names without a port
        self.named: dict[str, set[tuple[str, int]]] = {}  # address -> protocols ("": any) and ports named with it
        self._edges: set[int] = {0}
        self._groups: dict[str, set[str]] = defaultdict(set)  # address -> sets it is in
        self._ports: dict[tuple[int, str], set[Ports]] = defaultdict(set)  # chain, or "@set", -> ports without address

    # --- collecting ---

    def add_network(self, text: str) -> None:
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            return
        if (network.version == 6) == self.ipv6:
            self._edges |= {int(network.network_address), int(network.broadcast_address) + 1}

    def add_group(self, addresses: Iterable[str], name: str) -> None:
        for address in addresses:
            self._groups[address].add(name)

    def add_iptables(self, at: int, chains: Mapping[str, v.Chain]) -> None:
        """`at` names the table among others."""
        for name in chains:
            for rule in chains[name].rules:
                self._rule(at, name, rule)

    def _rule(self, at: int, chain: str, rule: v.Rule) -> None:
        address, ports, protocol, others = "", list[Ports](), "", False
        for match in rule.matches:
            if type(match) not in _OF_DESTINATIONS:
                continue
            match match:
                case v.Destination(network, negated):
                    alone, _, length = network.partition("/")
                    if length == ("128" if self.ipv6 else "32") and "," not in network and not negated:
                        address = alone
                    else:
                        for one in network.split(","):
                            self.add_network(one)
                case v.Ports(name, _, v.PortRange(first, last), destination_negated=negated):
                    ports, protocol, others = [(first, last)], name, negated
                case v.MultiPort("dports" | "ports", ranges):
                    ports, others = [(r.first, r.last) for r in ranges], True
                case v.InSet(name, _) if name in self._ipsets:
                    self._ipset(at, chain, self._ipsets[name])
                case v.OtherMatch("iprange", words) if "--dst-range" in words:
                    self._span(words[-1])
        if address and len(ports) == 1 and ports[0][0] == ports[0][1] and not others:
            self.named.setdefault(address, set()).add((protocol, ports[0][0]))
            return
        if address:
            self.loose.add(address)
        if ports:
            self._ports[at, chain].update(ports)

    def _span(self, text: str) -> None:
        first, _, last = text.partition("-")
        try:
            self._edges |= {int(ip_address(first)), int(ip_address(last)) + 1}
        except ValueError:
            return

    def _ipset(self, at: int, chain: str, found: IPSet, above: tuple[str, ...] = ()) -> None:
        for member in found.members:
            address, *rest = member.parts
            if found.type.startswith("list:"):
                if address in self._ipsets and address not in above:
                    self._ipset(at, chain, self._ipsets[address], (*above, found.name))
                continue
            if found.dimensions[0] not in ("ip", "net"):
                rest = list(member.parts)
            elif "/" in address:
                self.add_network(address)
            elif "-" in address:
                self._span(address)
            elif not rest:
                self._groups[address].add(f"@{found.name}")
            elif found.dimensions[1] == "port" and (place := _place(rest[0])):
                self.named.setdefault(address, set()).add(place)
                continue
            else:
                self.loose.add(address)
            for part in rest:
                first, _, last = part.rpartition(":")[2].partition("-")
                if first.isdecimal() and (last or first).isdecimal():
                    self._ports[at, chain].add((int(first), int(last or first)))

    def add_nft(self, at: int, table: n.Table) -> None:
        for named in table.sets.values():
            self._nft_set(at, named)
        for chain in table.chains.values():
            for rule in chain.rules:
                self._nft_rule(at, chain.name, rule)

    def _nft_set(self, at: int, named: n.Set) -> None:
        for element in named.elements:
            match element.key:
                case n.Address(text):
                    self._groups[text].add(f"{at}@{named.name}")
                case n.Concat(parts):
                    self._row(at, f"@{named.name}", parts)
                case n.Number(port):
                    self._ports[at, f"@{named.name}"].add((port, port))
                case other:
                    self._expression(at, f"@{named.name}", other)

    def _row(self, at: int, where: str, parts: tuple[n.Expression, ...]) -> None:
        """ "10.96.0.1 . tcp . 443", "tcp . 30080"; of sources too, which does no harm."""
        addresses = [p.text for p in parts if isinstance(p, n.Address)]
        protocol = next((p.text for p in parts if isinstance(p, n.Word)), "")
        ports = [p.value for p in parts if isinstance(p, n.Number)]
        if addresses and ports:
            for address in addresses:
                self.named.setdefault(address, set()).update((protocol, p) for p in ports)
        else:
            self.loose.update(addresses)
            self._ports[at, where].update((p, p) for p in ports)
        for part in parts:
            if isinstance(part, (n.Prefix, n.Range)):
                self._expression(at, where, part)

    def _nft_rule(self, at: int, chain: str, rule: n.Rule) -> None:
        for statement in rule.statements:
            match statement:
                case n.Match(_, _, right):
                    self._expression(at, chain, right)
                case n.VerdictMap(_, n.Elements(elements)):
                    for element in elements:
                        self._expression(at, chain, element.key)
                case _:
                    continue

    def _expression(self, at: int, where: str, value: n.Expression) -> None:
        match value:
            case n.Address(text):
                self.loose.add(text)
            case n.Prefix(address, length):
                self.add_network(f"{address}/{length}")
            case n.Range(n.Address(first), n.Address(last)):
                self._span(f"{first}-{last}")
            case n.Range(n.Number(low), n.Number(high)):
                self._ports[at, where].add((low, high))
            case n.Number(port):
                self._ports[at, where].add((port, port))
            case n.Elements(elements):
                for element in elements:
                    self._expression(at, where, element.key)
            case n.Concat(parts):
                self._row(at, where, parts)

    # --- asking ---

    @cached_property
    def _sorted_edges(self) -> list[int]:
        return sorted(self._edges)

    @cached_property
    def _port_edges(self) -> list[int]:
        return sorted({edge for found in self._ports.values() for p in found for edge in (p[0], p[1] + 1)})

    def key(self, packet: Packet) -> tuple[object, ...]:
        """Equal for packets whose destinations no rule tells apart."""
        address, port = packet.destination, packet.destination_port
        if address in self.named or address in self.loose:
            return address, packet.protocol, port
        between = bisect_right(self._sorted_edges, number(address))
        groups = self._groups.get(address)
        at = bisect_right(self._port_edges, port)
        return between, frozenset(groups) if groups else None, packet.protocol, at

    def ports(self, asked: Iterable[tuple[int, str]]) -> list[int]:
        """One port for all between two edges of what these chains and sets ask."""
        edges = {0, *(e for where in asked for first, last in self._ports.get(where, ()) for e in (first, last + 1))}
        return sorted(e for e in edges if e <= 65535)

    def alone(self) -> Iterator[Place]:
        """Places that rules name. What lies beside their ports is treated as the address's class is."""
        for address, found in self.named.items():
            if (":" in address) == self.ipv6:
                for protocol, port in sorted(found):
                    for one in (protocol,) if protocol else sorted(PORTED):
                        yield Place(address, one, port)

    def classes(self) -> Iterator[str]:
        """One address of each class, the addresses that rules name without a port among them."""
        yield from sorted(a for a in self.loose if (":" in a) == self.ipv6)
        seen: set[tuple[int, frozenset[str]]] = set()
        edges = self._sorted_edges
        for address in (*self._groups, *self.named):
            if (":" in address) == self.ipv6 and address not in self.loose:
                kind = (bisect_right(edges, number(address)), frozenset(self._groups.get(address, ())))
                if kind not in seen:
                    seen.add(kind)
                    yield address
        bits = 128 if self.ipv6 else 32
        for first, following in zip(edges, [*edges[1:], 1 << bits], strict=True):
            free = next((a for a in self._some(first, following) if not self._is_known(a)), None)
            if free is not None and (bisect_right(edges, first), frozenset()) not in seen:
                yield free

    def _some(self, first: int, following: int) -> Iterator[str]:
        """As many as it takes to find one that is not known, where there is one."""
        for at in range(first, following):
            yield str(IPv6Address(at) if self.ipv6 else IPv4Address(at))

    def _is_known(self, address: str) -> bool:
        return address in self.named or address in self.loose or address in self._groups

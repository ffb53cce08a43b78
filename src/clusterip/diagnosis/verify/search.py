"""The differences between the rules and the service table, of one node and family."""

import dataclasses
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.verify.chain import TooMany
from clusterip.diagnosis.verify.compare import Mismatch, kernel_fates, mismatches, told
from clusterip.diagnosis.verify.expected import Claim, Expectation, Mode, claims, expectations
from clusterip.diagnosis.verify.interfaces import ELSEWHERE
from clusterip.diagnosis.verify.literals import EVERY_PROTOCOL, Place
from clusterip.diagnosis.verify.report import Difference, Kind, Unproven
from clusterip.diagnosis.verify.sources import Clients, Sources, address_of, kind_of, split
from clusterip.diagnosis.verify.ways import Leaf, Ways
from clusterip.diagnosis.verify.witness import Shown, shown, witness
from clusterip.diagnosis.verify.worlds import World, worlds
from clusterip.diagnosis.verify.worlds import told as told_doubts
from clusterip.diagnosis.walk.branch import Condition
from clusterip.diagnosis.walk.hooks import Hooks
from clusterip.diagnosis.walk.surroundings import within
from clusterip.services.route import Policy, Source
from clusterip.services.table import Entry

_CLIENTS = {Source.POD: "pods", Source.NODE: "the node", Source.OUTSIDE: "outside"}
_MIXABLE: frozenset[Kind] = frozenset({"share", "missing-backend", "verdict"})  # two wrongs may make a right
NOWHERE = ("127.0.0.0/8", "0.0.0.0/8", "224.0.0.0/3", "::/127", "ff00::/8")  # nobody is answered there
_OUR_CHAINS, _OUR_TABLES = "KUBE-", ("kube-proxy", "clusterip", "ipvs")


class Search:
    """Collects what it finds: `differences`, `unproven`, `others`."""

    def __init__(
        self, ways: Ways, hooks: Hooks, entries: Sequence[Entry], policy: Policy, excluded: Sequence[str] = ()
    ) -> None:
        """`excluded`: networks in which virtual servers are somebody else's."""
        self._ways = ways
        self._hooks = hooks
        self._policy = policy
        self._excluded = excluded
        self._ipv6 = ways.clients.ipv6
        self.claims = claims(entries, policy)
        self._differences: dict[tuple[str, str, str, str], Difference] = {}
        self.unproven: list[Unproven] = []
        self.others: list[str] = []

    @property
    def differences(self) -> tuple[Difference, ...]:
        return tuple(self._differences.values())

    def run(self) -> None:
        for place, claiming in self.claims.items():
            self._guarded(place, partial(self._claimed, place, claiming))
        for place in self._ways.literals.alone():
            if place not in self.claims:
                self._guarded(place, partial(self._unclaimed, place))
        for address in self._ways.literals.classes():
            if not any(within(address, network) for network in NOWHERE):
                for protocol in EVERY_PROTOCOL:
                    self._guarded(Place(address, protocol, 0), partial(self._ports_of, address, protocol))

    def _guarded(self, place: Place, search: Callable[[], object]) -> None:
        try:
            search()
        except TooMany as error:
            self.unproven.append(Unproven(error.message, self._object(place)))

    # --- places of the table ---

    def _claimed(self, place: Place, claiming: Sequence[Claim]) -> None:
        leaves, _ = self._ways.leaves(_packet(place))
        best: list[tuple[Mismatch, World]] | None = None
        for claim in claiming:
            found = self._against(claim, place, leaves)
            if found is None or not found:
                return  # equal, or not to be proven, which is noted
            best = found if best is None or len(found) < len(best) else best
        for mismatch, world in best or ():
            self._report(place, claiming[0], mismatch, world)

    def _against(self, claim: Claim, place: Place, leaves: Sequence[Leaf]) -> list[tuple[Mismatch, World]] | None:
        """None: nobody can say."""
        here, clients = self._ways.is_here(place.address), self._ways.clients_of(_packet(place))
        mode = Mode(self._policy, virtual=self._ways.servers is not None)
        expected = expectations(claim, place, clients, mode, here=here)
        found: list[tuple[Mismatch, World]] = []
        for alike in worlds(leaves):
            if lost := _lost(alike):
                self.unproven.append(Unproven(lost, self._object(place)))
                return None
            seconds = claim.entry.affinity_seconds
            answers = [(_in(world, expected, seconds, clients), world) for world in alike]
            certain = _certain([mismatches for mismatches, _ in answers])
            if not certain and any(mismatches for mismatches, _ in answers):
                asked = [c for world in alike for c, _ in world.unknown]
                self.unproven.append(Unproven(told_doubts(asked), self._object(place)))
                return None
            found += [(m, answers[0][1]) for m in answers[0][0] if m.kind in certain]
        return found

    # --- places that are nobody's ---

    def _ports_of(self, address: str, protocol: str) -> None:
        """Every port that any rule on the way tells from others; which they are shows on the way."""
        done: set[int] = set()
        asked: set[tuple[int, str]] = set()
        waiting = [0] if protocol == "icmp" else [1]
        while waiting:
            port = waiting.pop()
            done.add(port)
            place = Place(address, protocol, port)
            if place in self.claims:
                asked |= self._ways.leaves(_packet(place))[1]
            else:
                asked |= self._unclaimed(place)
            if protocol != "icmp":
                waiting = [p for p in self._ways.literals.ports(asked) if p not in done]

    def _unclaimed(self, place: Place) -> set[tuple[int, str]]:
        """Only where it is rewritten something is wrong: to be dropped or refused is any firewall's right."""
        leaves, asked = self._ways.leaves(_packet(place))
        for world in (alike[0] for alike in worlds(leaves)):
            delivered = [leaf for leaf in world.leaves if leaf.verdict == "delivered" and leaf.remembered is None]
            if delivered:
                self._extra(place, world, delivered)
                break
        return asked

    def _extra(self, place: Place, world: World, delivered: Sequence[Leaf]) -> None:
        leaf = max(delivered, key=lambda one: sum(last - first for first, last in one.sources))
        client = _middle(leaf.sources)
        interface = self._came_in(client, world.interface)
        proof = shown(client, place, interface, self._hooks, ipv6=self._ipv6)
        theirs = any(within(place.address, network) for network in self._excluded)
        if theirs or not any(_is_ours(f.chain, f.table) for f in proof.by):
            self.others.append(f"{_text(place)}: {', '.join(sorted({f'{f.table} {f.chain}' for f in proof.by}))}")
            return
        fates = kernel_fates([(one.sources, one) for one in world.leaves if one.remembered is None], client)
        share = sum((s for f, s in fates.items() if f.target), Fraction(0))
        kinds = dict.fromkeys(kind_of(first) for one in delivered for first, _ in one.sources)
        extra = Mismatch("extra", client, share, "nothing is served there", told(fates), tuple(kinds))
        self._add(place, None, extra, interface, proof)

    # --- reporting ---

    def _report(self, place: Place, claim: Claim, found: Mismatch, world: World) -> None:
        interface = self._came_in(found.client, world.interface)
        proof = shown(found.client, place, interface, self._hooks, ipv6=self._ipv6)
        own = [(leaf.sources, leaf) for leaf in world.leaves if leaf.remembered is None]
        modelled = kernel_fates(own, found.client)
        if proof.fates != modelled and not world.unknown:
            what = f"two ways of reading the rules differ for {_text(place)}: {told(modelled)} or {told(proof.fates)}"
            self.unproven.append(Unproven(what, self._object(place)))
            return
        self._add(place, claim, found, interface, proof)

    def _add(self, place: Place, claim: Claim | None, found: Mismatch, interface: str | None, proof: Shown) -> None:
        address = address_of(found.client, ipv6=self._ipv6)
        itself = any(f.target and f.target.address == address for f in proof.fates)
        who = f"{address}, a backend itself" if itself else ", ".join(_CLIENTS[k] for k in found.kinds)
        name = f"service {claim.entry.name}" if claim else _text(place)
        key = (name, _text(place), found.kind, interface or "")
        before = self._differences.get(key)
        if before:
            both = {*before.clients.split(", "), *who.split(", ")}
            ordered = [kind for kind in _CLIENTS.values() if kind in both] or sorted(both)
            self._differences[key] = replace(before, clients=", ".join(ordered))
            return
        self._differences[key] = Difference(
            found.kind,
            name,
            _text(place),
            who,
            found.api,
            found.kernel,
            witness(found.client, place, interface, ipv6=self._ipv6),
            found.share,
        )

    def _came_in(self, client: int, asked: str | None) -> str | None:
        """None: by whichever, no rule asks."""
        pods = self._ways.clients.pod_interface
        if asked is not None or not pods or kind_of(client) is Source.NODE:
            return asked
        return pods.replace("+", "0") if kind_of(client) is Source.POD else ELSEWHERE

    def _object(self, place: Place) -> str:
        claiming = self.claims.get(place)
        return f"service {claiming[0].entry.name}" if claiming else _text(place)


def _in(world: World, expected: Sequence[Expectation], seconds: int, clients: Clients) -> list[Mismatch]:
    """`seconds`: of affinity."""
    found: list[Mismatch] = []
    for one in expected:
        sources = split(one.sources, clients.told_by_interface)[1] if world.came_in else one.sources
        if sources:
            narrowed = dataclasses.replace(one, sources=sources)
            found += mismatches(world.leaves, narrowed, seconds, clients)
    return found


def _packet(place: Place) -> Packet:
    protocol = "ipv6-icmp" if place.protocol == "icmp" and ":" in place.address else place.protocol
    return Packet(protocol=protocol, source="", destination=place.address, destination_port=place.port)


def _text(place: Place) -> str:
    if place.protocol == "icmp":
        return f"icmp:{place.address}"
    return f"{socket(place.address, place.port)}/{place.protocol}"


def _lost(alike: Sequence[World]) -> str:
    """What nobody can walk further from; "": nothing."""
    found: list[Condition] = [
        leaf.doubts[-1][0] for world in alike for leaf in world.leaves if leaf.verdict == "unknown" and leaf.doubts
    ]
    return told_doubts(found)


def _certain(by_world: Sequence[Sequence[Mismatch]]) -> set[Kind]:
    """What is wrong whichever way the unknown is: also where it is now this way and now that."""
    kinds = [{m.kind for m in found} for found in by_world]
    common = set.intersection(*kinds) if kinds else set()
    return common if len(kinds) == 1 else common - _MIXABLE


def _is_ours(chain: str, table: str) -> bool:
    return chain.startswith(_OUR_CHAINS) or table.rpartition(" ")[2] in _OUR_TABLES


def _middle(sources: Sources) -> int:
    first, last = max(sources, key=lambda r: r[1] - r[0])
    return first + 1 if last > first else first

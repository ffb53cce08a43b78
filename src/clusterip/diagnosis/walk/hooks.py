"""The hooks of the kernel in their order, and the ways a packet takes through them.

Sources: include/uapi/linux/netfilter_ipv4.h (priorities); net/netfilter/nf_nat_core.c: rules of nat tables are asked
for the first packet of a connection alone, once for its destination (prerouting, output) and once for its source
(postrouting, input), table by table until one has rewritten it; any other packet is rewritten as its connection was.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet, socket
from clusterip.diagnosis.walk.branch import Answer, Branch, Condition, End, Fired, folded, split
from clusterip.diagnosis.walk.chain import Ended, Judged, Rules, through
from clusterip.diagnosis.walk.surroundings import Surroundings

HookName: TypeAlias = Literal["prerouting", "input", "forward", "output", "postrouting"]
Kind: TypeAlias = Literal["filter", "nat", "ipvs"]

FORWARDS_NOTHING = "the node forwards nothing: ip_forward is 0"
_DESTINATION_HOOKS = frozenset({"prerouting", "output"})  # where NAT rewrites destinations
_SOURCE_HOOKS = frozenset({"input", "postrouting"})
_REWRITES = frozenset({"dnat", "redirect", "snat", "masquerade"})  # first words of effects
_CONNTRACK_PRIORITY = -200  # where prerouting and output ask conntrack
_DESTINATION_PRIORITY, _SOURCE_PRIORITY = -100, 100


class BaseChain(NamedTuple):
    """A chain that a hook calls."""

    hook: HookName
    priority: int  # lower ones first
    kind: Kind
    rules: Rules
    chain: str
    policy: Literal["accept", "drop"] = "accept"


class Socket(NamedTuple):
    address: str
    port: int


class Translation(NamedTuple):
    """What conntrack does to the packets of one direction of a connection it knows."""

    destination: Socket | None = None
    source: Socket | None = None


@dataclass(frozen=True, slots=True)
class Hooks:
    """`translation`: of the connection that the packet belongs to; None: it begins one, so nat tables are asked."""

    chains: Mapping[HookName, Sequence[BaseChain]]  # by priority
    surroundings: Surroundings
    forwards: bool | None = None  # net.ipv4.ip_forward; None: not known, taken for on
    translation: Translation | None = None
    in_order: bool = False  # it is known that chains of one priority run in the order in which they stand here

    # --- ways ---

    def from_node(self, packet: Packet) -> list[Ended]:
        """Of a process of this node."""
        way = self._way_out(packet)
        start = Branch(replace(packet, in_interface="", out_interface=way, before_conntrack=True))
        ended: list[Ended] = []
        for end, branch in self._at("output", start):
            if end is End.TAKEN:
                ended += self._from_ipvs(branch)
            elif end is not End.ACCEPT:
                ended.append((end, branch))
            else:
                ended += self._sent(branch)
        return _settled(ended)

    def arriving(self, packet: Packet) -> list[Ended]:
        """By an interface: from a pod or from outside."""
        ended: list[Ended] = []
        for end, branch in self._at("prerouting", Branch(replace(packet, before_conntrack=True))):
            if end is End.ACCEPT:
                ended += self._routed(branch)
            else:
                ended.append((end, branch))
        return _settled(ended)

    def _sent(self, start: Branch) -> list[Ended]:
        """What this node sends, routed again, as its destination may be another by now."""
        here, away = split(start, self._is_here(start.packet))
        ended: list[Ended] = []
        if away:
            ended += self._departing(away)
        if here:
            loop = self._moved(here, out_interface="lo")
            ended += [
                after
                for end, branch in self._at("postrouting", loop)
                for after in (self._looped(branch) if end is End.ACCEPT else [(end, branch)])
            ]
        return ended

    def _looped(self, branch: Branch) -> list[Ended]:
        """Over the loopback: prerouting again, where the connection's NAT is settled already."""
        again = self._moved(branch, in_interface="lo", out_interface="")
        ended: list[Ended] = []
        for end, arrived in self._at("prerouting", again, frozenset({"nat"})):
            ended += self._at("input", arrived, frozenset({"nat", "ipvs"})) if end is End.ACCEPT else [(end, arrived)]
        return ended

    def _routed(self, start: Branch) -> list[Ended]:
        here, away = split(start, self._is_here(start.packet))
        ended: list[Ended] = []
        if here:
            for end, branch in self._at("input", self._moved(here, out_interface="")):
                ended += self._from_ipvs(branch) if end is End.TAKEN else [(end, branch)]
        if away:
            ended += self._forwarded(away)
        return ended

    def _forwarded(self, start: Branch) -> list[Ended]:
        if self.forwards is False:
            return [(End.DROP, self._stopped(start, FORWARDS_NOTHING, "drop"))]
        return [
            after
            for end, branch in self._at("forward", self._moved(start, out_interface=self._way_out(start.packet)))
            for after in (self._departing(branch) if end is End.ACCEPT else [(end, branch)])
        ]

    def _departing(self, start: Branch) -> list[Ended]:
        route = self.surroundings.route(start.packet.destination)
        if route and route.kind in ("blackhole", "unreachable", "prohibit"):
            end = End.DROP if route.kind == "blackhole" else End.REJECT
            return [(end, self._stopped(start, f"{route.kind} {route.network}", route.kind))]
        leaving = self._moved(start, out_interface=route.interface if route else None)
        came, goes = leaving.packet.in_interface, leaving.packet.out_interface
        if came and came == goes:  # a bridge no longer tells by which interface it came; a router does
            leaving = self._moved(leaving, in_interface=None)
        return self._at("postrouting", leaving)

    def _from_ipvs(self, branch: Branch) -> list[Ended]:
        """IPVS sends a packet on as if this node had; its own hooks and the destination's NAT let it pass."""
        sent = self._moved(branch, out_interface=self._way_out(branch.packet))
        return [
            after
            for end, out in self._at("output", sent, frozenset({"nat", "ipvs"}))
            for after in (self._departing(out) if end is End.ACCEPT else [(end, out)])
        ]

    def _is_here(self, packet: Packet) -> Answer:
        return self.surroundings.is_local(packet.destination, backend=packet.destination_rewritten)

    def _way_out(self, packet: Packet) -> str | None:
        if self.surroundings.is_local(packet.destination) is True:
            return "lo"
        return self.surroundings.interface(packet.destination)

    @staticmethod
    def _moved(branch: Branch, **interfaces: str | None) -> Branch:
        return replace(branch, packet=replace(branch.packet, **interfaces))

    @staticmethod
    def _stopped(branch: Branch, why: str, effect: str) -> Branch:
        return branch.fires(Fired("routing", "", "", "", -1, effect, branch.packet, branch.packet, why))

    # --- one hook ---

    def _at(self, hook: HookName, start: Branch, without: frozenset[Kind] = frozenset()) -> list[Ended]:
        """Every way out of a hook."""
        pending, ended = [start], list[Ended]()
        for priority, at_once in groupby(self._chains(hook, without), key=lambda c: c.priority):
            same = [c for c in at_once if c.kind != "nat" or self.translation is None]
            if priority >= _CONNTRACK_PRIORITY:
                pending = [_asked(b) for b in pending]
            following: list[Branch] = []
            for branch in pending:
                for end, after in self._all_of(same, start.packet, branch):
                    if end is End.ACCEPT:
                        following.append(after)
                    else:
                        ended.append((end, after))
            pending = folded([self._translated(hook, priority, b) for b in following])
        pending = [_asked(b) for b in pending]
        packet = replace(start.packet, before_conntrack=False)
        passing = Fired(hook, "", "", "", -1, "pass", packet, packet)
        return ended + [(End.ACCEPT, b if b.trail is not start.trail else b.fires(passing)) for b in pending]

    def _chains(self, hook: HookName, without: frozenset[Kind]) -> Iterable[BaseChain]:
        """With a place for what conntrack does, where it does anything."""
        found = [c for c in self.chains.get(hook, ()) if c.kind not in without]
        if self.translation is not None and "nat" not in without and hook != "forward":
            priority = _DESTINATION_PRIORITY if hook in _DESTINATION_HOOKS else _SOURCE_PRIORITY
            found.append(BaseChain(hook, priority, "nat", _NO_RULES, ""))
            found.sort(key=lambda c: c.priority)
        return found

    def _all_of(self, chains: Sequence[BaseChain], first: Packet, start: Branch) -> list[Ended]:
        """Chains of one priority run in the order in which they were registered, which no listing tells."""
        if len(chains) < 2 or self.in_order:
            return self._in_order(chains, first, start)
        names = [f"{c.rules.program} {c.rules.table} {c.chain}" for c in chains]
        order = Condition(
            f"order {chains[0].hook} {names}",
            "order",
            f"{names[0]} runs before {names[1]}",
            f"{names[1]} runs before {names[0]}",
        )
        one, other = split(start, order)
        forth = self._in_order(chains, first, one) if one else []
        back = self._in_order(chains[::-1], first, other) if other else []
        return _settled(forth + back)

    def _in_order(self, chains: Sequence[BaseChain], first: Packet, start: Branch) -> list[Ended]:
        pending, ended = [start], list[Ended]()
        for chain in chains:
            following: list[Branch] = []
            for branch in pending:
                if chain.kind == "nat" and _is_settled(chain.hook, first, branch):
                    following.append(branch)
                    continue
                for end, after in through(chain.rules, chain.chain, chain.hook, branch):
                    settled = _policy(chain, end, after)
                    if settled[0] is End.ACCEPT:
                        following.append(settled[1])
                    else:
                        ended.append(settled)
            pending = folded(following)
        return ended + [(End.ACCEPT, b) for b in pending]

    def _translated(self, hook: HookName, priority: int, branch: Branch) -> Branch:
        if self.translation is None:
            return branch
        packet, (destination, source) = branch.packet, self.translation
        if hook in _DESTINATION_HOOKS and priority == _DESTINATION_PRIORITY and destination:
            after = replace(packet, destination=destination.address, destination_port=destination.port)
            what = f"destination {socket(*destination)}"
        elif hook in _SOURCE_HOOKS and priority == _SOURCE_PRIORITY and source:
            after = replace(packet, source=source.address, source_port=source.port)
            what = f"source {socket(*source)}"
        else:
            return branch
        if after == packet:
            return branch
        return branch.fires(Fired(hook, "", "conntrack", "", -1, what, packet, after, "as its connection"))


class _NoRules:
    """Stands where conntrack rewrites."""

    program = table = ""

    def applicable(self, chain: str, packet: Packet) -> Iterable[int]:
        return ()

    def judge(self, chain: str, rule: int, hook: str, branch: Branch) -> list[Judged]:
        return [(branch, End.FELL_THROUGH)]

    def told(self, chain: str, rule: int) -> tuple[str, str, int]:
        return "", "", 0


_NO_RULES = _NoRules()


def _asked(branch: Branch) -> Branch:
    """Once conntrack knows it."""
    if not branch.packet.before_conntrack:
        return branch
    return replace(branch, packet=replace(branch.packet, before_conntrack=False))


def _is_settled(hook: HookName, first: Packet, branch: Branch) -> bool:
    """Whether the connection's NAT of this hook is settled: by a table before, or as it is not tracked or not new.

    A rule that rewrote to what was there already has settled it, too.
    """
    now = branch.packet
    if now.state != "NEW":
        return True
    trail = branch.trail
    while trail is not None and trail.fired.hook == hook:
        if trail.fired.effect.partition(" ")[0] in _REWRITES:
            return True
        trail = trail.earlier
    if hook in _DESTINATION_HOOKS:
        return now.destination_rewritten and not first.destination_rewritten
    return now.source_rewritten


def _policy(chain: BaseChain, end: End, branch: Branch) -> Ended:
    if end is not End.FELL_THROUGH:
        return end, branch
    if chain.policy == "accept":
        return End.ACCEPT, branch
    fired = Fired(
        chain.hook,
        chain.rules.program,
        chain.rules.table,
        chain.chain,
        -1,
        "drop",
        branch.packet,
        branch.packet,
        "policy drop",
    )
    return End.DROP, branch.fires(fired)


def _settled(ended: list[Ended]) -> list[Ended]:
    """Equal ends as one."""
    by_end: dict[End, list[Branch]] = {}
    for end, branch in ended:
        by_end.setdefault(end, []).append(branch)
    return [(end, branch) for end, branches in by_end.items() for branch in folded(branches)]

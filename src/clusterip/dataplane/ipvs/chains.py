"""The chains around IPVS: which packets are masqueraded, admitted and refused. They ask sets, so they are the same
whatever the Services are, but for rules that ask an empty set, which are left out. Pure."""

from collections.abc import Collection, Iterator
from enum import Enum
from typing import NamedTuple, TypeAlias

from clusterip.dataplane.ipvs import sets
from clusterip.dataplane.ipvs.compile import At
from clusterip.dataplane.ipvs.config import Config
from clusterip.dataplane.ipvs.sets import SetKind
from clusterip.dataplane.node import FromCIDR, FromInterface
from clusterip.services.table import PROTOCOL_NUMBERS

TABLES = ("nat", "filter")
_Names: TypeAlias = Collection[tuple[str, str]]  # table and chain
_MASQ = "-j KUBE-MARK-MASQ"
# Chains that iptables mode has by the same names, with other rules; jumps that are the same to the letter.
SHARED = frozenset(
    {
        ("nat", "KUBE-SERVICES"),
        ("nat", "KUBE-POSTROUTING"),
        ("nat", "KUBE-MARK-MASQ"),
        ("filter", "KUBE-FORWARD"),
        ("filter", "KUBE-PROXY-FIREWALL"),
    }
)


class Shared(Enum):
    """What a clean-up does with chains in `SHARED`."""

    REMOVE = "remove"
    EMPTY = "empty"  # a clean-up of iptables mode comes after, and removes them
    LEAVE = "leave"  # iptables mode has written its own rules into them


class Jump(NamedTuple):
    """A rule of ours in a built-in chain."""

    table: str
    chain: str  # "INPUT"
    spec: str  # what follows "-A <chain> "


class Chain(NamedTuple):
    table: str
    name: str
    rules: tuple[str, ...]  # specs: what follows "-A <name> "


class Shape(NamedTuple):
    """What the rules depend on."""

    used: frozenset[SetKind] = frozenset()  # sets that have members
    drops: frozenset[At] = frozenset()


def jumps() -> tuple[Jump, ...]:
    """In the order in which they stand in the kernel after a clean start, the top one first."""

    def to(chain: str, comment: str) -> str:
        return f'-m comment --comment "{comment}" -j {chain}'

    portals = to("KUBE-SERVICES", "kubernetes service portals")
    firewall = to("KUBE-PROXY-FIREWALL", "kube-proxy firewall rules")
    by_chain = (
        ("nat", "PREROUTING", (portals,)),
        ("nat", "OUTPUT", (portals,)),
        ("nat", "POSTROUTING", (to("KUBE-POSTROUTING", "kubernetes postrouting rules"),)),
        (
            "filter",
            "INPUT",
            (
                to("KUBE-IPVS-FILTER", "kubernetes ipvs access filter"),
                firewall,
                to("KUBE-NODE-PORT", "kubernetes health check rules"),
            ),
        ),
        ("filter", "FORWARD", (firewall, to("KUBE-FORWARD", "kubernetes forwarding rules"))),
        ("filter", "OUTPUT", (to("KUBE-IPVS-OUT-FILTER", "kubernetes ipvs access filter"),)),
    )
    return tuple(Jump(table, chain, spec) for table, chain, specs in by_chain for spec in specs)


def chains(shape: Shape, config: Config) -> tuple[Chain, ...]:
    ask = _Asker(shape, config)
    return (
        Chain("nat", "KUBE-LOAD-BALANCER", (*ask.rule(sets.BALANCER_LOCAL, "-j RETURN"), _MASQ)),
        Chain("nat", "KUBE-MARK-MASQ", (f"-j MARK --set-xmark {config.mark_text}/{config.mark_text}",)),
        Chain("nat", "KUBE-NODE-PORT", tuple(_node_ports(ask))),
        Chain("nat", "KUBE-POSTROUTING", tuple(_postrouting(ask))),
        Chain("nat", "KUBE-SERVICES", tuple(_services(ask))),
        Chain("filter", "KUBE-FORWARD", tuple(_forward(config))),
        Chain("filter", "KUBE-IPVS-FILTER", tuple(_access(ask))),
        Chain("filter", "KUBE-IPVS-OUT-FILTER", tuple(_drop(at, config) for at in sorted(shape.drops))),
        Chain("filter", "KUBE-NODE-PORT", tuple(ask.rule(sets.HEALTH_CHECK, "-j ACCEPT"))),
        Chain("filter", "KUBE-PROXY-FIREWALL", tuple(ask.rule(sets.FIREWALL, "-j KUBE-SOURCE-RANGES-FIREWALL"))),
        Chain(
            "filter",
            "KUBE-SOURCE-RANGES-FIREWALL",
            (*ask.rule(sets.SOURCE_CIDR, "-j RETURN"), *ask.rule(sets.SOURCE_IP, "-j RETURN"), "-j DROP"),
        ),
    )


def complete(shape: Shape, config: Config) -> str:
    """One input for `iptables-restore` that gives, from empty tables, all of it."""
    return _text(shape, config, [(j.table, f"-A {j.chain} {j.spec}\n") for j in jumps()])


def missing(save: str, shape: Shape, config: Config) -> tuple[str, ...]:
    """Our rules that an `iptables-save` of all tables does not show, jumps among them."""
    there: set[tuple[str, str]] = set()
    table = ""
    for line in save.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        there.add((table, line))
    wanted = [(j.table, f"-A {j.chain} {j.spec}") for j in jumps()]
    wanted += [(c.table, f"-A {c.name} {spec}") for c in chains(shape, config) for spec in c.rules]
    return tuple(f"{table}: {line}" for table, line in wanted if (table, line) not in there)


def rewrite(shape: Shape, config: Config, installed: Collection[Jump]) -> str:
    """One input for `iptables-restore --noflush` that empties our chains and fills them anew, one transaction a table,
    and puts the jumps that are not `installed` in front."""
    # Each goes to the top, so the one that is to stand there comes last.
    missing = [j for j in reversed(jumps()) if j not in installed]
    return _text(shape, config, [(j.table, f"-I {j.chain} {j.spec}\n") for j in missing])


def remove(chains_there: _Names, jumps_there: Collection[Jump], emptied: _Names = ()) -> str:
    """One input for `iptables-restore --noflush` that takes away what is there of ours: (table, chain), jumps. The
    chains in `emptied` stay, without a rule."""
    blocks = []
    for table in TABLES:
        ours = sorted(c.name for c in chains(Shape(), Config()) if c.table == table)
        ours = [name for name in ours if (table, name) in chains_there]
        lines = [f":{name} - [0:0]\n" for name in ours]
        lines += [f"-D {j.chain} {j.spec}\n" for j in jumps() if j.table == table and j in jumps_there]
        lines += [f"-X {name}\n" for name in ours if (table, name) not in emptied]
        blocks += [f"*{table}\n{''.join(lines)}COMMIT\n"] if lines else []
    return "".join(blocks)


def _text(shape: Shape, config: Config, jump_lines: Collection[tuple[str, str]]) -> str:
    blocks = []
    for table in TABLES:
        ours = [c for c in chains(shape, config) if c.table == table]
        lines = [f":{c.name} - [0:0]\n" for c in ours]
        lines += [line for of, line in jump_lines if of == table]
        lines += [f"-A {c.name} {spec}\n" for c in ours for spec in c.rules]
        blocks.append(f"*{table}\n{''.join(lines)}COMMIT\n")
    return "".join(blocks)


class _Asker:
    """Writes rules that ask a set."""

    __slots__ = ("config", "used")

    def __init__(self, shape: Shape, config: Config) -> None:
        self.config = config
        self.used = shape.used

    def rule(self, kind: SetKind, then: str, *, before: str = "", directions: str = "") -> Iterator[str]:
        """`before`: matches that come first."""
        if kind in self.used:
            asked = f"--match-set {sets.name(kind, self.config)} {directions or kind.directions}"
            yield f"{before}-m set {asked} {then}"


def _services(ask: _Asker) -> Iterator[str]:
    yield f"-s {'::1/128' if ask.config.ipv6 else '127.0.0.0/8'} -j RETURN"
    yield from ask.rule(sets.BALANCER, "-j KUBE-LOAD-BALANCER")
    yield from _cluster_ip(ask)
    yield from ask.rule(sets.EXTERNAL_IP, _MASQ)
    for kind in (sets.EXTERNAL_IP, sets.EXTERNAL_IP_LOCAL):
        # What came in from another machine, and what is for this one; others' routes stay theirs.
        elsewhere = "-m physdev ! --physdev-is-in -m addrtype ! --src-type LOCAL -j ACCEPT"
        yield from ask.rule(kind, elsewhere)
        yield from ask.rule(kind, "-m addrtype --dst-type LOCAL -j ACCEPT")
    yield "-m addrtype --dst-type LOCAL -j KUBE-NODE-PORT"
    yield from ask.rule(sets.CLUSTER_IP, "-j ACCEPT")
    yield from ask.rule(sets.BALANCER, "-j ACCEPT")


def _cluster_ip(ask: _Asker) -> Iterator[str]:
    """A packet for a ClusterIP that is no pod's must come back through this node."""
    if ask.config.masquerade_all:
        return ask.rule(sets.CLUSTER_IP, _MASQ)
    match ask.config.detector:
        case FromCIDR(cidr):
            return ask.rule(sets.CLUSTER_IP, _MASQ, before=f"! -s {cidr} ")
        case FromInterface(pattern):
            return ask.rule(sets.CLUSTER_IP, _MASQ, before=f"! -i {pattern} ")
        case None:
            # The node's own, which have the ClusterIP as their source as well: no backend could answer that.
            return ask.rule(sets.CLUSTER_IP, _MASQ, directions="src,dst")


def _node_ports(ask: _Asker) -> Iterator[str]:
    for protocol, (local, every) in sets.NODE_PORTS.items():
        yield from ask.rule(local, "-j RETURN", before=f"-p {protocol.lower()} ")
        yield from ask.rule(every, _MASQ, before=f"-p {protocol.lower()} ")


def _postrouting(ask: _Asker) -> Iterator[str]:
    mark = ask.config.mark_text
    yield from ask.rule(sets.LOOP_BACK, "-j MASQUERADE")
    yield f"-m mark ! --mark {mark}/{mark} -j RETURN"
    # The bit is cleared, so that a packet that comes by again (a tunnel's) is judged anew.
    yield f"-j MARK --set-xmark {mark}/0x0"
    yield "-j MASQUERADE" + (" --random-fully" if ask.config.random_fully else "")


def _forward(config: Config) -> Iterator[str]:
    yield f"-m mark --mark {config.mark_text}/{config.mark_text} -j ACCEPT"
    yield "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"


def _access(ask: _Asker) -> Iterator[str]:
    """The addresses are this node's, but only the Services' ports are for others: not what else listens here."""
    for kind in (sets.BALANCER, sets.CLUSTER_IP, sets.EXTERNAL_IP, sets.EXTERNAL_IP_LOCAL, sets.HEALTH_CHECK):
        yield from ask.rule(kind, "-j RETURN")
    with_ = "icmp6" if ask.config.ipv6 else "icmp"
    refusal = f"-j REJECT --reject-with {with_}-port-unreachable"
    yield from ask.rule(sets.ADDRESSES, refusal, before="-m conntrack --ctstate NEW ")


def _drop(at: At, config: Config) -> str:
    """IPVS has rewritten the packet when it comes by here: the source is still the balancer's address."""
    service = f"-m ipvs --vproto {PROTOCOL_NUMBERS[at.protocol]} --vaddr {at.address} --vport {at.port}"
    return f"-s {at.address}/{config.host_bits} {service} -j DROP"

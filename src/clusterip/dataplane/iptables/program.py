"""What surrounds the pieces: the fixed chains, the jumps from the built-in chains, the complete program. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from clusterip.dataplane.iptables import names
from clusterip.dataplane.iptables.compile import NFACCT, Piece
from clusterip.dataplane.iptables.config import Config

TABLES = ("mangle", "nat", "filter")


class Jump(NamedTuple):
    """A rule of ours in a built-in chain."""

    table: str
    chain: str  # "INPUT"
    spec: str  # what follows "-A <chain> "


class FixedChain(NamedTuple):
    """A chain that is there whatever the Services are. `tail` rules come after the lines of pieces."""

    table: str
    name: str
    tail: tuple[str, ...] = ()  # specs: what follows "-A <name> "


@dataclass(frozen=True, slots=True)
class Counts:
    """Rules in chains of ours, or written to them; jumps from built-in chains are not counted, as kube-proxy does."""

    nat: int = 0
    filter: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.nat + other.nat, self.filter + other.filter)

    def __sub__(self, other: "Counts") -> "Counts":
        return Counts(self.nat - other.nat, self.filter - other.filter)


NONE = Counts()


def count(piece: Piece | None) -> Counts:
    """Rules of one piece; of none: zero."""
    return Counts(piece.nat_rules, piece.filter_rules) if piece else NONE


def fixed_counts(config: Config) -> Counts:
    by_table = {table: sum(len(c.tail) for c in fixed(config) if c.table == table) for table in TABLES}
    return Counts(by_table["nat"], by_table["filter"])


def jumps(config: Config) -> tuple[Jump, ...]:
    """In the order in which they stand in the kernel after a clean start, the top one first."""
    new = "-m conntrack --ctstate NEW -m comment --comment"
    balancers = f'{new} "kubernetes load balancer firewall" -j {names.PROXY_FIREWALL}'
    visible = f'{new} "kubernetes externally-visible service portals" -j {names.EXTERNAL_SERVICES}'
    portals = f'{new} "kubernetes service portals" -j {names.SERVICES}'
    forward = f'-m comment --comment "kubernetes forwarding rules" -j {names.FORWARD}'
    health = f'-m comment --comment "kubernetes health check service ports" -j {names.NODE_PORTS}'
    service = f'-m comment --comment "kubernetes service portals" -j {names.SERVICES}'
    post = f'-m comment --comment "kubernetes postrouting rules" -j {names.POSTROUTING}'
    firewall = (f"-j {names.FIREWALL}",) if config.localhost else ()
    by_chain = (
        ("nat", "PREROUTING", (service,)),
        ("nat", "OUTPUT", (service,)),
        ("nat", "POSTROUTING", (post,)),
        ("filter", "INPUT", (balancers, health, visible, *firewall)),
        ("filter", "FORWARD", (balancers, forward, portals, visible)),
        ("filter", "OUTPUT", (balancers, portals, *firewall)),
    )
    return tuple(Jump(table, chain, spec) for table, chain, specs in by_chain for spec in specs)


def fixed(config: Config) -> tuple[FixedChain, ...]:
    mark = config.mark_text
    chains = [
        FixedChain("mangle", names.CANARY),
        FixedChain("nat", names.CANARY),
        FixedChain("nat", names.MARK_MASQ, (f"-j MARK --set-xmark {mark}/{mark}",)),
        FixedChain("nat", names.POSTROUTING, _postrouting(config)),
        FixedChain("nat", names.NODE_PORTS),
        FixedChain("nat", names.SERVICES, _node_port_jumps(config)),
        FixedChain("filter", names.CANARY),
        FixedChain("filter", names.SERVICES),
        FixedChain("filter", names.EXTERNAL_SERVICES),
        FixedChain("filter", names.NODE_PORTS),
        FixedChain("filter", names.PROXY_FIREWALL),
        FixedChain("filter", names.FORWARD, _forward(config)),
    ]
    if config.localhost:
        chains.append(FixedChain("filter", names.FIREWALL, (_block_localnet(),)))
    return tuple(chains)


def _postrouting(config: Config) -> tuple[str, ...]:
    mark = config.mark_text
    fully = " --random-fully" if config.random_fully else ""
    return (
        f"-m mark ! --mark {mark}/{mark} -j RETURN",
        # The bit is cleared, so that a packet that comes by again (a tunnel's) is judged anew.
        f"-j MARK --set-xmark {mark}/0x0",
        f'-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE{fully}',
    )


def _node_port_jumps(config: Config) -> tuple[str, ...]:
    note = "kubernetes service nodeports; NOTE: this must be the last rule in this chain"
    to = f'-m comment --comment "{note}"'
    if config.node_port_addresses is None:
        loopback = "! -d ::1/128 " if config.ipv6 else "" if config.localhost else "! -d 127.0.0.0/8 "
        return (f"{loopback}{to} -m addrtype --dst-type LOCAL -j {names.NODE_PORTS}",)
    served = [a for a in config.node_port_addresses if config.localhost or not _is_loopback(a)]
    return tuple(f"-d {address}/{config.host_bits} {to} -j {names.NODE_PORTS}" for address in served)


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _forward(config: Config) -> tuple[str, ...]:
    counter = f"{NFACCT}ct_state_invalid_dropped_pkts " if config.nfacct else ""
    invalid = (f"-m conntrack --ctstate INVALID {counter}-j DROP",) if config.drop_invalid else ()
    mark = f"-m mark --mark {config.mark_text}/{config.mark_text}"
    established = "-m conntrack --ctstate RELATED,ESTABLISHED"
    return (
        *invalid,
        f'-m comment --comment "kubernetes forwarding rules" {mark} -j ACCEPT',
        f'-m comment --comment "kubernetes forwarding conntrack rule" {established} -j ACCEPT',
    )


def _block_localnet() -> str:
    """route_localnet=1 would let a neighbour reach what listens on 127.0.0.1 only."""
    comment = '-m comment --comment "block incoming localnet connections"'
    return f"! -s 127.0.0.0/8 -d 127.0.0.0/8 {comment} -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"


def complete(pieces: Iterable[Piece], config: Config) -> str:
    """One input for `iptables-restore` that gives, from empty tables, the whole program: a block a table."""
    ordered = sorted(pieces, key=lambda p: p.key)
    blocks = []
    for table in TABLES:
        lines = shared_lines(ordered, table)
        fixed_chains = [c for c in fixed(config) if c.table == table]
        own = [c for p in ordered for c in p.chains] if table == "nat" else []
        text = [f":{name} - [0:0]\n" for name in sorted([c.name for c in fixed_chains] + [c.name for c in own])]
        text += [f"-A {j.chain} {j.spec}\n" for j in jumps(config) if j.table == table]
        for chain in sorted(fixed_chains, key=lambda c: c.name):
            text += [f"-A {chain.name} {spec}\n" for spec in (*lines[chain.name], *chain.tail)]
        text += [c.rules for c in sorted(own, key=lambda c: c.name)]
        blocks.append(f"*{table}\n{''.join(text)}COMMIT\n")
    return "".join(blocks)


def shared_lines(pieces: Iterable[Piece], table: str) -> dict[str, list[str]]:
    """Specs of the pieces' lines by shared chain; a chain that none uses gives an empty list."""
    by_chain: dict[str, list[str]] = defaultdict(list)
    for piece in pieces:
        for line in piece.nat if table == "nat" else piece.filter if table == "filter" else ():
            by_chain[line.chain].append(line.spec)
    return by_chain

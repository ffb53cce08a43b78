"""Rules of iptables as values. Tuples keep the order of the text; nothing is resolved, nothing is lost.

A match or target that is not modelled is kept as its words (`OtherMatch`, `OtherTarget`), so that whoever walks the
rules can say so instead of passing over it.
"""

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

# --- matches -----------------------------------------------------------------------------------------------------


def lone_address(network: str) -> str:
    """The address of a network that holds no other: "10.0.0.1/32", "fd00::1/128", or one without a length. Else ""."""
    address, _, bits = network.partition("/")
    if "," in network or bits not in ("", "128" if ":" in address else "32"):
        return ""
    return address


class Source(Struct, frozen=True, gc=False):
    network: str  # "10.244.0.0/16", "10.0.0.1/32"
    negated: bool = False


class Destination(Struct, frozen=True, gc=False):
    network: str
    negated: bool = False


class InInterface(Struct, frozen=True, gc=False):
    pattern: str  # a name, or a prefix and "+"
    negated: bool = False


class OutInterface(Struct, frozen=True, gc=False):
    pattern: str
    negated: bool = False


class IPProtocol(Struct, frozen=True, gc=False):
    name: str  # "tcp", "udp", "sctp", "icmp", "47"
    negated: bool = False


class Comment(Struct, frozen=True, gc=False):
    text: str


class ConnState(Struct, frozen=True, gc=False):
    """True if the connection is in one of `states` (DNAT and SNAT among them: its addresses were rewritten)."""

    states: tuple[str, ...]
    negated: bool = False
    module: Literal["conntrack", "state"] = "conntrack"


class Mark(Struct, frozen=True, gc=False):
    """True if mark & mask == value."""

    value: int
    mask: int = 0xFFFFFFFF
    negated: bool = False


class Random(Struct, frozen=True, gc=False):
    """Chance of a match in units of 2**-31: all that the kernel keeps. Source: net/netfilter/xt_statistic.c."""

    numerator: int  # 0..2**31
    negated: bool = False


class Nth(Struct, frozen=True, gc=False):
    """True for one packet in `every`, beginning with number `packet`, counted from 0."""

    every: int
    packet: int = 0
    negated: bool = False


class Recent(Struct, frozen=True, gc=False):
    """The list of addresses seen lately. `set` notes the packet's and matches; `rcheck` asks whether it is there."""

    action: Literal["set", "rcheck", "update", "remove"]
    name: str = "DEFAULT"
    seconds: int = 0  # 0: however long ago
    reap: bool = False  # forget what is older than `seconds`
    hitcount: int = 0
    ttl: bool = False
    mask: str = ""  # "": the whole address
    side: Literal["rsource", "rdest", ""] = "rsource"  # "": as not written, which means rsource
    negated: bool = False


class AddrType(Struct, frozen=True, gc=False):
    """What kind of address the kernel's routing takes it for: "LOCAL", "UNICAST"; "": not asked."""

    source: str = ""
    destination: str = ""
    source_negated: bool = False
    destination_negated: bool = False
    limit: Literal["in", "out", ""] = ""  # only addresses of the interface it came in by, or goes out by


class NfAcct(Struct, frozen=True, gc=False):
    """Counts, and always matches."""

    name: str


class InSet(Struct, frozen=True, gc=False):
    name: str
    directions: tuple[str, ...]  # "src", "dst", one a dimension of the set
    negated: bool = False


class PortRange(NamedTuple):
    first: int
    last: int


class Ports(Struct, frozen=True, gc=False):
    """Ports of one protocol; None: any. In TCP also flags: of those in `flag_mask` just `flags` are set."""

    protocol: Literal["tcp", "udp", "sctp", "udplite", "dccp"]
    source: PortRange | None = None
    destination: PortRange | None = None
    source_negated: bool = False
    destination_negated: bool = False
    flag_mask: str = ""  # "FIN,SYN,RST,ACK"; "": not asked
    flags: str = ""  # "SYN"; "NONE"
    flags_negated: bool = False


class MultiPort(Struct, frozen=True, gc=False):
    side: Literal["sports", "dports", "ports"]  # "ports": either
    ports: tuple[PortRange, ...]
    negated: bool = False


class PhysDev(Struct, frozen=True, gc=False):
    """Ports of a bridge. None: not asked; of names "": not asked."""

    came_in: str = ""
    goes_out: str = ""
    came_in_negated: bool = False
    goes_out_negated: bool = False
    is_in: bool | None = None
    is_out: bool | None = None
    is_bridged: bool | None = None


class Limit(Struct, frozen=True, gc=False):
    rate: str  # "5/min", "10/sec"
    burst: int | None = None  # None: the kernel's 5


class OtherMatch(Struct, frozen=True, gc=False):
    """Not modelled. `module` "": an option that stands before any -m."""

    module: str
    words: tuple[str, ...] = ()


Match: TypeAlias = (
    Source
    | Destination
    | InInterface
    | OutInterface
    | IPProtocol
    | Comment
    | ConnState
    | Mark
    | Random
    | Nth
    | Recent
    | AddrType
    | NfAcct
    | InSet
    | Ports
    | MultiPort
    | PhysDev
    | Limit
    | OtherMatch
)


# --- targets -----------------------------------------------------------------------------------------------------


class Accept(Struct, frozen=True, gc=False):
    pass


class Drop(Struct, frozen=True, gc=False):
    pass


class Return(Struct, frozen=True, gc=False):
    pass


class Reject(Struct, frozen=True, gc=False):
    how: str = ""  # "icmp-port-unreachable", "tcp-reset"; "": the kernel's default


class SetMark(Struct, frozen=True, gc=False):
    """mark = (mark & ~mask) ^ value."""

    value: int
    mask: int = 0xFFFFFFFF


class Masquerade(Struct, frozen=True, gc=False):
    ports: str = ""  # "1024-65535"; "": any
    random: bool = False
    random_fully: bool = False


class DNAT(Struct, frozen=True, gc=False):
    to: str  # "10.244.0.3:80", "[fd00::3]:80", "10.0.0.1-10.0.0.9"
    random: bool = False
    persistent: bool = False


class SNAT(Struct, frozen=True, gc=False):
    to: str
    random: bool = False
    random_fully: bool = False
    persistent: bool = False


class Jump(Struct, frozen=True, gc=False):
    chain: str


class Goto(Struct, frozen=True, gc=False):
    """Like Jump, but the end of `chain` goes back to where the last Jump came from."""

    chain: str


class OtherTarget(Struct, frozen=True, gc=False):
    """Not modelled."""

    name: str
    words: tuple[str, ...] = ()


Target: TypeAlias = (
    Accept | Drop | Return | Reject | SetMark | Masquerade | DNAT | SNAT | Jump | Goto | OtherTarget | None
)  # None: only counts


# --- rules, chains, tables -----------------------------------------------------------------------------------------


class Counters(NamedTuple):
    packets: int
    bytes: int


class Rule(Struct, frozen=True):
    matches: tuple[Match, ...] = ()
    target: Target = None
    counters: Counters | None = None  # None: the text does not give them

    @property
    def comment(self) -> str:
        """The text of its first comment, "" if it has none."""
        return next((m.text for m in self.matches if isinstance(m, Comment)), "")


class Chain(Struct, frozen=True):
    name: str
    rules: tuple[Rule, ...] = ()
    policy: str = "-"  # "ACCEPT", "DROP"; "-": it is no built-in chain
    counters: Counters = Counters(0, 0)


class Table(Struct, frozen=True):
    name: str
    chains: Mapping[str, Chain]  # by name, in the order of the text; never changed

    def rules(self, chain: str) -> tuple[Rule, ...]:
        """() if there is no such chain."""
        found = self.chains.get(chain)
        return found.rules if found else ()


class Ruleset(Struct, frozen=True):
    tables: Mapping[str, Table]  # by name, in the order of the text; never changed

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables.values())

    def rules(self, table: str, chain: str) -> tuple[Rule, ...]:
        """() if there is no such table or chain."""
        found = self.tables.get(table)
        return found.rules(chain) if found else ()

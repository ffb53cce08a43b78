"""Rules of nftables as values: what `nft list ruleset` and `nft -j list ruleset` say, in one form.

A rule is a row of statements, judged from left to right; a `Match` that is false ends it. What is not modelled is kept
word by word (`OtherExpression`, `OtherStatement`, `Xt`), so that whoever walks the rules can say so instead of passing
over it.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

# --- what stands for one value --------------------------------------------------------------------------------------


class Number(Struct, frozen=True, gc=False):
    value: int


class Address(Struct, frozen=True, gc=False):
    text: str  # "10.96.0.1", "fd00::1"; never with a prefix length


class Prefix(Struct, frozen=True, gc=False):
    address: str
    length: int


class Word(Struct, frozen=True, gc=False):
    """A name that its place gives a meaning: "tcp", "established", "local", "exists", a hardware address, "3h"."""

    text: str


class Quoted(Struct, frozen=True, gc=False):
    """Text in quotes: names of interfaces (an asterisk at the end stands for any rest), of log prefixes, of helpers."""

    text: str


class Range(Struct, frozen=True, gc=False):
    first: "Number | Address | Word | Quoted | Concat"
    last: "Number | Address | Word | Quoted | Concat"


class Any(Struct, frozen=True, gc=False):
    """The element "*": what no other element of its set or map holds."""


class Flags(Struct, frozen=True, gc=False):
    """ "established,related", "fin,syn / fin,syn,rst,ack": bits of a mask; in a match it is enough that one is set."""

    parts: tuple["Expression", ...]


class SetName(Struct, frozen=True, gc=False):
    """ "@service-ips": a set or map of the same table."""

    name: str


class Element(Struct, frozen=True, gc=False):
    key: "Expression"
    value: "Expression | Verdict | None" = None  # None: of a set
    comment: str = ""
    timeout: str = ""  # "3h"; "": that of the set
    expires: str = ""  # "2h59m58s784ms"
    counters: tuple["Statement", ...] = ()  # what the kernel keeps for it: Counter, Limit


class Elements(Struct, frozen=True, gc=False):
    """A set or map without a name: "{ 80, 443 }", "{ 0 : goto a, 1 : goto b }"."""

    elements: tuple[Element, ...]


# --- what is computed from the packet -------------------------------------------------------------------------------


class Payload(Struct, frozen=True, gc=False):
    """ "ip daddr", "th dport", "tcp flags", "icmp type". `th` is the ports of whatever the protocol is."""

    protocol: str
    field: str


class Meta(Struct, frozen=True, gc=False):
    key: str  # "l4proto", "mark", "iifname", "oifname", "iif", "oif", "nfproto", "protocol", "pkttype", "skuid"


class Ct(Struct, frozen=True, gc=False):
    """A connection's property: "state", "status", "mark", "ip saddr", "proto-dst"."""

    key: str
    direction: Literal["original", "reply", ""] = ""


class Fib(Struct, frozen=True, gc=False):
    """What a routing lookup gives: "fib daddr . iif type"."""

    by: tuple[str, ...]  # "saddr", "daddr", "mark", "iif", "oif"
    result: str  # "type", "oif", "oifname"


class Numgen(Struct, frozen=True, gc=False):
    """`offset` + a number from 0 to modulus - 1: equally likely, or the next in turn ("inc")."""

    mode: Literal["random", "inc"]
    modulus: int
    offset: int = 0


class JHash(Struct, frozen=True, gc=False):
    """`offset` + Jenkins' hash of `key` (Symhash: None) mod `modulus`."""

    key: "Expression | None"
    modulus: int
    seed: int | None = None  # None: drawn by the kernel at load
    offset: int = 0


class Concat(Struct, frozen=True, gc=False):
    """ "ip daddr . meta l4proto . th dport", "10.96.0.1 . tcp . 443"."""

    parts: tuple["Expression", ...]


class Binary(Struct, frozen=True, gc=False):
    operator: Literal["&", "|", "^", "<<", ">>"]
    left: "Expression"
    right: "Expression"


class Lookup(Struct, frozen=True, gc=False):
    """ "numgen random mod 2 map { 0 : 10.244.0.3 . 80, ... }"; where nothing is found the rule ends."""

    key: "Expression"
    map: "SetName | Elements"


class OtherExpression(Struct, frozen=True, gc=False):
    """Not modelled; as nft writes it."""

    text: str


Expression: TypeAlias = (
    Number
    | Address
    | Prefix
    | Word
    | Quoted
    | Range
    | Any
    | Flags
    | SetName
    | Elements
    | Payload
    | Meta
    | Ct
    | Fib
    | Numgen
    | JHash
    | Concat
    | Binary
    | Lookup
    | OtherExpression
)

# --- verdicts -------------------------------------------------------------------------------------------------------


class Accept(Struct, frozen=True, gc=False):
    """Ends this base chain; later base chains of the hook still judge the packet."""


class Drop(Struct, frozen=True, gc=False):
    pass


class Return(Struct, frozen=True, gc=False):
    """Back to the chain that jumped; in a base chain the policy."""


class Continue(Struct, frozen=True, gc=False):
    """On with the next rule."""


class Jump(Struct, frozen=True, gc=False):
    chain: str


class Goto(Struct, frozen=True, gc=False):
    """Like Jump, but the end of `chain` goes back to where the last Jump came from."""

    chain: str


Verdict: TypeAlias = Accept | Drop | Return | Continue | Jump | Goto

# --- statements -----------------------------------------------------------------------------------------------------


class Match(Struct, frozen=True, gc=False):
    """ "" as operator: equal; member of a set, prefix or range; of flags: any of these bits is set."""

    left: Expression
    operator: Literal["", "==", "!=", "<", ">", "<=", ">="]
    right: Expression


class VerdictMap(Struct, frozen=True, gc=False):
    """ "ip daddr . meta l4proto . th dport vmap @service-ips"; where nothing is found the next statement follows."""

    key: Expression
    map: SetName | Elements


class Reject(Struct, frozen=True, gc=False):
    how: str = ""  # "tcp reset", "icmp port-unreachable", "icmpx admin-prohibited"; "": the kernel's default


class Nat(Struct, frozen=True, gc=False):
    """`address` may be a Lookup that gives address and port in one: "10.244.0.3 . 80"."""

    kind: Literal["dnat", "snat", "masquerade", "redirect"]
    address: Expression | None = None
    port: Expression | None = None  # a Number or a Range
    family: Literal["ip", "ip6", ""] = ""
    form: str = ""  # "addr . port", "prefix", as nft writes before "to"; "": an address, and a port perhaps
    flags: tuple[str, ...] = ()  # "random", "fully-random", "persistent"


class Mangle(Struct, frozen=True, gc=False):
    """ "meta mark set meta mark | 0x00004000", "ct mark set 1"."""

    target: Expression
    value: Expression


class Update(Struct, frozen=True, gc=False):
    """ "update @affinity-x { ip saddr }": the rule notes the packet in a set, or in a map with `value`."""

    operation: Literal["add", "update", "delete"]
    set: str
    key: Expression
    value: Expression | None = None
    timeout: str = ""
    statements: tuple["Statement", ...] = ()  # "limit rate 10/second" and the like, kept for each element


class Counter(Struct, frozen=True, gc=False):
    packets: int = 0
    bytes: int = 0
    name: str = ""  # a counter that the table names; its numbers stand there


class Limit(Struct, frozen=True, gc=False):
    """True up to `rate`; with `over` beyond it."""

    rate: str  # "10/minute", "1 mbytes/second"
    over: bool = False
    burst: str = ""  # "5 packets"; "": the kernel's default


class Log(Struct, frozen=True, gc=False):
    options: str = ""  # 'prefix "x: " level info'


class NoTrack(Struct, frozen=True, gc=False):
    pass


class Xt(Struct, frozen=True, gc=False):
    """A match or target of iptables inside an nft table, which nft can only name."""

    kind: Literal["match", "target"]
    name: str
    text: str = ""  # anything more that nft prints of it


class OtherStatement(Struct, frozen=True, gc=False):
    """Not modelled; as nft writes it."""

    text: str


Statement: TypeAlias = (
    Match
    | VerdictMap
    | Verdict
    | Reject
    | Nat
    | Mangle
    | Update
    | Counter
    | Limit
    | Log
    | NoTrack
    | Xt
    | OtherStatement
)

# --- rules, chains, sets, tables ------------------------------------------------------------------------------------


class Rule(Struct, frozen=True, gc=False):
    statements: tuple[Statement, ...] = ()
    comment: str = ""
    handle: int = 0  # 0: the text does not give it


class Hook(Struct, frozen=True, gc=False):
    type: Literal["filter", "nat", "route"]
    hook: str  # "prerouting", "input", "forward", "output", "postrouting", "ingress", "egress"
    priority: int  # "dstnat - 10" in the family ip: -110
    policy: Literal["accept", "drop"] = "accept"
    devices: tuple[str, ...] = ()


class Chain(Struct, frozen=True):
    name: str
    rules: tuple[Rule, ...] = ()
    hook: Hook | None = None  # None: only jumps lead here
    comment: str = ""
    handle: int = 0


class Set(Struct, frozen=True):
    """A set; with `values` a map, whose values are of these types ("verdict" makes it a verdict map)."""

    name: str
    types: tuple[str, ...]  # one a part of the key: "ipv4_addr", "inet_proto", "inet_service"
    values: tuple[str, ...] = ()
    typeof: bool = False  # `types` are expressions ("ip daddr"), `values` too
    flags: tuple[str, ...] = ()  # "interval", "timeout", "dynamic", "constant"
    timeout: str = ""
    size: int = 0  # 0: not given
    elements: tuple[Element, ...] = ()
    comment: str = ""
    handle: int = 0
    more: tuple[str, ...] = ()  # lines of it that say something else: "auto-merge", "policy memory", "counter"


class Table(Struct, frozen=True):
    family: Literal["ip", "ip6", "inet", "arp", "bridge", "netdev"]
    name: str
    chains: Mapping[str, Chain] = MappingProxyType({})  # by name, in the order of the text; never changed
    sets: Mapping[str, Set] = MappingProxyType({})  # sets and maps
    flags: tuple[str, ...] = ()  # "dormant": none of its chains is called; "owner"
    comment: str = ""
    handle: int = 0
    others: tuple[str, ...] = ()  # named counters, quotas, flowtables ..., as nft writes them

    def rules(self, chain: str) -> tuple[Rule, ...]:
        """() if there is no such chain."""
        found = self.chains.get(chain)
        return found.rules if found else ()


class TableName(NamedTuple):
    family: str
    name: str


class Ruleset(Struct, frozen=True):
    tables: Mapping[TableName, Table]  # in the order of the text; never changed

    def __iter__(self) -> Iterator[Table]:
        return iter(self.tables.values())

    def get(self, family: str, name: str) -> Table | None:
        return self.tables.get(TableName(family, name))

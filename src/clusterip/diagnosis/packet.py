"""A packet on its way, as far as it is known."""

from msgspec import Struct

PORTED = frozenset({"tcp", "udp", "sctp", "udplite", "dccp"})
ICMP = frozenset({"icmp", "ipv6-icmp"})


class Packet(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The first packet of a connection unless `state` says otherwise. Addresses are canonical."""

    protocol: str  # "tcp", "udp", "sctp", "icmp", "ipv6-icmp"
    source: str  # "": not known
    destination: str
    source_port: int = 0  # 0: not known, or the protocol has none
    destination_port: int = 0
    in_interface: str | None = None  # "": it began on this node; None: not known
    out_interface: str | None = None  # "": it ends on this node, or is not routed yet; None: not known
    mark: int = 0
    ct_mark: int = 0
    state: str = "NEW"  # what conntrack calls it: "NEW", "ESTABLISHED", "RELATED", "INVALID", "UNTRACKED"
    destination_rewritten: bool = False  # the connection's: DNAT
    source_rewritten: bool = False  # the connection's: SNAT, masquerade
    reply: bool = False  # on the way back to the client
    before_conntrack: bool = False  # conntrack has not been asked: rules find no connection yet

    @property
    def tracked(self) -> bool:
        """Whether rules find a connection."""
        return not self.before_conntrack and self.state not in ("UNTRACKED", "INVALID")

    @property
    def ipv6(self) -> bool:
        return ":" in self.destination

    def __str__(self) -> str:
        """ "tcp 10.244.1.7 -> 10.96.0.20:80"."""
        source = socket(self.source or "?", self.source_port)
        return f"{self.protocol} {source} -> {socket(self.destination, self.destination_port)}"


def socket(address: str, port: int) -> str:
    """ "10.96.0.20:80", "[fd00::1]:80"; the address alone where port is 0."""
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

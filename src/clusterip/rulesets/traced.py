"""What a kernel says of one packet's way through its rules, as values: nftables' trace, and that of iptables-legacy.

Only rules that the packet met are told of; one that it did not meet leaves no word.
"""

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

HookName: TypeAlias = Literal["prerouting", "input", "forward", "output", "postrouting"]


class Headers(NamedTuple):
    """Of the packet, as a chain saw it. Addresses are canonical; ports are 0 where the protocol has none."""

    source: str
    destination: str
    protocol: str  # "tcp", "udp", "icmp", "ipv6-icmp", or the number in decimal
    source_port: int = 0
    destination_port: int = 0


class Traced(Struct, frozen=True, kw_only=True):
    """One thing the kernel told. `rule` is the rule's place in its chain, from 0.

    iptables-legacy takes a rule that matches everything and ends the chain for that chain's end or policy, and tells
    so: there `rule` is given with every kind, and is the number of the chain's rules where its end is meant.
    """

    program: Literal["nft", "legacy"]  # whose chains: nftables' (iptables-nft among them), or iptables-legacy's
    family: str  # of the table: "ip", "ip6", "inet"
    hook: HookName
    priority: int
    table: str
    chain: str
    kind: Literal["rule", "return", "policy"]  # return: the end of a chain that was jumped to
    rule: int | None = None  # None: no rule, or it was gone when it was looked for
    verdict: str = ""  # "accept", "drop", "continue", "return", "jump KUBE-SERVICES"; "": legacy does not tell
    headers: Headers
    mark: int = 0  # nft: as the rule left it; legacy: as the rule found it
    in_interface: str = ""  # "": none
    out_interface: str = ""


_FORWARDED: tuple[HookName, ...] = ("prerouting", "input", "forward", "postrouting")
_SENT: tuple[HookName, ...] = ("output", "postrouting", "prerouting", "input")  # the last two: over the loopback


def merged(nft: Iterable[Traced], legacy: Iterable[Traced]) -> tuple[Traced, ...]:
    """Both in the order of the hooks and of their priorities: the kernel tells of each in an order of its own.

    Which of two chains with one priority ran first is not told. nft's are taken for the first, unless one dropped the
    packet: nothing came after that.
    """
    events = [*nft, *legacy]
    order = _SENT if any(event.hook == "output" for event in events) else _FORWARDED
    last = {(event.hook, event.priority) for event in events if event.verdict == "drop"}

    def place(event: Traced) -> tuple[int, int, bool]:
        at = order.index(event.hook) if event.hook in order else len(order)
        return at, event.priority, event.program == "nft" and (event.hook, event.priority) in last

    # Stable: what one of them told within a chain stays as it was told.
    return tuple(sorted(events, key=place))

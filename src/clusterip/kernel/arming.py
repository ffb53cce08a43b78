"""The few words of nf_tables that tracing a packet needs: a rule that arms the trace, and where chains and rules are.

Source: kernel include/uapi/linux/netfilter/nf_tables.h.
"""

import errno
import socket
import struct
from dataclasses import dataclass
from ipaddress import ip_address

from clusterip.kernel.netlink import CREATE, Netlink, NetlinkRefused, attribute, attributes, nested, netfilter
from clusterip.rulesets.traced import Headers, HookName

SUBSYSTEM = 10
INET = 1  # NFPROTO_INET: the table sees both families
HOOKS: tuple[HookName, ...] = ("prerouting", "input", "forward", "output", "postrouting")  # by number
PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17, "ipv6-icmp": 58, "sctp": 132}
FIRST = -350  # before raw (-300) and connection tracking (-200), after defragmentation (-400)

_NEW_TABLE, _NEW_CHAIN, _GET_CHAIN, _NEW_RULE, _GET_RULE = 0, 3, 4, 6, 7
_APPEND = 0x800
_OWNED = 0x2  # NFT_TABLE_F_OWNER: the table ends with the socket that made it
_REGISTER = struct.pack("!I", 1)
_META_TRACE, _META_PROTOCOL = 12, 16
_NETWORK, _TRANSPORT = 1, 2  # what a payload expression counts from
_DAY = 86400  # seconds
_SYN, _SYN_ACK = b"\x02", b"\x12"
_ECHO = {"icmp": b"\x08", "ipv6-icmp": b"\x80"}


@dataclass(frozen=True, slots=True)
class BaseChain:
    hook: HookName
    priority: int


def arm(link: Netlink, table: str, flow: Headers) -> None:
    """Have the kernel trace the next packet of `flow`, once where it arrives or is sent from here, by a table that ends
    with `link`. Of TCP only a SYN; of ICMP an echo request, whose identifier is the flow's source port.

    Wherever it goes: a program at the socket may have given it another destination, and nobody else has its source.
    Raises NetlinkRefused.
    """
    family = socket.AF_INET6 if ":" in flow.destination else socket.AF_INET
    name = _text(1, table)
    messages = [netfilter(SUBSYSTEM, _NEW_TABLE, family, name + _number(2, _OWNED), CREATE)]
    for hook in (0, 3):
        chain = HOOKS[hook]
        where = nested(4, _number(1, hook), _number(2, FIRST & 0xFFFFFFFF))
        made = name + _text(3, chain) + where + _text(7, "filter")
        rule = name + _text(2, chain) + nested(4, *_expressions(flow))
        messages.append(netfilter(SUBSYSTEM, _NEW_CHAIN, family, made, CREATE))
        messages.append(netfilter(SUBSYSTEM, _NEW_RULE, family, rule, CREATE | _APPEND))
    link.transact(SUBSYSTEM, messages, f"nf_tables: table {table}")


def base_chain(link: Netlink, family: int, table: str, chain: str) -> BaseChain | None:
    """Where a hook calls the chain; None: it is called by jumps alone, or has gone."""
    wanted = netfilter(SUBSYSTEM, _GET_CHAIN, family, _text(1, table) + _text(3, chain))
    try:
        found = attributes(link.ask(wanted, f"nf_tables: chain {chain} of table {table}"), 4)
    except NetlinkRefused as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    hook = attributes(found.get(4, b""))
    number = int.from_bytes(hook.get(1, b"\xff"), "big")
    if number >= len(HOOKS):
        return None
    return BaseChain(HOOKS[number], int.from_bytes(hook.get(2, b""), "big", signed=True))


def rule_handles(link: Netlink, family: int, table: str, chain: str) -> tuple[int, ...]:
    """Of the chain's rules, in their order. () if there is no such chain."""
    wanted = netfilter(SUBSYSTEM, _GET_RULE, family, _text(1, table) + _text(2, chain))
    try:
        bodies, _ = link.dump(wanted, f"nf_tables: rules of chain {chain} of table {table}")
    except NetlinkRefused as error:
        if error.errno == errno.ENOENT:
            return ()
        raise
    here = (table.encode(), chain.encode())
    found = (attributes(body, 4) for body in bodies)
    # Old kernels list more than was asked for.
    return tuple(
        int.from_bytes(f[3], "big") for f in found if (f.get(1, b"").rstrip(b"\0"), f.get(2, b"").rstrip(b"\0")) == here
    )


def _expressions(flow: Headers) -> list[bytes]:
    """What matches the flow, once, and sets the trace."""
    source = 12 if ":" not in flow.source else 8
    wanted = [
        _expression("meta", _number(2, _META_PROTOCOL), attribute(1, _REGISTER)),
        _compare(bytes([PROTOCOLS[flow.protocol]])),
        *_field(_NETWORK, source, ip_address(flow.source).packed),
    ]
    if flow.protocol in _ECHO:
        wanted += _field(_TRANSPORT, 0, _ECHO[flow.protocol])
        wanted += _field(_TRANSPORT, 4, struct.pack("!H", flow.source_port))
    else:
        wanted += _field(_TRANSPORT, 0, struct.pack("!H", flow.source_port))
    if flow.protocol == "tcp":
        wanted += [_load(_TRANSPORT, 13, 1), _masked(_SYN_ACK), _compare(_SYN)]
    once = (struct.pack("!Q", 1), struct.pack("!Q", _DAY), struct.pack("!I", 1))  # one a day, one at a time
    wanted.append(_expression("limit", *(attribute(number, value) for number, value in enumerate(once, 1))))
    wanted.append(_expression("immediate", attribute(1, _REGISTER), nested(2, attribute(1, b"\x01"))))
    wanted.append(_expression("meta", _number(2, _META_TRACE), attribute(3, _REGISTER)))
    return wanted


def _field(base: int, offset: int, value: bytes) -> list[bytes]:
    return [_load(base, offset, len(value)), _compare(value)]


def _load(base: int, offset: int, size: int) -> bytes:
    return _expression("payload", attribute(1, _REGISTER), _number(2, base), _number(3, offset), _number(4, size))


def _compare(value: bytes) -> bytes:
    return _expression("cmp", attribute(1, _REGISTER), _number(2, 0), nested(3, attribute(1, value)))


def _masked(mask: bytes) -> bytes:
    kept, flipped = nested(4, attribute(1, mask)), nested(5, attribute(1, bytes(len(mask))))
    where = attribute(1, _REGISTER) + attribute(2, _REGISTER)
    return _expression("bitwise", where, _number(3, len(mask)), kept, flipped)


def _expression(name: str, *options: bytes) -> bytes:
    return nested(1, _text(1, name), nested(2, *options))


def _text(kind: int, text: str) -> bytes:
    return attribute(kind, text.encode() + b"\0")


def _number(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("!I", value))

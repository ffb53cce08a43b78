"""Packets as they pass an interface, as values; no tcpdump.

`decode` is pure: bytes of a frame in, a `Packet` out. `capture` is the edge: a raw socket that was opened inside a
named network namespace and read by the caller's own event loop, so the process itself moves nowhere.

A frame that is cut short, or not IP, is no `Packet`; nothing raises. Times are the kernel's, taken when it handed the
frame over, so those of two captures on one machine can be compared.
Source: RFC 791, 8200, 768, 792, 4443, 9293; packet(7).
"""

import asyncio
import enum
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from clusterip.errors import ClusterIPError
from clusterip.kernel import netns as namespaces


class Flag(enum.IntFlag):
    """TCP's, in the order people write them."""

    SYN = 0x02
    FIN = 0x01
    RST = 0x04
    PSH = 0x08
    ACK = 0x10
    URG = 0x20


NO_FLAGS = Flag(0)


@dataclass(frozen=True, slots=True)
class Packet:
    """One IP packet. Ports are 0 where the protocol has none, or where a fragment does not carry them."""

    source: str  # canonical address
    destination: str
    protocol: str  # "tcp", "udp", "icmp", "icmpv6", or the number in decimal
    source_port: int = 0
    destination_port: int = 0
    flags: Flag = NO_FLAGS  # TCP's
    icmp: tuple[int, int] = (0, 0)  # type and code
    payload: int = 0  # bytes after the TCP, UDP or ICMP header
    quoted: "Packet | None" = None  # what an ICMP error is about
    at: float = 0.0  # seconds since the epoch
    outgoing: bool = False  # sent by this side of the interface, not received

    @property
    def text(self) -> str:
        """One line: "10.244.1.5:41234 > 10.96.103.181:80 tcp SYN"."""
        return f"{self.ends} {self.kind}"

    @property
    def ends(self) -> str:
        return f"{end(self.source, self.source_port)} > {end(self.destination, self.destination_port)}"

    @property
    def kind(self) -> str:
        """What it is besides its addresses: "tcp SYN,ACK", "tcp PSH,ACK 78 bytes", "icmp port unreachable (...)"."""
        if self.protocol in ("icmp", "icmpv6"):
            said = _ICMP.get((self.protocol, *self.icmp)) or f"type {self.icmp[0]} code {self.icmp[1]}"
            return f"{self.protocol} {said}" + (f" ({self.quoted.ends} {self.quoted.protocol})" if self.quoted else "")
        flags = ",".join(str(flag.name) for flag in Flag if flag in self.flags)
        size = f"{self.payload} bytes" if self.payload or self.protocol == "udp" else ""
        return " ".join(word for word in (self.protocol, flags, size) if word)


_ICMP = {
    ("icmp", 0, 0): "echo reply",
    ("icmp", 3, 0): "net unreachable",
    ("icmp", 3, 1): "host unreachable",
    ("icmp", 3, 3): "port unreachable",
    ("icmp", 3, 4): "fragmentation needed",
    ("icmp", 3, 10): "host prohibited",
    ("icmp", 3, 13): "administratively prohibited",
    ("icmp", 8, 0): "echo request",
    ("icmp", 11, 0): "time exceeded",
    ("icmpv6", 1, 0): "no route",
    ("icmpv6", 1, 1): "administratively prohibited",
    ("icmpv6", 1, 3): "address unreachable",
    ("icmpv6", 1, 4): "port unreachable",
    ("icmpv6", 2, 0): "packet too big",
    ("icmpv6", 3, 0): "hop limit exceeded",
    ("icmpv6", 128, 0): "echo request",
    ("icmpv6", 129, 0): "echo reply",
    ("icmpv6", 135, 0): "neighbour solicitation",
    ("icmpv6", 136, 0): "neighbour advertisement",
}

ETHERNET = struct.Struct("!6s6sH")
IPV4, IPV6, VLAN, QINQ = 0x0800, 0x86DD, 0x8100, 0x88A8
_NAMES = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6"}
_EXTENSIONS = {0, 43, 44, 60}  # hop-by-hop, routing, fragment, destination options
_MORE_FRAGMENTS, _OFFSET = 0x2000, 0x1FFF


def end(address: str, port: int) -> str:
    """ "10.96.0.10:53", "[fd00:96::a]:53"; without the port if that is 0."""
    if not port:
        return address
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def decode(frame: bytes, *, at: float = 0.0, outgoing: bool = False) -> Packet | None:
    """The IP packet in an Ethernet frame; None if there is none, or if it is cut short before its ports."""
    if len(frame) < ETHERNET.size:
        return None
    (kind,) = struct.unpack_from("!H", frame, 12)
    offset = ETHERNET.size
    while kind in (VLAN, QINQ) and len(frame) >= offset + 4:
        (kind,) = struct.unpack_from("!H", frame, offset + 2)
        offset += 4
    return decode_ip(frame[offset:], at=at, outgoing=outgoing) if kind in (IPV4, IPV6) else None


def decode_ip(data: bytes, *, at: float = 0.0, outgoing: bool = False) -> Packet | None:
    """The same from the IP header on."""
    try:
        network = _ipv6(data) if data and data[0] >> 4 == 6 else _ipv4(data)
        return None if network is None else _transport(network, at, outgoing)
    except struct.error:  # shorter than its own header says
        return None


@dataclass(frozen=True, slots=True)
class _Network:
    source: str
    destination: str
    number: int  # of the transport protocol
    body: bytes  # the transport header and what follows
    length: int  # bytes of the transport part as the header says; a capture may hold less
    first: bool  # False in later fragments, which carry no transport header


def _ipv4(data: bytes) -> _Network | None:
    version, total, fragment, number = struct.unpack_from("!BxH2xHxB", data)
    size = (version & 15) * 4
    if version >> 4 != 4 or size < 20 or len(data) < size:
        return None
    total = total or len(data)  # 0: the network card will cut it into segments
    return _Network(
        str(IPv4Address(data[12:16])),
        str(IPv4Address(data[16:20])),
        number,
        data[size:total],
        max(total - size, 0),
        not fragment & _OFFSET,
    )


def _ipv6(data: bytes) -> _Network | None:
    length, number = struct.unpack_from("!4xHB", data)
    if len(data) < 40:
        return None
    total = 40 + length if length else len(data)
    offset, first = 40, True
    while number in _EXTENSIONS and first:
        following, size = struct.unpack_from("!BB", data, offset)
        if number == 44:
            first = not struct.unpack_from("!H", data, offset + 2)[0] & 0xFFF8
        number, offset = following, offset + (8 if number == 44 else (size + 1) * 8)
    return _Network(
        str(IPv6Address(data[8:24])),
        str(IPv6Address(data[24:40])),
        number,
        data[offset:total],
        max(total - offset, 0),
        first,
    )


def _transport(network: _Network, at: float, outgoing: bool) -> Packet:
    name = _NAMES.get(network.number, str(network.number))
    ports, flags, icmp, quoted, header = (0, 0), NO_FLAGS, (0, 0), None, 0
    if network.first:
        match name:
            case "tcp":
                *_, offset, bits = struct.unpack_from("!HHIIBB", network.body)
                ports, flags, header = struct.unpack_from("!HH", network.body), Flag(bits & 0x3F), (offset >> 4) * 4
            case "udp":
                ports, header = struct.unpack_from("!HH4x", network.body)[:2], 8
            case "icmp" | "icmpv6":
                icmp, header = struct.unpack_from("!BB6x", network.body)[:2], 8
                quoted = _quoted(name, icmp[0], network.body[8:])
    return Packet(
        source=network.source,
        destination=network.destination,
        protocol=name,
        source_port=ports[0],
        destination_port=ports[1],
        flags=flags,
        icmp=icmp,
        payload=max(network.length - header, 0),
        quoted=quoted,
        at=at,
        outgoing=outgoing,
    )


def _quoted(name: str, kind: int, data: bytes) -> Packet | None:
    """The packet an ICMP error is about. Routers may quote no more than the ports, eight bytes of the transport
    header, which is too short to be a TCP header; it is filled up."""
    is_error = kind in (3, 11, 12) if name == "icmp" else kind < 128
    return decode_ip(data + bytes(12)) if is_error and data else None


# --- the edge --------------------------------------------------------------------------------------------------

Match = Callable[[Packet], bool]

SO_TIMESTAMPNS = 35  # include/uapi/asm-generic/socket.h; Python has no name for it
SOL_PACKET, PACKET_STATISTICS = 263, 6  # include/uapi/linux/if_packet.h
ETH_P_ALL = 3
MOST_BYTES = 65_535  # a frame may be a whole segment that the card would have cut
ROOM = 8 * 1024 * 1024  # bytes that wait in the kernel while the loop is busy


class CaptureFailed(ClusterIPError):
    """No such interface, or not root."""

    def __init__(self, netns: str, interface: str, why: str) -> None:
        super().__init__(f"interface {interface} in {netns or 'our own namespace'}: cannot be captured, {why}")


def everything(_: Packet) -> bool:
    return True


def involving(address: str = "", port: int = 0, protocol: str = "") -> Match:
    """Packets with this address and this port at one end (the same end, if both are given) and this protocol."""

    def matches(packet: Packet) -> bool:
        ends = ((packet.source, packet.source_port), (packet.destination, packet.destination_port))
        return (not protocol or packet.protocol == protocol) and any(
            address in ("", host) and port in (0, number) for host, number in ends
        )

    return matches


class Packets:
    """What passed so far. Grows between awaits of its owner, until the capture ends."""

    def __init__(self, match: Match) -> None:
        self._match = match
        self._seen: list[Packet] = []
        self._news = asyncio.Event()
        self.lost = 0  # frames the kernel dropped because nobody read them in time; known when the capture has ended

    @property
    def seen(self) -> tuple[Packet, ...]:
        return tuple(self._seen)

    def add(self, packet: Packet | None) -> None:
        if packet is not None and self._match(packet):
            self._seen.append(packet)
            self._news.set()

    async def first(self, wanted: Match = everything, *, within: float = 2.0) -> Packet:
        """The first one `wanted`, seen already or seen within so many seconds. Raises TimeoutError."""
        looked_at = 0
        async with asyncio.timeout(within):
            while True:
                self._news.clear()
                fresh, looked_at = self._seen[looked_at:], len(self._seen)
                for packet in fresh:
                    if wanted(packet):
                        return packet
                await self._news.wait()


@asynccontextmanager
async def capture(netns: str, interface: str, match: Match = everything) -> AsyncIterator[Packets]:
    """Packets that pass `interface` ("": all) of the named namespace ("": our own) until the block ends.

    What the kernel had already taken when the block ends is still in `seen`. Raises CaptureFailed.
    """
    source = _open(netns, interface)
    packets = Packets(match)
    loop = asyncio.get_running_loop()
    try:
        loop.add_reader(source, _drain, source, packets)
        try:
            yield packets
        finally:
            loop.remove_reader(source)
            _drain(source, packets, most=1_000_000)
            (_, packets.lost) = struct.unpack("II", source.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
    finally:
        source.close()


def _open(netns: str, interface: str) -> socket.socket:
    """Of one interface with protocol 0 first: a socket that listens before it is bound would collect from all."""
    protocol = 0 if interface else socket.htons(ETH_P_ALL)
    try:
        with namespaces.inside(netns) if netns else nullcontext():
            source = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, protocol)
    except OSError as error:
        raise CaptureFailed(netns, interface, str(error.strerror)) from error
    try:
        source.setblocking(False)
        source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
        source.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        if interface:
            source.bind((interface, ETH_P_ALL))
    except OSError as error:
        source.close()
        raise CaptureFailed(netns, interface, str(error.strerror)) from error
    return source


def _drain(source: socket.socket, packets: Packets, most: int = 1000) -> None:
    """Every frame that waits, but not more than `most` in one breath: other tasks want the loop too."""
    for _ in range(most):
        try:
            frame, notes, _, address = source.recvmsg(MOST_BYTES, 64)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # ENETDOWN once when the interface goes; what came before it stays
            return
        at = 0.0
        for level, kind, data in notes:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = struct.unpack("qq", data)
                at = seconds + nanoseconds / 1e9
        packets.add(decode(frame, at=at, outgoing=address[2] == socket.PACKET_OUTGOING))

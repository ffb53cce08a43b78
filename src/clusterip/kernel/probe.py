"""One packet out of a named network namespace, whose addresses and ports are known before it is sent. Blocking.

with ready("pod-a", Target("tcp", "10.96.0.20", 80)) as probe:
    ...  # arm a trace for probe.flow
    answer = probe.send(1.0)
"""

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Literal, TypeAlias, assert_never

from clusterip.errors import BadInput, Unavailable
from clusterip.kernel.netlink import inside
from clusterip.rulesets.traced import Headers

ProtocolName: TypeAlias = Literal["tcp", "udp", "icmp"]
AnswerKind: TypeAlias = Literal["connected", "answered", "refused", "unreachable", "forbidden", "silence"]

MARK = b"clusterip trace "  # what a datagram begins with; random bytes follow
_ECHO, _REPLY = {4: 8, 6: 128}, {4: 0, 6: 129}
_ICMP = {4: socket.IPPROTO_ICMP, 6: socket.IPPROTO_ICMPV6}


@dataclass(frozen=True, slots=True)
class Target:
    protocol: ProtocolName
    address: str
    port: int = 0  # of ICMP none
    source: str = ""  # an address of the namespace; "": the one that its routes choose


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back to the sender.

    connected: TCP was accepted; answered: a datagram or an echo reply came; refused: a RST or "port unreachable";
    unreachable: another ICMP error, or no route; forbidden: the sender's own kernel would not send; silence: nothing.
    """

    kind: AnswerKind
    seconds: float
    errno: int = 0


@dataclass(frozen=True, slots=True)
class Probe:
    flow: Headers  # as the packet leaves; of ICMP the identifier is its source port
    sender: socket.socket

    def send(self, seconds: float) -> Answer:
        """The packet, once; then wait for an answer. A packet that TCP would send again is not waited for if `seconds`
        is less than 1."""
        begun = time.monotonic()
        kind, number = self._exchange(seconds)
        return Answer(kind, time.monotonic() - begun, number)

    def _exchange(self, seconds: float) -> tuple[AnswerKind, int]:
        try:
            self._begin()
            if self.flow.protocol == "tcp":
                return self._connected(seconds)
            return self._answered(seconds)
        except OSError as error:
            return _told_by(error.errno or 0), error.errno or 0

    def _begin(self) -> None:
        version = ip_address(self.flow.destination).version
        match self.flow.protocol:
            case "tcp":
                number = self.sender.connect_ex((self.flow.destination, self.flow.destination_port))
                if number not in (0, errno.EINPROGRESS):
                    raise OSError(number, os.strerror(number))
            case "udp":
                self.sender.send(MARK + os.urandom(8))
            case _:
                self.sender.send(_echo_request(version, self.flow.source_port))

    def _connected(self, seconds: float) -> tuple[AnswerKind, int]:
        _, writable, _ = select.select([], [self.sender], [], seconds)
        if not writable:
            return "silence", 0
        number = self.sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return (_told_by(number), number) if number else ("connected", 0)

    def _answered(self, seconds: float) -> tuple[AnswerKind, int]:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            readable, _, _ = select.select([self.sender], [], [], left)
            if not readable:
                break
            data = self.sender.recv(65535)
            if self.flow.protocol == "udp" or self._is_reply(data):
                return "answered", 0
        return "silence", 0

    def _is_reply(self, data: bytes) -> bool:
        version = ip_address(self.flow.destination).version
        body = data[(data[0] & 15) * 4 :] if version == 4 and data else data  # IPv6 gives no header
        return len(body) >= 6 and body[0] == _REPLY[version] and body[4:6] == struct.pack("!H", self.flow.source_port)


@contextmanager
def ready(netns: str, target: Target) -> Iterator[Probe]:
    """Everything but the packet.

    Raises BadInput for a source that the namespace does not have, Unavailable if it has no route to the target.
    """
    with ExitStack() as stack:
        with inside(netns):
            source = target.source or _source(netns, target)
            sender = stack.enter_context(_socket(target))
        try:
            sender.bind((source, 0))
        except OSError as error:
            raise BadInput(
                f"source {source}: not an address of network namespace {netns or 'of this process'}: {error.strerror}"
            ) from error
        port: int = sender.getsockname()[1]
        if target.protocol == "tcp":
            flow = Headers(source, target.address, "tcp", port, target.port)
        elif target.protocol == "udp":
            flow = Headers(source, target.address, "udp", port, target.port)
            sender.connect((target.address, target.port))
        else:
            protocol = "ipv6-icmp" if ip_address(target.address).version == 6 else "icmp"
            flow = Headers(source, target.address, protocol, struct.unpack("!H", os.urandom(2))[0] | 1)
            sender.connect((target.address, 0))
        yield Probe(flow, sender)


def has_address(netns: str, address: str) -> bool:
    """Whether a link of the namespace has it. Raises NamespaceFailed if there is no such namespace."""
    with inside(netns), socket.socket(_family(address), socket.SOCK_DGRAM) as asking:
        try:
            asking.bind((address, 0))
        except OSError:
            return False
        return True


def _source(netns: str, target: Target) -> str:
    """The address that the routes choose, before any rule is asked: connecting UDP sends nothing."""
    with socket.socket(_family(target.address), socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((target.address, target.port or 1))
        except OSError as error:
            where = f"network namespace {netns}" if netns else "this network namespace"
            raise Unavailable(f"{where}: cannot send to {target.address}: {error.strerror}", "ip route") from error
        address: str = asking.getsockname()[0]
        return address


def _socket(target: Target) -> socket.socket:
    family = _family(target.address)
    match target.protocol:
        case "tcp":
            made = socket.socket(family, socket.SOCK_STREAM)
        case "udp":
            made = socket.socket(family, socket.SOCK_DGRAM)
        case "icmp":
            made = socket.socket(family, socket.SOCK_RAW, _ICMP[ip_address(target.address).version])
        case _:
            assert_never(target.protocol)
    made.setblocking(False)
    return made


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _told_by(number: int) -> AnswerKind:
    match number:
        case errno.ECONNREFUSED | errno.ECONNRESET:
            return "refused"
        case errno.EPERM | errno.EACCES:
            return "forbidden"
        case errno.ETIMEDOUT:
            return "silence"
        case _:
            return "unreachable"


def _echo_request(version: int, identifier: int) -> bytes:
    """The kernel itself fills in the checksum of ICMPv6."""
    body = struct.pack("!HH", identifier, 1) + MARK + os.urandom(8)
    head = struct.pack("!BBH", _ECHO[version], 0, 0)
    return struct.pack("!BBH", _ECHO[version], 0, _checksum(head + body) if version == 4 else 0) + body


def _checksum(data: bytes) -> int:
    """RFC 1071."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF

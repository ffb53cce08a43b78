"""Netlink, as far as this product speaks it: framing of messages and attributes, dumps, and pipelined requests.

Blocking: a socket belongs to one thread; callers in an event loop go through `asyncio.to_thread`. Numbers are those of
the kernel's include/uapi/linux/netlink.h and netfilter/nfnetlink.h.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from clusterip.errors import ClusterIPError, Unavailable
from clusterip.kernel import netns as namespaces

NEEDS_ROOT = "it needs root, or the capability CAP_NET_ADMIN in this network namespace"  # a hint
NETFILTER, SOCK_DIAG = 12, 4  # netlink protocol numbers
REQUEST, ACK, DUMP, CREATE, EXCLUSIVE = 0x1, 0x4, 0x300, 0x400, 0x200

_NESTED, _TYPE_MASK = 0x8000, 0x3FFF
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_ERROR, _DONE, _MULTI, _DUMP_INTERRUPTED = 2, 3, 0x2, 0x10
_RECEIVE = 1 << 20
_SOL_NETLINK, _ADD_MEMBERSHIP = 270, 1  # include/linux/socket.h, include/uapi/linux/netlink.h
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_ERRNO = struct.Struct("=i")
_NFGENMSG = struct.Struct("=BBH")  # family, version, resource id
_PADDING = (b"", b"\0\0\0", b"\0\0", b"\0")


class NetlinkRefused(ClusterIPError):
    """The kernel answered a request with an error; `errno` says which."""

    def __init__(self, what: str, number: int) -> None:
        said = f"{what}: {os.strerror(number)} ({errno.errorcode.get(number, number)})"
        super().__init__(said, hint=NEEDS_ROOT if number == errno.EPERM else "")
        self.errno = number


class Message(NamedTuple):
    """`kind` holds the netfilter subsystem in its upper byte; `body` starts with struct nfgenmsg."""

    kind: int
    flags: int
    body: bytes


def netfilter(subsystem: int, command: int, family: int, attributes: bytes = b"", flags: int = 0) -> Message:
    return Message(subsystem << 8 | command, REQUEST | flags, _NFGENMSG.pack(family, 0, 0) + attributes)


def attribute(kind: int, payload: bytes) -> bytes:
    size = len(payload)
    return _ATTRIBUTE.pack(size + 4, kind) + payload + _PADDING[size & 3]


def nested(kind: int, *parts: bytes) -> bytes:
    payload = b"".join(parts)
    return _ATTRIBUTE.pack(len(payload) + 4, kind | _NESTED) + payload


def attributes(body: bytes, start: int = 0) -> dict[int, bytes]:
    """Attribute number -> payload. A torn attribute ends the walk: what came before it is still good."""
    found: dict[int, bytes] = {}
    position, end = start, len(body)
    while position + 4 <= end:
        size, kind = _ATTRIBUTE.unpack_from(body, position)
        if size < 4 or position + size > end:
            break
        found[kind & _TYPE_MASK] = body[position + 4 : position + size]
        position += (size + 3) & ~3
    return found


def inside(netns: str) -> AbstractContextManager[None]:
    """As `kernel.netns.inside`, but "" is the namespace we are in."""
    return namespaces.inside(netns) if netns else nullcontext()


def _split(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """The messages of a datagram: kind, flags, sequence, body."""
    position = 0
    while position + 16 <= len(data):
        size, kind, flags, sequence, _ = _HEADER.unpack_from(data, position)
        if size < 16:
            return
        yield kind, flags, sequence, data[position + 16 : position + size]
        position += (size + 3) & ~3


class Netlink:
    """One netlink socket, in the named namespace. Use as a context manager."""

    def __init__(self, netns: str = "", timeout: float = 5.0, protocol: int = NETFILTER) -> None:
        """`timeout`: seconds to wait for any one answer. `protocol`: NETFILTER or SOCK_DIAG."""

        with inside(netns):
            try:
                self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
            except OSError as error:
                raise Unavailable(f"netfilter netlink: {error.strerror}", hint="it needs root and nfnetlink") from error
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.settimeout(timeout)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> "Netlink":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def _send(self, messages: Sequence[Message], extra: int) -> int:
        """Returns the sequence number of the first."""
        first = self._sequence + 1
        parts = []
        for m in messages:
            self._sequence += 1
            parts.append(_HEADER.pack(16 + len(m.body), m.kind, m.flags | extra, self._sequence, 0) + m.body)
        self._socket.send(b"".join(parts))
        return first

    def _receive(self) -> Iterator[tuple[int, int, int, bytes]]:
        """The messages of one datagram: kind, flags, sequence, body. Raises Unavailable if none comes."""
        try:
            data = self._socket.recv(_RECEIVE)
        except OSError as error:
            raise Unavailable(f"netfilter netlink: no answer: {error.strerror or 'timed out'}") from error
        return _split(data)

    def fileno(self) -> int:
        return self._socket.fileno()

    def join(self, group: int) -> None:
        """Hear what the kernel tells this multicast group; see `heard`."""
        self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def heard(self) -> Iterator[tuple[int, bytes]]:
        """Kind and body of each message that waits; never waits itself. Raises Unavailable if some were lost."""
        while True:
            try:
                # Not by the socket object, which waits for its timeout; below it the socket never blocks.
                data = os.read(self._socket.fileno(), _RECEIVE)
            except BlockingIOError:
                return
            except OSError as error:
                raise Unavailable(f"netfilter netlink: messages were lost: {error.strerror}") from error
            yield from ((kind, body) for kind, _, _, body in _split(data))

    def dump(self, message: Message, what: str) -> tuple[list[bytes], bool]:
        """All bodies the kernel lists, and whether the list is whole: it is not if the table changed under the dump."""
        sent = self._send([message], DUMP)
        bodies: list[bytes] = []
        whole = True
        while True:
            for kind, flags, sequence, body in self._receive():
                if sequence != sent:
                    continue
                whole = whole and not flags & _DUMP_INTERRUPTED
                if kind == _DONE:
                    return bodies, whole
                if kind == _ERROR:
                    number = -_ERRNO.unpack_from(body)[0]
                    if number == errno.EINTR:
                        return bodies, False
                    raise NetlinkRefused(what, number)
                bodies.append(body)

    def ask(self, message: Message, what: str) -> bytes:
        """The one body that answers `message`. Raises NetlinkRefused."""
        sent = self._send([message], 0)
        while True:
            for kind, _, sequence, body in self._receive():
                if sequence != sent:
                    continue
                if kind == _ERROR:
                    raise NetlinkRefused(what, -_ERRNO.unpack_from(body)[0])
                return body

    def transact(self, subsystem: int, messages: Sequence[Message], what: str) -> None:
        """All of them or none. Raises NetlinkRefused."""
        # The ends of a batch ask for no acknowledgement: kernels before 6.10 give none.
        edge = _NFGENMSG.pack(0, 0, socket.htons(subsystem))
        wanted = [m._replace(flags=m.flags | ACK) for m in messages]
        first = self._send([Message(_BATCH_BEGIN, REQUEST, edge), *wanted, Message(_BATCH_END, REQUEST, edge)], 0)
        missing = set(range(first + 1, first + 1 + len(messages)))
        while missing:
            for kind, _, sequence, body in self._receive():
                if kind != _ERROR or sequence < first:
                    continue
                if number := -_ERRNO.unpack_from(body)[0]:
                    raise NetlinkRefused(what, number)
                missing.discard(sequence)

    def tell(self, messages: Iterable[Message], batch: int = 128) -> list[int]:
        """Send all, many in flight at once; the errno of each in order, 0 where it was done."""
        queue = list(messages)
        results: list[int] = []
        for start in range(0, len(queue), batch):
            chunk = queue[start : start + batch]
            first = self._send(chunk, ACK)
            answers: dict[int, int] = {}
            while len(answers) < len(chunk):
                for kind, _, sequence, body in self._receive():
                    if kind == _ERROR and sequence >= first:
                        answers[sequence] = -_ERRNO.unpack_from(body)[0]
            results += [answers[first + i] for i in range(len(chunk))]
        return results

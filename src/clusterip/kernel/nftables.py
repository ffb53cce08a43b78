"""nf_tables over netlink: transactions, and reading back. Blocking; see `netlink`.

One `Batch` is one transaction of the kernel: all of it or nothing. Numbers are those of the kernel's
include/uapi/linux/netfilter/nf_tables.h and nfnetlink.h.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from clusterip.errors import ClusterIPError, Unavailable
from clusterip.kernel.netlink import (
    NEEDS_ROOT,
    NETFILTER,
    Netlink,
    NetlinkRefused,
    attribute,
    attributes,
    inside,
    netfilter,
)
from clusterip.services.table import Family

SUBSYSTEM = 10
FAMILIES: dict[Family, int] = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}


class Command(IntEnum):
    NEW_TABLE = 0
    GET_TABLE = 1
    DELETE_TABLE = 2
    NEW_CHAIN = 3
    GET_CHAIN = 4
    DELETE_CHAIN = 5
    NEW_RULE = 6
    GET_RULE = 7
    DELETE_RULE = 8
    NEW_SET = 9
    GET_SET = 10
    DELETE_SET = 11
    NEW_ELEMENT = 12
    GET_ELEMENT = 13
    DELETE_ELEMENT = 14
    GET_GENERATION = 16


TABLE_NAME, TABLE_FLAGS = 1, 2
TABLE_DORMANT = 1  # a flag
CHAIN_TABLE, CHAIN_NAME, CHAIN_HOOK, CHAIN_POLICY, CHAIN_TYPE = 1, 3, 4, 5, 7
HOOK_NUMBER, HOOK_PRIORITY = 1, 2
RULE_TABLE, RULE_CHAIN, RULE_EXPRESSIONS, RULE_USERDATA = 1, 2, 4, 7
SET_TABLE, SET_NAME, SET_FLAGS, SET_KEY_TYPE, SET_KEY_LENGTH, SET_DATA_TYPE, SET_DATA_LENGTH = 1, 2, 3, 4, 5, 6, 7
SET_DESCRIPTION, SET_ID, SET_TIMEOUT, SET_USERDATA, SET_COUNT = 9, 10, 11, 13, 20
DESCRIPTION_SIZE = 1
ELEMENTS_TABLE, ELEMENTS_SET, ELEMENTS_LIST = 1, 2, 3
ELEMENT_KEY, ELEMENT_DATA, ELEMENT_USERDATA = 1, 2, 6
DATA_VALUE, DATA_VERDICT = 1, 2
VERDICT_CODE, VERDICT_CHAIN = 1, 2
LIST_ITEM = 1
EXPRESSION_NAME, EXPRESSION_DATA = 1, 2

CREATE, APPEND = 0x400, 0x800
NESTED = 0x8000
MAX_NESTED = 65_000  # bytes of elements in one message: an attribute's length has 16 bits

_REQUEST, _ACK = 1, 4
_BATCH_BEGIN, _BATCH_END, _BATCH_GENERATION = 0x10, 0x11, 1
_GENERATION_ID = 1
_ERROR = 2
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_EXT_ACK_MESSAGE = 1
_HEADER = struct.Struct("=IHHIIBBH")  # length, type, flags, sequence, port, family, version, resource id
_U32 = struct.Struct("!I")
_SIZE = struct.Struct("=H")
_RECEIVE = 1 << 17
_SEND_AT_LEAST = 1 << 18


class Message(NamedTuple):
    """One step of a transaction. `what` says which, to a person."""

    command: Command
    body: bytes
    flags: int = 0
    what: str = ""


class TransactionRefused(NetlinkRefused):
    """Nothing of the transaction is in force. `index`: of the message that was refused, -1 if none was blamed."""

    def __init__(self, what: str, number: int, index: int) -> None:
        super().__init__(what, number)
        self.index = index


class GenerationPassed(ClusterIPError):
    """Somebody else wrote since the generation that the transaction was made for. Nothing of it is in force."""


class Tables:
    """One socket to the nf_tables of a namespace, for one family. Use as a context manager, in one thread at a time."""

    def __init__(self, family: Family, netns: str = "") -> None:
        """Raises Unavailable."""
        self._family = FAMILIES[family]
        self._sending = 0
        with inside(netns):
            try:
                self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETFILTER)
            except OSError as error:
                raise Unavailable(f"nf_tables: {error.strerror}", hint="it needs CONFIG_NF_TABLES") from error
        try:
            # Only the header of a refused message comes back, and why it was refused.
            self._socket.setsockopt(_SOL_NETLINK, _CAP_ACK, 1)
            self._socket.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 4 << 20)
            self._socket.bind((0, 0))
            self._dumps = Netlink(netns, timeout=60.0)
        except BaseException as error:
            self._socket.close()
            if isinstance(error, PermissionError):
                raise Unavailable(f"nf_tables: {error.strerror}", hint=NEEDS_ROOT) from error
            raise

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()
        self._dumps.close()

    def generation(self) -> int:
        """Grows by one with every transaction of anybody in the namespace. Raises Unavailable if there is no
        nf_tables here."""
        try:
            body = self._dumps.ask(netfilter(SUBSYSTEM, Command.GET_GENERATION, 0), "nf_tables: generation")
        except NetlinkRefused as error:
            hint = error.hint or "modprobe nf_tables, or use --proxy-mode iptables"
            raise Unavailable(error.message, hint=hint) from error
        return int.from_bytes(attributes(body, 4).get(_GENERATION_ID, b""), "big")

    def commit(self, messages: Sequence[Message], generation: int | None = None) -> None:
        """One transaction, in one datagram: the kernel takes it whole, or nothing.

        With `generation`, only if nobody has written since. Raises TransactionRefused, GenerationPassed.
        """
        data = self._datagram(messages, generation)
        if len(data) > self._sending:
            self._sending = max(len(data), _SEND_AT_LEAST)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, min(self._sending + (1 << 16), 0x3FFFFFFF))
        try:
            self._socket.send(data)
        except OSError as error:
            raise TransactionRefused(f"nf_tables: a transaction of {len(data)} bytes", error.errno or 0, -1) from error
        self._judge(messages)

    def _datagram(self, messages: Sequence[Message], generation: int | None) -> bytes:
        wanted = b"" if generation is None else attribute(_BATCH_GENERATION, _U32.pack(generation))
        resource = socket.htons(SUBSYSTEM)
        parts = [_HEADER.pack(20 + len(wanted), _BATCH_BEGIN, _REQUEST, 0, 0, 0, 0, resource), wanted]
        last = len(messages) - 1
        for index, m in enumerate(messages):
            flags = _REQUEST | m.flags | (_ACK if index == last else 0)
            kind = SUBSYSTEM << 8 | m.command
            parts.append(_HEADER.pack(20 + len(m.body), kind, flags, index + 1, 0, self._family, 0, 0))
            parts.append(m.body)
        parts.append(_HEADER.pack(20, _BATCH_END, _REQUEST, 0, 0, 0, 0, resource))
        return b"".join(parts)

    def _judge(self, messages: Sequence[Message]) -> None:
        """The kernel has judged by the time `send` returns: what it says is there to be read."""
        acknowledged = False
        for number, sequence, said in self._answers():
            if not number:
                acknowledged = True
                continue
            if number == errno.ERESTART:
                raise GenerationPassed("nf_tables: somebody else wrote meanwhile")
            blamed = messages[sequence - 1].what if 0 < sequence <= len(messages) else "the transaction"
            what = f"nf_tables: {blamed}" + (f" ({said})" if said else "")
            raise TransactionRefused(what, number, sequence - 1)
        if not acknowledged and messages:
            raise TransactionRefused("nf_tables: the transaction was not acknowledged", errno.EIO, -1)

    def _answers(self) -> Iterator[tuple[int, int, str]]:
        """errno (0: done), sequence number, the kernel's words. All that wait are read, lest the next transaction takes
        them for its own. Where there are more than the socket holds the first ones have come."""
        answers = []
        while True:
            try:
                data = self._socket.recv(_RECEIVE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                continue
            position = 0
            while position + 36 <= len(data):
                size, kind = struct.unpack_from("=IH", data, position)
                if kind == _ERROR:
                    number, blamed = (
                        struct.unpack_from(f, data, position + at)[0] for f, at in (("=i", 16), ("=I", 28))
                    )
                    words = attributes(data[position + 36 : position + size]).get(_EXT_ACK_MESSAGE, b"")
                    answers.append((-number, blamed, words.rstrip(b"\0").decode(errors="replace")))
                position += (size + 3) & ~3
        yield from answers

    def dump(self, command: Command, wanted: bytes, what: str) -> list[dict[int, bytes]] | None:
        """The attributes of each thing listed; None if the table is not there. An interrupted list is asked again.

        Raises NetlinkRefused, Unavailable.
        """
        for _ in range(100):
            try:
                bodies, whole = self._dumps.dump(netfilter(SUBSYSTEM, command, self._family, wanted), what)
            except NetlinkRefused as error:
                if error.errno == errno.ENOENT:
                    return None
                raise
            if whole:
                return [attributes(body, 4) for body in bodies]
        raise Unavailable(f"{what}: others write all the time: {os.strerror(errno.EINTR)}")


def items(payload: bytes) -> Iterator[bytes]:
    """The payloads of a list's items, which all have the same number."""
    position, end = 0, len(payload)
    while position + 4 <= end:
        (size,) = _SIZE.unpack_from(payload, position)
        if size < 4:
            return
        yield payload[position + 4 : position + size]
        position += (size + 3) & ~3

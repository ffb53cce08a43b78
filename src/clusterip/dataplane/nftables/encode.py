"""Steps of a delta -> messages for the kernel. Pure.

Elements are packed by one `struct` each: there may be a hundred thousand.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TypeAlias

from clusterip.dataplane.nftables import chains as c
from clusterip.dataplane.nftables import delta as d
from clusterip.dataplane.nftables.compile import Element, Key
from clusterip.dataplane.nftables.config import TABLE
from clusterip.dataplane.nftables.expressions import PROTOCOLS, address, comment, name, rule, typeof, u32, verdict
from clusterip.kernel import nftables as k
from clusterip.kernel.netlink import attribute, nested
from clusterip.kernel.nftables import Command, Message
from clusterip.rulesets.nft import values as v
from clusterip.services.table import Backend, Family

_HOOKS = {"prerouting": 0, "input": 1, "forward": 2, "output": 3, "postrouting": 4}
_TYPES = {"ipv4_addr": (7, 4), "ipv6_addr": (8, 16), "inet_proto": (12, 1), "inet_service": (13, 2)}  # number, bytes
_TYPEOF = {"ip daddr": (7, 4), "ip6 daddr": (8, 16), "meta l4proto": (12, 1), "th dport": (13, 2), "numgen": (4, 4)}
_VERDICT = 0xFFFFFF00
_MAP, _TIMEOUT, _EVALUATED = 8, 16, 32
_PORT = struct.Struct("!HH")
_NUMBER = struct.Struct("=I")
_ATTRIBUTE = struct.Struct("=HH")
_ITEM = k.LIST_ITEM | k.NESTED
_ACCEPT = 1
_SET_ID = 1  # in the transaction, of all sets: rules and elements find theirs by name


def messages(transaction: d.Transaction, family: Family) -> list[Message]:
    ip = "ip6" if family == "IPv6" else "ip"
    return [message for step in transaction for message in _messages(step, ip)]


def _messages(step: d.Step, ip: str) -> Iterator[Message]:
    match step:
        case d.AddTable():
            awake = name(k.TABLE_NAME, TABLE) + u32(k.TABLE_FLAGS, 0)
            yield Message(Command.NEW_TABLE, awake, k.CREATE, f"add table {ip} {TABLE}")
        case d.DeleteTable():
            yield Message(Command.DELETE_TABLE, name(k.TABLE_NAME, TABLE), 0, f"delete table {ip} {TABLE}")
        case d.AddSet(found):
            yield Message(Command.NEW_SET, _set(found), k.CREATE, f"add set {found.name}")
        case d.DeleteSet(known):
            yield Message(Command.DELETE_SET, _in_table(k.SET_NAME, known), 0, f"delete set {known}")
        case d.FlushSet(known):
            yield Message(Command.DELETE_ELEMENT, _in_table(k.ELEMENTS_SET, known), 0, f"flush set {known}")
        case d.AddChain(chain):
            yield Message(Command.NEW_CHAIN, _chain(chain), k.CREATE, f"add chain {chain.name}")
        case d.DeleteChain(known):
            yield Message(Command.DELETE_CHAIN, _in_table(k.CHAIN_NAME, known), 0, f"delete chain {known}")
        case d.FlushChain(known):
            yield Message(Command.DELETE_RULE, _in_table(k.RULE_CHAIN, known), 0, f"flush chain {known}")
        case d.AddRules(chain):
            for number, one in enumerate(chain.rules, 1):
                what = f"add rule {number} of chain {chain.name}"
                yield Message(Command.NEW_RULE, rule(chain.name, one, ip), k.CREATE | k.APPEND, what)
        case d.AddElements(known, elements):
            yield from _elements(known, (_element(e) for e in elements), Command.NEW_ELEMENT)
        case d.DeleteElements(known, keys):
            wanted = (nested(k.LIST_ITEM, key_attribute(known, key)) for key in keys)
            yield from _elements(known, wanted, Command.DELETE_ELEMENT)


def _in_table(kind: int, known: str) -> bytes:
    return name(1, TABLE) + name(kind, known)


def _chain(chain: v.Chain) -> bytes:
    return _in_table(k.CHAIN_NAME, chain.name) + hook_bytes(chain.hook)


def hook_bytes(hook: v.Hook | None) -> bytes:
    """What makes a base chain: hook, priority, policy, type. b"": only jumps lead there."""
    if hook is None:
        return b""
    place = u32(k.HOOK_NUMBER, _HOOKS[hook.hook]) + u32(k.HOOK_PRIORITY, hook.priority)
    return nested(k.CHAIN_HOOK, place) + u32(k.CHAIN_POLICY, _ACCEPT) + name(k.CHAIN_TYPE, hook.type)


def _set(found: v.Set) -> bytes:
    kinds = [_kind(t, found.typeof) for t in found.types]
    flags = (_MAP if found.values else 0) | (_TIMEOUT | _EVALUATED if "dynamic" in found.flags else 0)
    parts = [
        _in_table(k.SET_NAME, found.name),
        u32(k.SET_FLAGS, flags),
        u32(k.SET_KEY_TYPE, _joined(kinds)),
        u32(k.SET_KEY_LENGTH, sum(_padded(length) for _, length in kinds)),
    ]
    if found.values == ("verdict",):
        parts.append(u32(k.SET_DATA_TYPE, _VERDICT))
    elif found.values:
        values = [_kind(t, found.typeof) for t in found.values]
        parts.append(u32(k.SET_DATA_TYPE, _joined(values)))
        parts.append(u32(k.SET_DATA_LENGTH, sum(_padded(length) for _, length in values)))
    parts.append(u32(k.SET_ID, _SET_ID))
    if found.timeout:
        parts.append(attribute(k.SET_TIMEOUT, struct.pack("!Q", _milliseconds(found.timeout))))
    # For as many as it is told the kernel makes room at once: 2 MB for the clients of one sticky backend. A set that
    # rules fill and that has no size gets this same one, and room as it grows.
    if found.size and "dynamic" not in found.flags:
        parts.append(nested(k.SET_DESCRIPTION, u32(k.DESCRIPTION_SIZE, found.size)))
    if found.typeof:
        parts.append(attribute(k.SET_USERDATA, _typeof_notes(found)))
    return b"".join(parts)


def _kind(text: str, is_typeof: bool) -> tuple[int, int]:
    return _TYPEOF["numgen" if text.startswith("numgen") else text] if is_typeof else _TYPES[text]


def _joined(kinds: list[tuple[int, int]]) -> int:
    number = 0
    for kind, _ in kinds:
        number = number << 6 | kind
    return number


def _padded(length: int) -> int:
    return (length + 3) & ~3


def _typeof_notes(found: v.Set) -> bytes:
    """Byte orders of key and data, then how nft is to print each."""
    parts = ((0, bytes(4)), (1, bytes(4)), (3, typeof(found.types)), (4, typeof(found.values)))
    return b"".join(bytes((kind, len(value))) + value for kind, value in parts)


_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def _milliseconds(timeout: str) -> int:
    total, digits = 0, ""
    for letter in timeout:
        if letter.isdigit():
            digits += letter
        else:
            total += int(digits) * _UNITS[letter]
            digits = ""
    return total * 1000


# --- elements --------------------------------------------------------------------------------------------------------


def _elements(known: str, packed: Iterable[bytes], command: Command) -> Iterator[Message]:
    """As few messages as an attribute's 64 kB allow."""
    head = _in_table(k.ELEMENTS_SET, known)
    flags = k.CREATE if command is Command.NEW_ELEMENT else 0
    what = f"{'add' if command is Command.NEW_ELEMENT else 'delete'} elements of {known}"
    chunk: list[bytes] = []
    size = 0
    for element in packed:
        if size + len(element) > k.MAX_NESTED:
            yield Message(command, head + nested(k.ELEMENTS_LIST, *chunk), flags, what)
            chunk, size = [], 0
        chunk.append(element)
        size += len(element)
    if chunk:
        yield Message(command, head + nested(k.ELEMENTS_LIST, *chunk), flags, what)


def _element(element: Element) -> bytes:
    known, key, value, text = element
    body = key_attribute(known, key)
    if value is not None:
        body += _data(value)
    if text:
        body += _comment(text)
    return _ATTRIBUTE.pack(4 + len(body), _ITEM) + body


def key_attribute(known: str, key: Key) -> bytes:
    value = _LAYOUTS[known](key)
    return _heads(k.ELEMENT_KEY, len(value)) + value


def key_bytes(known: str, key: Key) -> bytes:
    return _LAYOUTS[known](key)


@lru_cache(maxsize=64)
def _heads(kind: int, size: int) -> bytes:
    """What comes before a value of so many bytes, a multiple of four: two attributes, one in the other."""
    return _ATTRIBUTE.pack(size + 8, kind | k.NESTED) + _ATTRIBUTE.pack(size + 4, k.DATA_VALUE)


Part: TypeAlias = str | int


# A Service's elements come one after the other, so few of these need to be remembered; an address packs as quickly as
# it would be found among all that were ever seen.
@lru_cache(maxsize=1 << 8)
def _service_key(ip: Part, protocol: Part, port: Part) -> bytes:
    return address(str(ip)) + _protocol(protocol) + _port(port)


def _node_port_key(protocol: Part, port: Part) -> bytes:
    return _protocol(protocol) + _port(port)


@lru_cache(maxsize=8)
def _protocol(word: Part) -> bytes:
    return bytes((PROTOCOLS[str(word).lower()], 0, 0, 0))


@lru_cache(maxsize=1 << 8)
def _port(number: Part) -> bytes:
    return _PORT.pack(int(number), 0)


def _numbered_service(key: Key) -> bytes:
    ip, protocol, port, number = key
    return _service_key(ip, protocol, port) + _NUMBER.pack(number)


def _numbered_node_port(key: Key) -> bytes:
    protocol, port, number = key
    return _node_port_key(protocol, port) + _NUMBER.pack(number)


_LAYOUTS: dict[str, Callable[[Key], bytes]] = {
    c.CLUSTER_IPS: lambda key: address(str(key[0])),
    c.NODE_PORT_ADDRESSES: lambda key: address(str(key[0])),
    c.HAIRPINS: lambda key: address(str(key[0])) + address(str(key[1])),
    c.SERVICE_IPS: lambda key: _service_key(*key),
    c.NO_ENDPOINTS: lambda key: _service_key(*key),
    c.NODE_PORTS: lambda key: _node_port_key(*key),
    c.NO_ENDPOINT_NODE_PORTS: lambda key: _node_port_key(*key),
    c.ENDPOINTS: _numbered_service,
    c.LOCAL_ENDPOINTS: _numbered_service,
    c.NODE_PORT_ENDPOINTS: _numbered_node_port,
    c.NODE_PORT_LOCAL_ENDPOINTS: _numbered_node_port,
}


def _data(value: Backend | v.Verdict) -> bytes:
    if isinstance(value, Backend):
        place = backend_bytes(value)
        return _heads(k.ELEMENT_DATA, len(place)) + place
    return _verdict(value)


def value_bytes(value: Backend | v.Verdict | None) -> bytes:
    """An element's value as the kernel gives it back; b"" in a set."""
    if value is None:
        return b""
    return backend_bytes(value) if isinstance(value, Backend) else verdict(value)[4:]


def backend_bytes(backend: Backend) -> bytes:
    return address(backend.address) + _port(backend.port)


@lru_cache(maxsize=1 << 8)
def _verdict(value: v.Verdict) -> bytes:
    return nested(k.ELEMENT_DATA, verdict(value))


@lru_cache(maxsize=1 << 8)
def _comment(text: str) -> bytes:
    return attribute(k.ELEMENT_USERDATA, comment(text))

"""Rules as values -> the expressions that the kernel runs. Pure.

What `nft` itself would send for the same rule, so that it lists them alike. Only what the chains of this room use.
"""

import socket
import struct
from collections.abc import Sequence
from typing import TypeAlias

from clusterip.dataplane.nftables.config import TABLE
from clusterip.kernel import nftables as k
from clusterip.kernel.netlink import attribute, nested
from clusterip.rulesets.nft import values as v

Register: TypeAlias = int  # in words of 4 bytes, from 0 to 15

PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}
_INET, _INET6 = int(socket.AF_INET), int(socket.AF_INET6)  # an enum's member costs more than the packing itself
_U32 = struct.Struct("!I")
_HOST32 = struct.Struct("=I")
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_PAYLOADS = {  # header, offset, length
    ("ip", "saddr"): (_NETWORK_HEADER, 12, 4),
    ("ip", "daddr"): (_NETWORK_HEADER, 16, 4),
    ("ip6", "saddr"): (_NETWORK_HEADER, 8, 16),
    ("ip6", "daddr"): (_NETWORK_HEADER, 24, 16),
    ("th", "dport"): (_TRANSPORT_HEADER, 2, 2),
}
_META = {"mark": (3, 4), "iifname": (6, 16), "l4proto": (16, 1)}  # number, length
_CT = {"state": 0, "status": 2}
_CT_BITS = {("state", "invalid"): 1, ("state", "new"): 8, ("status", "dnat"): 32}
_FIB_TYPE, _FIB_LOCAL = 3, 2
_FIB_FLAGS = {"saddr": 1, "daddr": 2}
_EQUAL, _UNEQUAL = 0, 1
_DROP, _JUMP, _GOTO = 0, -3, -4
_DNAT, _FULLY_RANDOM = 1, 1 << 4
_UPDATE = 1
_PORT_UNREACHABLE = {"ip": 3, "ip6": 4}  # codes of ICMP and ICMPv6


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, _U32.pack(value & 0xFFFFFFFF))


def name(kind: int, text: str) -> bytes:
    return attribute(kind, text.encode() + b"\0")


def address(text: str) -> bytes:
    return socket.inet_pton(_INET6 if ":" in text else _INET, text)


def verdict(found: v.Verdict) -> bytes:
    """As the data of an element or of an immediate."""
    match found:
        case v.Drop():
            return nested(k.DATA_VERDICT, u32(k.VERDICT_CODE, _DROP))
        case v.Jump(chain) | v.Goto(chain):
            code = _JUMP if isinstance(found, v.Jump) else _GOTO
            return nested(k.DATA_VERDICT, u32(k.VERDICT_CODE, code), name(k.VERDICT_CHAIN, chain))
        case _:
            raise AssertionError(f"{found}: no chain of ours ends so")


def rule(chain: str, found: v.Rule, family: str) -> bytes:
    """The body of the message that appends it. `family`: "ip" or "ip6"."""
    expressions = b"".join(statement(s, family) for s in found.statements)
    return b"".join(
        (
            name(k.RULE_TABLE, TABLE),
            name(k.RULE_CHAIN, chain),
            nested(k.RULE_EXPRESSIONS, expressions),
            attribute(k.RULE_USERDATA, comment(found.comment)) if found.comment else b"",
        )
    )


def comment(text: str) -> bytes:
    """Userdata, which only people and their programs read: type, length, text."""
    written = text.encode()[:127] + b"\0"
    return bytes((0, len(written))) + written


def statement(found: v.Statement, family: str) -> bytes:
    match found:
        case v.Match():
            return _match(found)
        case v.VerdictMap(key, v.SetName(mapped)):
            load, _ = _load(key, 0)
            return load + _lookup(mapped, to=0)
        case v.Drop() | v.Jump() | v.Goto():
            return _expression("immediate", u32(1, 0), nested(2, verdict(found)))
        case v.Reject(""):
            return _expression("reject", u32(1, 0), attribute(2, bytes([_PORT_UNREACHABLE[family]])))
        case v.Mangle(v.Meta("mark"), v.Binary(operator, v.Meta("mark"), v.Number(bits))):
            mask = ~bits & 0xFFFFFFFF if operator == "|" else 0xFFFFFFFF
            load, _ = _load(v.Meta("mark"), 0)
            change = _bitwise(_HOST32.pack(mask), _HOST32.pack(bits))
            return load + change + _expression("meta", u32(2, _META["mark"][0]), u32(3, _register(0)))
        case v.Nat():
            return _nat(found, family)
        case v.Update("update", noted, key, None):
            load, _ = _load(key, 0)
            return load + _expression("dynset", name(1, noted), u32(3, _UPDATE), u32(4, _register(0)))
        case _:
            raise AssertionError(f"{found}: no chain of ours says so")


def _match(match: v.Match) -> bytes:
    load, _ = _load(match.left, 0)
    operation = _UNEQUAL if match.operator == "!=" else _EQUAL
    match match.left, match.right:
        case _, v.SetName(found):
            return load + _lookup(found)
        case _, v.Address(text):
            return load + _compare(operation, address(text))
        case _, v.Prefix(text, length):
            whole = address(text)
            mask = ((1 << length) - 1) << (len(whole) * 8 - length)
            return load + _bitwise(mask.to_bytes(len(whole), "big"), bytes(len(whole))) + _compare(operation, whole)
        case v.Ct(key), v.Word(word):
            bits = _HOST32.pack(_CT_BITS[key, word])
            return load + _bitwise(bits, bytes(4)) + _compare(_UNEQUAL, bytes(4))
        case v.Meta("iifname"), v.Quoted(pattern):
            wanted = pattern[:-1].encode() if pattern.endswith("*") else pattern.encode().ljust(16, b"\0")
            return load + _compare(operation, wanted)
        case v.Meta("l4proto"), v.Word(word):
            return load + _compare(operation, bytes([PROTOCOLS[word]]))
        case v.Fib(), v.Word("local"):
            return load + _compare(operation, _HOST32.pack(_FIB_LOCAL))
        case v.Binary("&", _, v.Number(bits)), v.Number(wanted_bits):
            return load + _bitwise(_HOST32.pack(bits), bytes(4)) + _compare(operation, _HOST32.pack(wanted_bits))
        case v.Numgen(), v.Number(number):
            return load + _compare(operation, _HOST32.pack(number))
        case _:
            raise AssertionError(f"{match}: no chain of ours asks so")


def _load(found: v.Expression, at: Register) -> tuple[bytes, Register]:
    """The expression's value in registers from `at`; and the first register behind it."""
    match found:
        case v.Concat(parts):
            loads = []
            for part in parts:
                load, at = _load(part, at)
                loads.append(load)
            return b"".join(loads), at
        case v.Payload(protocol, field):
            header, offset, length = _PAYLOADS[protocol, field]
            parts_of = (u32(1, _register(at)), u32(2, header), u32(3, offset), u32(4, length))
            return _expression("payload", *parts_of), at + _words(length)
        case v.Meta(key):
            number, length = _META[key]
            return _expression("meta", u32(2, number), u32(1, _register(at))), at + _words(length)
        case v.Ct(key):
            return _expression("ct", u32(2, _CT[key]), u32(1, _register(at))), at + 1
        case v.Fib((by,), "type"):
            return _expression("fib", u32(1, _register(at)), u32(2, _FIB_TYPE), u32(3, _FIB_FLAGS[by])), at + 1
        case v.Numgen("random", modulus, 0):
            return _expression("numgen", u32(1, _register(at)), u32(2, modulus), u32(3, 1), u32(4, 0)), at + 1
        case v.Binary("&", v.Meta() as left, _):
            return _load(left, at)
        case _:
            raise AssertionError(f"{found}: no chain of ours reads it")


def _nat(nat: v.Nat, family: str) -> bytes:
    if nat.kind == "masquerade":
        return _expression("masq", u32(1, _FULLY_RANDOM if nat.flags else 0))
    words = _words(16 if family == "ip6" else 4)
    match nat.address, nat.port:
        case v.Lookup(key, v.SetName(mapped)), None:
            load, _ = _load(key, 0)
            load += _lookup(mapped, to=_register(0))
            port = words
        case v.Address(text), v.Number(number):
            load = _immediate(0, address(text)) + _immediate(4, struct.pack("!H", number))
            port = 4
        case _:
            raise AssertionError(f"{nat}: no chain of ours translates so")
    family_number = socket.AF_INET6 if family == "ip6" else socket.AF_INET
    return load + _expression(
        "nat", u32(1, _DNAT), u32(2, family_number), u32(3, _register(0)), u32(5, _register(port))
    )


def _immediate(at: Register, value: bytes) -> bytes:
    return _expression("immediate", u32(1, _register(at)), nested(2, attribute(k.DATA_VALUE, value)))


def _lookup(found: str, to: int | None = None) -> bytes:
    """In the set, or in the map: `to` is a register's number, 0 the verdict's."""
    return _expression("lookup", name(1, found), u32(2, _register(0)), u32(3, to) if to is not None else b"")


def _compare(operation: int, value: bytes) -> bytes:
    parts = (u32(1, _register(0)), u32(2, operation), nested(3, attribute(k.DATA_VALUE, value)))
    return _expression("cmp", *parts)


def _bitwise(mask: bytes, flip: bytes) -> bytes:
    return _expression(
        "bitwise",
        u32(1, _register(0)),
        u32(2, _register(0)),
        u32(3, len(mask)),
        nested(4, attribute(k.DATA_VALUE, mask)),
        nested(5, attribute(k.DATA_VALUE, flip)),
    )


def _expression(kind: str, *parts: bytes) -> bytes:
    return nested(k.LIST_ITEM, name(k.EXPRESSION_NAME, kind), nested(k.EXPRESSION_DATA, *parts))


def _register(at: Register) -> int:
    """The kernel's number: those of 16 bytes are 1 to 4, those of 4 bytes within them 8 to 23. It gives the first of
    four back as one of 16 bytes."""
    return 8 + at if at % 4 else 1 + at // 4


def _words(length: int) -> int:
    return (length + 3) // 4


# --- what nft keeps beside a set, to print its key by ----------------------------------------------------------------

_CONCAT, _PAYLOAD, _META_EXPRESSION, _NUMGEN = 13, 7, 9, 23  # nft's numbers of kinds of expression
_HEADERS = {"th": 11, "ip": 12, "ip6": 13}
_FIELDS = {("ip", "daddr"): 12, ("ip6", "daddr"): 9, ("th", "dport"): 2}


def _note(kind: int, value: bytes) -> bytes:
    return bytes((kind, len(value))) + value


def typeof(expressions: Sequence[str]) -> bytes:
    """How nft notes that a key is computed by these expressions. Source: nftables 1.0.6, as it writes them itself."""
    parts = b"".join(_note(i, _typeof_part(text)) for i, text in enumerate(expressions))
    return _note(0, _HOST32.pack(_CONCAT)) + _note(1, parts)


def _typeof_part(text: str) -> bytes:
    match text.split():
        case ["meta", key]:
            kind, rest = _META_EXPRESSION, _note(0, _HOST32.pack(_META[key][0]))
        case ["numgen", "random", "mod", modulus]:
            numbers = (1, int(modulus), 0)
            kind, rest = _NUMGEN, b"".join(_note(i, _HOST32.pack(n)) for i, n in enumerate(numbers))
        case [header, field]:
            kind = _PAYLOAD
            rest = _note(0, _HOST32.pack(_HEADERS[header])) + _note(1, _HOST32.pack(_FIELDS[header, field]))
        case _:
            raise AssertionError(f"{text}: no key of ours is computed so")
    return _note(0, _HOST32.pack(kind)) + _note(1, rest)

"""The words of nft: how a line is cut into them, and which value a word is."""

import re
from functools import lru_cache

from clusterip.rulesets.nft import values as v

# A comma between words without a blank keeps them one word: "established,related".
TOKEN = re.compile(r'"[^"]*"|[{}()]|,|[^\s{}(),"]+(?:,[^\s{}(),"]+)*')

_V4 = r"\d{1,3}(?:\.\d{1,3}){3}"
_V6 = r"(?=[^-/]*:[^-/]*:)[0-9a-fA-F:]{2,39}(?:\d{1,3}(?:\.\d{1,3}){3})?"
_ADDRESS = re.compile(f"{_V4}|{_V6}")
_PREFIX = re.compile(rf"({_V4}|{_V6})/(\d{{1,3}})")
_NUMBER = re.compile(r"\d{1,20}|0x[0-9a-fA-F]{1,32}")
_HARDWARE = re.compile(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}")
_RANGE = re.compile(rf"({_V4}|{_V6}|\d{{1,20}}|0x[0-9a-fA-F]{{1,32}})-({_V4}|{_V6}|\d{{1,20}}|0x[0-9a-fA-F]{{1,32}})")


@lru_cache(maxsize=1 << 16)
def literal(word: str) -> v.Expression:
    """ "10.96.0.1", "80", "0x4000", "10.0.0.0/8", "80-90", '"eth0"', "established,related", "tcp"."""
    if word[:1] == '"':
        return v.Quoted(word[1:-1])
    if word.isascii() and word.isdecimal() and len(word) <= 20:
        return v.Number(int(word))
    if "," in word:
        return v.Flags(tuple(literal(part) for part in word.split(",")))
    if word == "*":
        return v.Any()
    return _numeric(word) or v.Word(word)


def _numeric(word: str) -> v.Expression | None:
    if _HARDWARE.fullmatch(word):
        return None
    if _ADDRESS.fullmatch(word):
        return v.Address(word)
    if _NUMBER.fullmatch(word):
        return v.Number(int(word, 0) if word[:2] == "0x" else int(word))
    if found := _PREFIX.fullmatch(word):
        return v.Prefix(found[1], int(found[2]))
    if found := _RANGE.fullmatch(word):
        return v.Range(_end(found[1]), _end(found[2]))
    return None


def _end(word: str) -> v.Number | v.Address:
    if _ADDRESS.fullmatch(word):
        return v.Address(word)
    return v.Number(int(word, 0) if word[:2] == "0x" else int(word))


def number(word: str) -> int | None:
    """None: it is none."""
    return (int(word, 0) if word[:2] == "0x" else int(word)) if _NUMBER.fullmatch(word) else None


# --- names of fields --------------------------------------------------------------------------------------------------

_PORTS = ("sport", "dport")
FIELDS: dict[str, frozenset[str]] = {
    "ip": frozenset(
        (
            "version",
            "hdrlength",
            "dscp",
            "ecn",
            "length",
            "id",
            "frag-off",
            "ttl",
            "protocol",
            "checksum",
            "saddr",
            "daddr",
        )
    ),
    "ip6": frozenset(("version", "dscp", "ecn", "flowlabel", "length", "nexthdr", "hoplimit", "saddr", "daddr")),
    "tcp": frozenset((*_PORTS, "sequence", "ackseq", "doff", "reserved", "flags", "window", "checksum", "urgptr")),
    "udp": frozenset((*_PORTS, "length", "checksum")),
    "udplite": frozenset((*_PORTS, "checksum")),
    "sctp": frozenset((*_PORTS, "vtag", "checksum")),
    "dccp": frozenset((*_PORTS, "type")),
    "th": frozenset(_PORTS),
    "icmp": frozenset(("type", "code", "checksum", "id", "sequence", "gateway", "mtu")),
    "icmpv6": frozenset(
        (
            "type",
            "code",
            "checksum",
            "parameter-problem",
            "packet-too-big",
            "id",
            "sequence",
            "max-delay",
            "mtu",
            "taddr",
        )
    ),
    "igmp": frozenset(("type", "mrt", "checksum", "group")),
    "ether": frozenset(("saddr", "daddr", "type")),
    "vlan": frozenset(("id", "dei", "pcp", "type", "cfi")),
    "arp": frozenset(("htype", "ptype", "hlen", "plen", "operation", "saddr", "daddr")),
    "ah": frozenset(("nexthdr", "hdrlength", "reserved", "spi", "sequence")),
    "esp": frozenset(("spi", "sequence")),
    "comp": frozenset(("nexthdr", "flags", "cpi")),
    "frag": frozenset(("nexthdr", "reserved", "frag-off", "more-fragments", "id")),
}
# Keys of meta that nft prints without "meta".
BARE_META = frozenset(
    ("iif", "oif", "iifname", "oifname", "iifgroup", "oifgroup", "iiftype", "oiftype", "mark", "skuid", "skgid")
) | {"rtclassid", "pkttype", "cgroup", "nftrace", "cpu"}
CT_DIRECTIONS = frozenset(("original", "reply"))
CT_FAMILIES = frozenset(("ip", "ip6"))
PRIORITIES = {"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "out": 100, "srcnat": 100}
BRIDGE_PRIORITIES = {"dstnat": -300, "filter": -200, "out": 100, "srcnat": 300}

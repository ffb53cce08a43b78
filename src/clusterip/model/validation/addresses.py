"""What is an address or a range in the API's fields: strict since 1.36, while stored values may stay.

Each function gives what is wrong, or "" when nothing is.
"""

import ipaddress
from collections.abc import Collection

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def address(text: str, kept: Collection[str] = ()) -> str:
    """Refuses leading zeros and IPv4-mapped IPv6, which programs read differently. `kept`: values already stored."""
    if text in kept:
        return ""
    parsed = parse(text)
    if parsed is None:
        return "must be a valid IP address, such as 10.9.8.7 or 2001:db8::ffff, without leading zeros"
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped:
        return "must not be an IPv4-mapped IPv6 address"
    return ""


def ordinary(text: str, kept: Collection[str] = ()) -> str:
    """An address that can be that of another machine."""
    if wrong := address(text, kept):
        return wrong
    parsed = parse(text)
    if parsed is None:
        return ""  # kept from a time of looser rules
    if parsed.is_unspecified:
        return f"may not be unspecified ({text})"
    if parsed.is_loopback:
        return "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    if parsed.is_link_local:
        return "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    if parsed.is_multicast and _link_local_multicast(parsed):
        return "may not be in the link-local multicast range (224.0.0.0/24, ff02::/16)"
    return ""


def network(text: str, kept: Collection[str] = ()) -> str:
    if text in kept:
        return ""
    base, slash, length = text.partition("/")
    if wrong := address(base) if slash else "no prefix length":
        return f"must be a valid CIDR value, such as 10.9.8.0/24 or 2001:db8::/64: {wrong}"
    if not length.isascii() or not length.isdigit() or (len(length) > 1 and length[0] == "0"):
        return "the prefix length must be a number without leading zeros"
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return "must not have bits set beyond the prefix length, which must fit the family"
    return ""


def canonical(text: str) -> str:
    parsed = parse(text)
    if parsed is None:
        return "must be a valid IP address in canonical form"
    if str(parsed) != text:
        return f"must be in canonical form ({parsed})"
    return ""


def parse(text: str) -> Address | None:
    """None for what is no address, and for one with a zone, which means nothing outside one machine."""
    try:
        return ipaddress.ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def family(text: str) -> str:
    return "IPv6" if ":" in text else "IPv4"


def _link_local_multicast(parsed: Address) -> bool:
    first = parsed.packed
    return first[:3] == b"\xe0\x00\x00" if parsed.version == 4 else first[0] == 0xFF and first[1] & 0x0F == 2

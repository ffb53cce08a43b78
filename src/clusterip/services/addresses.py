"""Addresses as people write them -> canonical text of one family. Pure.

Objects may hold what today's API server would refuse (older ones did not), so nothing here raises.
"""

import ipaddress
from functools import lru_cache

from clusterip.services.table import Family


@lru_cache(maxsize=1 << 17)
def canonical_address(text: str, family: Family) -> str:
    """`text` in canonical form, "" if it is no address of `family`.

    Leading zeros are decimal ("010.0.0.1" is 10.0.0.1), as they were for the API servers that accepted them.
    """
    try:
        address = ipaddress.ip_address(_decimal(text))
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            return ""
        address = address.ipv4_mapped or address
    return str(address) if address.version == _version(family) else ""


def canonical_range(text: str, family: Family) -> str:
    """`text` ("10.0.0.7/24") as the network it lies in, "" if it is no range of `family`."""
    address, slash, length = text.strip().partition("/")
    # A mask ("/255.0.0.0") is no prefix length.
    if not (slash and length.isascii() and length.isdecimal()):
        return ""
    try:
        network = ipaddress.ip_network(f"{_decimal(address)}/{length}", strict=False)
    except ValueError:
        return ""
    return str(network) if network.version == _version(family) and "%" not in address else ""


def _decimal(text: str) -> str:
    if ":" in text or not (text.startswith("0") or ".0" in text):
        return text
    return ".".join(part.lstrip("0") or part[:1] for part in text.split("."))


def _version(family: Family) -> int:
    return 6 if family == "IPv6" else 4

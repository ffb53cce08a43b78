"""Rewriting of addresses, as both families of rules write it."""

from msgspec.structs import replace

from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.walk.surroundings import is_address


def rewritten(packet: Packet, to: str) -> Packet | None:
    """The destination after "10.244.0.3:80", "[fd00::3]:80", "10.244.0.3", ":80". None: it is drawn from a range, or
    it is none.

    What was on its way there already does not count as rewritten. Source: net/netfilter/nf_nat_core.c.
    """
    address, port = parts(to)
    if not (address or port) or (address and not is_address(address)) or (port and not port.isdecimal()):
        return None
    after = replace(
        packet,
        destination=address or packet.destination,
        destination_port=int(port) if port else packet.destination_port,
    )
    return packet if after == packet else replace(after, destination_rewritten=True)


def source_rewritten(packet: Packet, to: str) -> Packet:
    """The source after the same; of a range none is known beforehand. The port may be kept or not."""
    address, _ = parts(to)
    return replace(packet, source=address if is_address(address) else "", source_port=0, source_rewritten=True)


def parts(to: str) -> tuple[str, str]:
    """ "[fd00::3]:80" -> ("fd00::3", "80"); what is not there is ""."""
    if to.startswith("["):
        address, _, port = to[1:].partition("]")
        return address, port.lstrip(":")
    if to.count(":") == 1:
        address, _, port = to.partition(":")
        return address, port
    return to, ""


def untracked(packet: Packet) -> Packet:
    """The same, outside of connection tracking; what is tracked already stays so, as what comes back over the loopback.

    Source: net/netfilter/xt_CT.c, nft_ct.c.
    """
    return packet if packet.tracked else replace(packet, state="UNTRACKED")

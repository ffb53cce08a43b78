"""IPVS by generic netlink: virtual servers and their real servers, many requests in flight at once.

Why not pyroute2, which has IPVS: one call after the other it takes 15 s for 1,000 virtual servers with ten real servers
each, where this takes 1 s; and its `"update"` deletes.

Blocking: callers in an event loop go through `asyncio.to_thread`. Numbers are those of the kernel's
include/uapi/linux/ip_vs.h and include/uapi/linux/genetlink.h.
"""

import ipaddress
import socket
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from clusterip.errors import Unavailable
from clusterip.kernel.netlink import REQUEST, Message, Netlink, NetlinkRefused, attribute, attributes, nested
from clusterip.services.table import Family, Protocol

_GENERIC = 16  # netlink protocol number
_CONTROLLER, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_NEW_SERVICE, _SET_SERVICE, _DELETE_SERVICE, _GET_SERVICE = 1, 2, 3, 4
_NEW_DEST, _SET_DEST, _DELETE_DEST, _GET_DEST, _SET_CONFIG = 5, 6, 7, 8, 12
_SERVICE, _DEST, _TIMEOUT_TCP, _TIMEOUT_FIN, _TIMEOUT_UDP = 1, 2, 4, 5, 6  # of a command
_S_FAMILY, _S_PROTOCOL, _S_ADDRESS, _S_PORT, _S_SCHEDULER, _S_FLAGS, _S_TIMEOUT, _S_NETMASK = 1, 2, 3, 4, 6, 7, 8, 9
_D_ADDRESS, _D_PORT, _D_FORWARD, _D_WEIGHT, _D_UPPER, _D_LOWER, _D_ACTIVE, _D_INACTIVE = range(1, 9)
_D_FAMILY = 11
_INET, _INET6 = int(socket.AF_INET), int(socket.AF_INET6)  # an enum's member costs more than packing an address
_PERSISTENT, _MH_PORT = 0x1, 0x10
_MASQUERADE = 0
_U16, _U32, _PORT, _FLAGS = struct.Struct("=H"), struct.Struct("=I"), struct.Struct("!H"), struct.Struct("=II")
_GENERIC_HEADER = struct.Struct("=BBH")  # command, version, reserved
_PROTOCOLS: Mapping[Protocol, int] = {"TCP": 6, "UDP": 17, "SCTP": 132}
_NAMES: Mapping[int, Protocol] = {number: name for name, number in _PROTOCOLS.items()}


class Place(NamedTuple):
    """Where a virtual server answers."""

    protocol: Protocol
    address: str
    port: int


class Service(NamedTuple):
    place: Place
    scheduler: str
    persistent: int  # seconds; 0: not


class Destination(NamedTuple):
    address: str
    port: int
    weight: int
    active: int  # connections
    inactive: int

    @property
    def connections(self) -> int:
        return self.active + self.inactive


class Request(NamedTuple):
    """What one message asks for; `what` says it for people."""

    command: int
    attributes: bytes
    what: str


class IPVSRefused(NetlinkRefused):
    """The kernel refused a request; those after it in the same call may have been done."""


def add_service(service: Service) -> Request:
    return Request(_NEW_SERVICE, _service(service), f"add virtual server {_text(service.place)} {service.scheduler}")


def edit_service(service: Service) -> Request:
    return Request(_SET_SERVICE, _service(service), f"change virtual server {_text(service.place)}")


def delete_service(place: Place) -> Request:
    return Request(_DELETE_SERVICE, nested(_SERVICE, _place(place)), f"delete virtual server {_text(place)}")


def add_destination(place: Place, address: str, port: int, weight: int = 1) -> Request:
    body = _destination(place, address, port, weight)
    return Request(_NEW_DEST, body, f"add real server {address} port {port} to {_text(place)}")


def edit_destination(place: Place, address: str, port: int, weight: int) -> Request:
    body = _destination(place, address, port, weight)
    return Request(_SET_DEST, body, f"give real server {address} port {port} of {_text(place)} weight {weight}")


def delete_destination(place: Place, address: str, port: int) -> Request:
    body = _destination(place, address, port, 0)
    return Request(_DELETE_DEST, body, f"delete real server {address} port {port} of {_text(place)}")


class IPVS:
    """One socket, in the named namespace ("": our own). Use as a context manager.

    Raises Unavailable if this kernel has no IPVS; the kernel loads the module itself if it can.
    """

    def __init__(self, netns: str = "") -> None:
        self._link = Netlink(netns, protocol=_GENERIC)
        try:
            self._family = self._resolve()
        except BaseException:
            self._link.close()
            raise

    def __enter__(self) -> "IPVS":
        return self

    def __exit__(self, *_: object) -> None:
        self._link.close()

    def _resolve(self) -> int:
        asked = _GENERIC_HEADER.pack(_GET_FAMILY, 2, 0) + attribute(_FAMILY_NAME, b"IPVS\0")
        try:
            body = self._link.ask(Message(_CONTROLLER, REQUEST, asked), "generic netlink: family IPVS")
        except NetlinkRefused as error:
            raise Unavailable(
                "IPVS: this kernel has none, and no module ip_vs to load",
                hint="use --proxy-mode nftables, or a kernel with IPVS (modprobe ip_vs)",
            ) from error
        return int(_U16.unpack(attributes(body, 4)[_FAMILY_ID])[0])

    def apply(self, requests: Sequence[Request]) -> None:
        """All of them, in order. Raises IPVSRefused with the first that was refused."""
        messages = [self._message(r.command, r.attributes) for r in requests]
        for request, number in zip(requests, self._link.tell(messages), strict=True):
            if number:
                raise IPVSRefused(f"IPVS: {request.what}", number)

    def services(self, family: Family) -> list[Service]:
        """Those of the family; those that go by a firewall mark are nobody's here."""
        bodies, _ = self._link.dump(self._message(_GET_SERVICE, b""), "IPVS: list virtual servers")
        found = (_read_service(attributes(attributes(body, 4)[_SERVICE])) for body in bodies)
        return [service for service in found if service and (":" in service.place.address) == (family == "IPv6")]

    def destinations(self, place: Place) -> list[Destination]:
        asked = self._message(_GET_DEST, nested(_SERVICE, _place(place)))
        bodies, _ = self._link.dump(asked, f"IPVS: list real servers of {_text(place)}")
        return [_read_destination(attributes(attributes(body, 4)[_DEST]), place) for body in bodies]

    def set_timeouts(self, tcp: int, tcp_fin: int, udp: int) -> None:
        """Seconds; 0 leaves one as it is."""
        numbers = ((_TIMEOUT_TCP, tcp), (_TIMEOUT_FIN, tcp_fin), (_TIMEOUT_UDP, udp))
        body = b"".join(attribute(kind, _U32.pack(value)) for kind, value in numbers)
        self.apply([Request(_SET_CONFIG, body, f"set time-outs {tcp} {tcp_fin} {udp}")])

    def _message(self, command: int, body: bytes) -> Message:
        return Message(self._family, REQUEST, _GENERIC_HEADER.pack(command, 1, 0) + body)


def _text(place: Place) -> str:
    return f"{place.protocol} {place.address} port {place.port}"


def _packed(address: str) -> bytes:
    """Sixteen bytes, of which IPv4 uses the first four."""
    return socket.inet_pton(_number(address), address).ljust(16, b"\0")


def _number(address: str) -> int:
    return _INET6 if ":" in address else _INET


@lru_cache(maxsize=1 << 6)  # real servers of one virtual server are written one after the other
def _place(place: Place) -> bytes:
    return (
        attribute(_S_FAMILY, _U16.pack(_number(place.address)))
        + attribute(_S_PROTOCOL, _U16.pack(_PROTOCOLS[place.protocol]))
        + attribute(_S_ADDRESS, _packed(place.address))
        + attribute(_S_PORT, _PORT.pack(place.port))
    )


def _service(service: Service) -> bytes:
    flags = (_PERSISTENT if service.persistent else 0) | (_MH_PORT if service.scheduler == "mh" else 0)
    # Each client by itself: all bits of an IPv4 address, or the number of them of an IPv6 one.
    netmask = _U32.pack(128) if ":" in service.place.address else b"\xff\xff\xff\xff"
    return nested(
        _SERVICE,
        _place(service.place),
        attribute(_S_SCHEDULER, service.scheduler.encode() + b"\0"),
        attribute(_S_FLAGS, _FLAGS.pack(flags, _PERSISTENT | _MH_PORT)),
        attribute(_S_TIMEOUT, _U32.pack(service.persistent)),
        attribute(_S_NETMASK, netmask),
    )


def _destination(place: Place, address: str, port: int, weight: int) -> bytes:
    return nested(_SERVICE, _place(place)) + nested(
        _DEST,
        attribute(_D_ADDRESS, _packed(address)),
        attribute(_D_PORT, _PORT.pack(port)),
        attribute(_D_WEIGHT, _U32.pack(weight)),
        _PLAIN,
        attribute(_D_FAMILY, _U16.pack(_number(address))),
    )


# Masqueraded, and with no bounds to its connections.
_PLAIN = b"".join(
    attribute(kind, _U32.pack(value)) for kind, value in ((_D_FORWARD, _MASQUERADE), (_D_UPPER, 0), (_D_LOWER, 0))
)


def _read_service(found: Mapping[int, bytes]) -> Service | None:
    """None: it goes by a firewall mark, or its protocol is not one that Services have."""
    if _S_ADDRESS not in found or _U16.unpack(found[_S_PROTOCOL])[0] not in _NAMES:
        return None
    ipv6 = _U16.unpack(found[_S_FAMILY])[0] == _INET6
    place = Place(
        _NAMES[_U16.unpack(found[_S_PROTOCOL])[0]],
        _address(found[_S_ADDRESS], ipv6=ipv6),
        _PORT.unpack(found[_S_PORT])[0],
    )
    persistent = _FLAGS.unpack(found[_S_FLAGS])[0] & _PERSISTENT
    timeout = _U32.unpack(found[_S_TIMEOUT])[0]
    return Service(place, found[_S_SCHEDULER].rstrip(b"\0").decode(), timeout if persistent else 0)


def _read_destination(found: Mapping[int, bytes], place: Place) -> Destination:
    numbers = (_U32.unpack(found[kind])[0] for kind in (_D_WEIGHT, _D_ACTIVE, _D_INACTIVE))
    address = _address(found[_D_ADDRESS], ipv6=":" in place.address)
    return Destination(address, _PORT.unpack(found[_D_PORT])[0], *numbers)


def _address(packed: bytes, *, ipv6: bool) -> str:
    return str(ipaddress.ip_address(packed if ipv6 else packed[:4]))

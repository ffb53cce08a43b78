"""People's notation of a frontend: `10.96.0.10:80/tcp`, `[fd00::1]:80/udp`. The one place that reads and writes it."""

import ipaddress
import re
from dataclasses import dataclass
from typing import cast

from clusterip.errors import BadInput
from clusterip.services.table import Protocol

_FORM = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<four>[^\[\]:/]+)):(?P<port>[0-9]{1,5})(?:/(?P<protocol>[A-Za-z]+))?")
_HINT = "write it like 10.96.0.10:80/tcp or [fd00::1]:80/udp"


@dataclass(frozen=True, slots=True, order=True)
class Destination:
    """Where a packet is sent to. `address` is canonical."""

    address: str
    port: int  # 1..65535
    protocol: Protocol = "TCP"

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}/{self.protocol.lower()}"


def destination(text: str) -> Destination:
    """Read the notation; without a protocol it is TCP. The inverse of `str`.

    Raises BadInput.
    """
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise BadInput(f"destination {text!r}: not ADDRESS:PORT/PROTOCOL", hint=_HINT)
    protocol = (form["protocol"] or "tcp").upper()
    if protocol not in ("TCP", "UDP", "SCTP"):
        raise BadInput(f"destination {text!r}: protocol {form['protocol']!r} is not tcp, udp or sctp", hint=_HINT)
    if not 1 <= int(form["port"]) <= 65535:
        raise BadInput(f"destination {text!r}: port {form['port']} is not within 1 to 65535", hint=_HINT)
    try:
        address = ipaddress.IPv6Address(form["six"]) if form["six"] else ipaddress.IPv4Address(form["four"])
    except ValueError as error:
        raise BadInput(f"destination {text!r}: {error}", hint=_HINT) from error
    return Destination(str(address), int(form["port"]), cast(Protocol, protocol))

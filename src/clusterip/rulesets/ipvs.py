"""IPVS as values: `ipvsadm -Ln` (also --stats, --rate, --thresholds, --exact), `-Sn`, and `-Lnc`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import NamedTuple

from msgspec import Struct, structs

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading, numbered


class Frontend(NamedTuple):
    """Where a virtual service listens. `protocol` "FWM": packets of mark `port`, and no address."""

    protocol: str  # "TCP", "UDP", "SCTP", "FWM"
    address: str
    port: int


class RealServer(Struct, frozen=True):
    address: str
    port: int
    forward: str = "Masq"  # "Masq", "Route", "Tunnel", "Local"
    weight: int | None = None  # 0: no new connections, but for remembered clients; None: the listing does not give it
    active: int | None = None
    inactive: int | None = None
    more: tuple[str, ...] = ()  # options that -S prints besides: "-x", "10", "--tun-type", "ipip"
    figures: Mapping[str, str] = {}  # of --stats, --rate, --thresholds: "Conns": "5", "InBytes": "2K"


class VirtualService(Struct, frozen=True):
    frontend: Frontend
    scheduler: str = ""  # "rr", "lc", "sh"; "": the listing does not give it
    persistent: int = 0  # seconds that a client keeps its real server; 0: not at all
    netmask: str = ""  # clients that are one client; "": each address for itself
    one_packet: bool = False
    flags: tuple[str, ...] = ()  # of the scheduler: "sh-port", "mh-fallback"
    engine: str = ""  # persistence engine: "sip"
    servers: tuple[RealServer, ...] = ()
    figures: Mapping[str, str] = {}
    line: int = 0  # in the file; 0: made, not read


class Services(Struct, frozen=True):
    services: tuple[VirtualService, ...] = ()

    def get(self, protocol: str, address: str, port: int) -> VirtualService | None:
        wanted = Frontend(protocol.upper(), address, port)
        return next((s for s in self.services if s.frontend == wanted), None)


class Connection(Struct, frozen=True):
    """One line of `ipvsadm -Lnc`. A client that is remembered by its address has client port 0 and no own state."""

    protocol: str  # "TCP", "UDP", "SCTP", "IP" for those of a firewall mark
    expires: int  # seconds
    state: str  # "ESTABLISHED", "NONE", "ASSURED"
    client: str
    client_port: int
    virtual: str
    virtual_port: int
    destination: str
    destination_port: int
    more: tuple[str, ...] = ()  # persistence engine and its data
    line: int = 0


class Connections(Struct, frozen=True):
    connections: tuple[Connection, ...] = ()


HEADING = re.compile(
    r"IP Virtual Server version|Prot LocalAddress:Port|  -> RemoteAddress:Port|IPVS connection entries|pro expire "
)
_PROTOCOLS = frozenset({"TCP", "UDP", "SCTP", "FWM"})
_SAVED_PROTOCOLS = {"-t": "TCP", "-u": "UDP", "-f": "FWM", "--tcp-service": "TCP", "--udp-service": "UDP"}
_SAVED_PROTOCOLS |= {"--sctp-service": "SCTP", "--fwmark-service": "FWM"}
_FORWARDS = {"-m": "Masq", "-g": "Route", "-i": "Tunnel", "--masquerading": "Masq", "--gatewaying": "Route"}
_FORWARDS["--ipip"] = "Tunnel"
_SAVED_FORWARDS = {"Masq": "-m", "Route": "-g", "Tunnel": "-i", "Local": "-g"}
_EXPIRES = re.compile(r"(\d+):(\d\d)")


def read(text: str, origin: Origin = INPUT) -> Reading[Services]:
    """A listing or what `ipvsadm -S` prints; the lines say which."""
    reader = _Reader(Problems(origin), origin)
    for number, line in numbered(text.split("\n")):
        if HEADING.match(line):
            reader.heading(line)
        elif line.startswith(("-A ", "-a ", "--add-s")):
            reader.saved(number, line)
        else:
            reader.listed(number, line)
    services = tuple(structs.replace(s, servers=tuple(reader.servers[i])) for i, s in enumerate(reader.services))
    facts = len(services) + sum(map(len, reader.servers))
    return Reading(Services(services), facts, reader.problems.all())


class _Reader:
    def __init__(self, problems: Problems, origin: Origin) -> None:
        self.problems = problems
        self.services: list[VirtualService] = []
        self.servers: list[list[RealServer]] = []
        self._origin = origin
        self._columns: tuple[str, ...] = ()  # of a service
        self._server_columns: tuple[str, ...] = ("Forward", "Weight", "ActiveConn", "InActConn")

    def heading(self, line: str) -> None:
        words = line.split()
        if words[:2] == ["Prot", "LocalAddress:Port"]:
            self._columns = tuple(words[2:]) if "Scheduler" not in words else ()
        elif words[:2] == ["->", "RemoteAddress:Port"]:
            # Of figures only the first of the two lines names the columns.
            self._server_columns = tuple(words[2:]) or self._columns

    def listed(self, number: int, line: str) -> None:
        words = line.split()
        if words[0] == "->" and self.services and len(words) >= 2:
            server = self._server(words[1], words[2:])
            if server is None:
                self.problems.unreadable(number, line)
            else:
                self._named(number, words[1])
                self.servers[-1].append(server)
            return
        service = self._service(words, number)
        if service is None:
            self.problems.unreadable(number, line)
        else:
            self._named(number, words[1])
            self._add(service)

    def _add(self, service: VirtualService) -> None:
        self.services.append(service)
        self.servers.append([])

    def _named(self, number: int, where: str) -> None:
        """A listing without -n gives names."""
        if not is_numeric(where):
            self.problems.add(number, f"{where} is a name, not an address and a port: list with -n (ipvsadm -Ln)")

    def _service(self, words: list[str], number: int) -> VirtualService | None:
        if len(words) < 2 or words[0] not in _PROTOCOLS:
            return None
        frontend = _frontend(words[0], words[1])
        if frontend is None:
            return None
        line = self._origin.line + number
        if self._columns:
            return VirtualService(frontend, figures=dict(zip(self._columns, words[2:], strict=False)), line=line)
        return _with_options(VirtualService(frontend, words[2] if len(words) > 2 else "", line=line), words[3:])

    def _server(self, where: str, words: list[str]) -> RealServer | None:
        place = _place(where)
        if place is None:
            return None
        given = dict(zip(self._server_columns, words, strict=False))
        forward = given.pop("Forward", "Masq")
        weight, active, inactive = (_number(given.pop(name, "")) for name in ("Weight", "ActiveConn", "InActConn"))
        return RealServer(*place, forward, weight, active, inactive, figures=given)

    def saved(self, number: int, line: str) -> None:
        words = line.split()
        frontend = _frontend(_SAVED_PROTOCOLS.get(words[1], ""), words[2]) if len(words) > 2 else None
        if frontend is None:
            self.problems.unreadable(number, line)
            return
        self._named(number, words[2])
        if words[0] in ("-A", "--add-service"):
            service = _saved_service(frontend, words[3:], self._origin.line + number)
            self._add(service)
            return
        at = next((i for i in reversed(range(len(self.services))) if self.services[i].frontend == frontend), None)
        server = _saved_server(words[3:])
        if at is None or server is None:
            why = "its virtual service was not added before" if at is None else "it names no real server"
            self.problems.add(number, f"{why}: {line}")
            return
        self.servers[at].append(server)


def _with_options(service: VirtualService, words: Sequence[str]) -> VirtualService:
    """The flags of a listing: "(sh-port) persistent 10800 mask 255.255.255.0 pe sip ops"."""
    given = iter(words)
    for word in given:
        match word:
            case "persistent":
                service = structs.replace(service, persistent=_number(next(given, "")) or 0)
            case "mask":
                service = structs.replace(service, netmask=next(given, ""))
            case "pe":
                service = structs.replace(service, engine=next(given, ""))
            case "ops":
                service = structs.replace(service, one_packet=True)
            case _:
                service = structs.replace(service, flags=(*service.flags, *word.strip("()").split(",")))
    return service


def _saved_service(frontend: Frontend, words: Sequence[str], line: int) -> VirtualService:
    service = VirtualService(frontend, line=line)
    given = iter(words)
    for word in given:
        match word:
            case "-s" | "--scheduler":
                service = structs.replace(service, scheduler=next(given, ""))
            case "-p" | "--persistent":
                service = structs.replace(service, persistent=_number(next(given, "")) or 300)
            case "-M" | "--netmask":
                service = structs.replace(service, netmask=next(given, ""))
            case "-o" | "--ops":
                service = structs.replace(service, one_packet=True)
            case "--pe":
                service = structs.replace(service, engine=next(given, ""))
            case "-b" | "--sched-flags":
                service = structs.replace(service, flags=tuple(next(given, "").split(",")))
    return service


def _saved_server(words: Sequence[str]) -> RealServer | None:
    place: tuple[str, int] | None = None
    forward, weight, more = "Route", 1, []
    given = iter(words)
    for word in given:
        if word in ("-r", "--real-server"):
            place = _place(next(given, ""))
        elif word in ("-w", "--weight"):
            weight = _number(next(given, "")) or 0
        elif word in _FORWARDS:
            forward = _FORWARDS[word]
        else:
            more.append(word)
    return RealServer(*place, forward, weight, more=tuple(more)) if place else None


def read_connections(text: str, origin: Origin = INPUT) -> Reading[Connections]:
    problems = Problems(origin)
    found: list[Connection] = []
    for number, line in numbered(text.split("\n")):
        if HEADING.match(line):
            continue
        connection = _connection(line.split(), origin.line + number)
        if connection is None:
            problems.unreadable(number, line)
        else:
            found.append(connection)
    return Reading(Connections(tuple(found)), len(found), problems.all())


def _connection(words: list[str], line: int) -> Connection | None:
    if len(words) < 6 or not words[0].isupper():
        return None
    expires = _EXPIRES.fullmatch(words[1])
    places = [_place(word) for word in words[3:6]]
    if expires is None or not all(places):
        return None
    client, virtual, destination = (place for place in places if place)
    seconds = int(expires[1]) * 60 + int(expires[2])
    return Connection(words[0], seconds, words[2], *client, *virtual, *destination, tuple(words[6:]), line)


def _frontend(protocol: str, where: str) -> Frontend | None:
    if protocol == "FWM":
        return Frontend("FWM", "", int(where)) if where.isascii() and where.isdecimal() else None
    place = _place(where)
    return Frontend(protocol, *place) if place and protocol else None


def _place(where: str) -> tuple[str, int] | None:
    """ "10.96.0.1:443", "[fd00::1]:443"; of names the port is 0, and the name stands for the address."""
    address, colon, port = where.rpartition(":")
    if not colon or not address:
        return None
    number = _number(port)
    return address.removeprefix("[").removesuffix("]"), number if number is not None and number <= 65535 else 0


def is_numeric(where: str) -> bool:
    address, _, port = where.rpartition(":")
    if not address:
        return _number(where) is not None
    try:
        ip_address(address.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return _number(port) is not None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


# --- text -----------------------------------------------------------------------------------------------------------


def text(services: Services) -> str:
    """What `ipvsadm -Sn` prints and `ipvsadm -R` loads. Counts of connections are no part of it."""
    return "".join(f"{line}\n" for service in services.services for line in _lines(service))


def _lines(service: VirtualService) -> Iterator[str]:
    frontend = _frontend_text(service.frontend)
    words = [f"-A {frontend} -s {service.scheduler or 'wlc'}"]
    words += [f"-p {service.persistent}"] if service.persistent else []
    words += [f"-M {service.netmask}"] if service.netmask else []
    words += [f"--pe {service.engine}"] if service.engine else []
    words += ["-o"] if service.one_packet else []
    words += [f"-b {','.join(service.flags)}"] if service.flags else []
    yield " ".join(words)
    for server in service.servers:
        weight = 1 if server.weight is None else server.weight
        where = _joined(server.address, server.port)
        yield " ".join(
            (f"-a {frontend} -r {where}", _SAVED_FORWARDS.get(server.forward, "-m"), f"-w {weight}", *server.more)
        )


def _frontend_text(frontend: Frontend) -> str:
    match frontend.protocol:
        case "FWM":
            return f"-f {frontend.port}"
        case "TCP" | "UDP" as protocol:
            return f"-{protocol[0].lower()} {_joined(frontend.address, frontend.port)}"
        case _:
            return f"--sctp-service {_joined(frontend.address, frontend.port)}"


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

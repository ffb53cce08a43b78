"""The words of a check: who tries, what is tried, what came back, what should have."""

from dataclasses import dataclass
from enum import Enum

from clusterip.services.table import Family, FrontendKind, Protocol


class ClientKind(Enum):
    NODE = "node"
    POD = "pod"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Client:
    name: str  # "node-1", "pod default/client", "host"
    kind: ClientKind
    netns: str  # its named network namespace; "": our own
    node: str  # whose rules its packets meet
    addresses: tuple[str, ...] = ()  # that it sends from, one a family; (): not known

    def address(self, family: Family) -> str:
        """ "": it has none, or none that is known."""
        return next((a for a in self.addresses if (":" in a) == (family == "IPv6")), "")


@dataclass(frozen=True, slots=True)
class Target:
    """One address and port that a Service answers for; a row of the matrix."""

    namespace: str
    service: str
    port_name: str  # "" if the port has none
    protocol: Protocol
    address: str
    port: int
    kind: FrontendKind = FrontendKind.CLUSTER_IP
    node: str = ""  # of a node port: the node whose address this is
    dns: bool = False  # asked a real question instead of a greeting

    @property
    def owner(self) -> str:
        """ "default/web", "default/web:http"."""
        return f"{self.namespace}/{self.service}" + (f":{self.port_name}" if self.port_name else "")

    @property
    def at(self) -> str:
        """ "10.96.0.10:53/udp", "[fd00:96::a]:53/udp"."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}/{self.protocol.lower()}"

    @property
    def family(self) -> Family:
        return "IPv6" if ":" in self.address else "IPv4"


class Saw(Enum):
    """What one try saw."""

    REACHED = "reached"  # TCP: connected. UDP: answered
    REFUSED = "refused"  # TCP reset or ICMP port unreachable
    TIMED_OUT = "timed out"  # TCP: nothing came back
    SILENT = "silent"  # UDP: nothing came back, which an application may do on purpose
    DROPPED = "dropped"  # UDP: the client's own kernel did not let it out
    UNREACHABLE = "unreachable"  # the client's own kernel, or a router, knows no way
    NOT_TRIED = "not tried"  # this machine cannot speak the protocol
    CLIENT_GONE = "client gone"  # its namespace went away before it could be asked


@dataclass(frozen=True, slots=True)
class Outcome:
    saw: Saw
    seconds: float = 0.0  # from the first packet to the answer, or until we gave up
    detail: str = ""  # "answered 8 bytes", "NXDOMAIN", the system's word for an error


class Expect(Enum):
    REACH = "reach"
    REFUSE = "refuse"  # no node has a usable endpoint
    NOT_REACH = "not reach"  # the same, where not every mode refuses: it may go out to whoever has the address
    DROP = "drop"  # a traffic policy keeps to a node that has none, or source ranges leave the client out


@dataclass(frozen=True, slots=True)
class Expectation:
    expect: Expect
    why: str  # "3 of 3 endpoints ready"; "selector app=web matches no pod"


class Verdict(Enum):
    OK = "ok"
    EMPTY = "empty"  # not reached, and rightly: the API says that nothing stands behind it
    KEPT_LOCAL = "kept local"  # not reached, and rightly: a traffic policy, or source ranges, want it so
    UNKNOWN = "unknown"  # silence of a UDP port says neither yes nor no; or not tried
    WRONG = "wrong"  # the API says otherwise


@dataclass(frozen=True, slots=True)
class Cell:
    client: Client
    outcome: Outcome
    expectation: Expectation
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Row:
    target: Target
    cells: tuple[Cell, ...]  # in the order of the report's clients

    def count(self, verdict: Verdict) -> int:
        return sum(cell.verdict is verdict for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Report:
    clients: tuple[Client, ...]
    rows: tuple[Row, ...]  # sorted by namespace, Service, port
    seconds: float  # the whole check

    def count(self, verdict: Verdict) -> int:
        return sum(row.count(verdict) for row in self.rows)

    @property
    def all_reach(self) -> bool:
        """Nothing is wrong and nothing is empty. What cannot be known is not held against a port; a client that
        could not be asked is."""
        return not (self.count(Verdict.WRONG) or self.count(Verdict.EMPTY) or self.gone)

    @property
    def gone(self) -> tuple[Client, ...]:
        """Clients that could not be asked all that was to be asked."""
        cells = (cell for row in self.rows for cell in row.cells)
        return tuple(dict.fromkeys(cell.client for cell in cells if cell.outcome.saw is Saw.CLIENT_GONE))

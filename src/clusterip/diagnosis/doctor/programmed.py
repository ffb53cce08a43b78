"""What a program in the kernel does for each frontend, read from its own structure: iptables, nftables, IPVS. Pure.

A walk answers for one packet and one client; a diagnosis compares whole programs, of which several may be given (two
variants, many nodes), and needs each apart. The shares are those of a client that no affinity remembers, from outside
the ranges that get a shorter way.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias, cast

from clusterip.dataplane.iptables.names import digest, service_digest
from clusterip.diagnosis.doctor.known import Key, Known, Sourced
from clusterip.diagnosis.doctor.proxies import Writer
from clusterip.diagnosis.findings import Evidence
from clusterip.diagnosis.packet import socket
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt
from clusterip.rulesets.iptables.saved import Saved
from clusterip.services.table import PortName, Protocol

Shares: TypeAlias = Mapping[str, Fraction]  # backend "10.244.0.3:80" -> its share; what is left of 1 reaches none
Form: TypeAlias = Literal["iptables", "nftables", "ipvs", "ebpf"]

SIMPLE = 1000  # denominators that are told as they are
GRID = 4  # steps of the kernel's grid that are no difference
UNIT = 1 << 31  # of a chance, as the kernel keeps it
ZERO, ONE = Fraction(0), Fraction(1)
_ANY_PORT = frozenset({ipt.Ports("tcp"), ipt.Ports("udp"), ipt.Ports("sctp")})  # "-m tcp" alone


class Frontend(NamedTuple):
    protocol: str  # "tcp"
    address: str  # "": the node's own, of a node port
    port: int

    def __str__(self) -> str:
        if not self.address:
            return f"node port {self.port}/{self.protocol}"
        return f"{socket(self.address, self.port)}/{self.protocol}"


@dataclass(frozen=True, slots=True)
class Programmed:
    """One frontend of one program."""

    form: Form
    file: str
    variant: str  # of iptables: "nft", "legacy"; "" otherwise, and where it is not said
    frontend: Frontend
    name: str  # "default/web:http", as a comment or a chain says; "": not said
    chain: str  # the one that chooses; "" of ipvs
    shares: Shares
    place: Evidence
    scheduler: str = ""  # of ipvs
    internal: bool = False  # a ClusterIP, where the dump tells
    of_this_node: bool = False  # these are this node's backends alone, for a Local policy's sake
    writer: Writer = ""  # where its form tells

    @property
    def key(self) -> Key:
        """Its Service; Key("", "") where no name is said."""
        namespace, _, rest = self.name.partition("/")
        return Key(namespace, rest.partition(":")[0]) if rest else Key("", "")

    @property
    def port_name(self) -> str:
        return self.name.partition(":")[2]

    @property
    def object(self) -> str:
        return f"service {self.name}" if self.name else f"frontend {self.frontend}"


def iptables_frontends(source: Sourced[Saved], chains: "Chains", names: Mapping[str, str]) -> Iterator[Programmed]:
    """Every rule of the nat table that sends one address and port to a chain that ends in DNAT.

    `names`: of Service ports, by what their chains' names end in; for dumps that show no comments.
    """
    nat = source.values.ruleset.tables.get("nat")
    if nat is None:
        return
    for chain in nat.chains.values():
        for number, rule in enumerate(chain.rules):
            frontend = _frontend(rule)
            if frontend is None or not isinstance(rule.target, (ipt.Jump, ipt.Goto)):
                continue
            target = chains.external_target(rule.target.chain)
            if not chains.chooses(target):
                continue
            place = source.rule("nat", chain.name, number, line_text(chain.name, rule))
            yield Programmed(
                "iptables",
                source.file,
                source.values.variant,
                frontend,
                service_name(rule.comment) or names.get(target.rpartition("-")[2], ""),
                target,
                chains.shares(target),
                place,
                internal="cluster IP" in rule.comment or (not rule.comment and target.startswith("KUBE-SVC-")),
            )


def _frontend(rule: ipt.Rule) -> Frontend | None:
    address, protocol, port = "", "", 0
    for match in rule.matches:
        match match:
            case ipt.Destination(network, negated=False) if lone := ipt.lone_address(network):
                address = lone
            case ipt.IPProtocol(name, negated=False):
                protocol = name
            case ipt.Ports(destination=ipt.PortRange(first, last), destination_negated=False) if first == last:
                port = first
            case ipt.Source(negated=False) | ipt.Destination():
                return None  # of some clients, or of a range of addresses
    return Frontend(protocol, address, port) if protocol and port else None


def asked(rule: ipt.Rule) -> Frontend:
    """The address, protocol and port that it asks for, whatever else it asks; those that it does not are "" and 0."""
    address, protocol, port = "", "", 0
    for match in rule.matches:
        match match:
            case ipt.Destination(network, negated=False):
                address = network.partition("/")[0]
            case ipt.IPProtocol(name):
                protocol = name
            case ipt.Ports(destination=ipt.PortRange(first, _)):
                port = first
    return Frontend(protocol, address, port)


def service_name(comment: str) -> str:
    """ "default/web:http cluster IP" -> "default/web:http"; "default/web: has no endpoints" -> "default/web"."""
    word = comment.strip('"').split(" ", 1)[0].rstrip(":")
    namespace, slash, rest = word.partition("/")
    return word if slash and namespace and rest and "/" not in rest else ""


class Chains:
    """The chains of one nat table as choices. What was read once is kept: tables hold 100,000s of rules."""

    def __init__(self, table: ipt.Table | None) -> None:
        self._table = table or ipt.Table("nat", {})
        self._shares: dict[str, dict[str, Fraction]] = {}
        self._always: dict[str, bool] = {}

    def chooses(self, chain: str) -> bool:
        """Whether a packet may leave it with a new destination, or is meant to: KUBE-SVC without backends is one."""
        return bool(self.shares(chain)) or chain.startswith(("KUBE-SVC-", "KUBE-SVL-", "KUBE-XLB-"))

    def external_target(self, chain: str) -> str:
        """KUBE-EXT and KUBE-FW mark and pass on; what they pass on to chooses."""
        for _ in range(2):
            if not chain.startswith(("KUBE-EXT-", "KUBE-FW-")):
                return chain
            jumps = [
                r.target.chain
                for r in self._table.rules(chain)
                if isinstance(r.target, ipt.Jump) and r.target.chain.startswith(("KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-"))
                if not any(isinstance(m, (ipt.Source, ipt.AddrType)) for m in r.matches)
            ]
            if not jumps:
                return chain
            chain = jumps[-1]
        return chain

    def shares(self, chain: str) -> Shares:
        found = self._shares.get(chain)
        if found is None:
            self._shares[chain] = {}  # a loop of jumps leads to no backend
            found = self._shares[chain] = self._read(chain)
        return found

    def always(self, chain: str) -> bool:
        """Whether every packet that enters it gets a new destination: some rule that asks nothing sees to it."""
        found = self._always.get(chain)
        if found is None:
            self._always[chain] = False
            found = self._always[chain] = any(map(self._takes_all, self._table.rules(chain)))
        return found

    def _takes_all(self, rule: ipt.Rule) -> bool:
        # The protocol is that of the rule that led here.
        if not all(isinstance(m, (ipt.Comment, ipt.IPProtocol)) or m in _ANY_PORT for m in rule.matches):
            return False
        match rule.target:
            case ipt.DNAT():
                return True
            case ipt.Jump(chain) | ipt.Goto(chain):
                return self.always(chain)
        return False

    def _read(self, chain: str) -> dict[str, Fraction]:
        found: dict[str, Fraction] = {}
        rest = ONE
        for rule in self._table.rules(chain):
            match rule.target:
                case ipt.DNAT(to):
                    ends: Shares = {to: ONE}
                case ipt.Jump(target) | ipt.Goto(target):
                    ends = self.shares(target)
                case ipt.Return() | ipt.Accept() | ipt.Drop():
                    ends = {"": ONE}
                case _:
                    continue
            part = rest * chance_of(rule) if ends else ZERO
            if not part:
                continue
            for backend, share in ends.items():
                taken = part if share is ONE else part * share
                found[backend] = found[backend] + taken if backend in found else taken
                rest -= taken
            if not rest:
                break
        found.pop("", None)  # gone on without a backend
        return found


def chance_of(rule: ipt.Rule) -> Fraction:
    """How often a new connection of a client that nothing is known of matches, once it is in this chain."""
    chance = ONE
    for match in rule.matches:
        match match:
            case ipt.Random(numerator, negated):
                chance *= Fraction(UNIT - numerator if negated else numerator, UNIT)
            case ipt.Nth(every, negated=negated):
                chance *= 1 - Fraction(1, every) if negated else Fraction(1, every)
            case ipt.Recent(action="rcheck" | "update") | ipt.Source(negated=False):
                return ZERO  # nobody is remembered; few come from one address
            case ipt.AddrType(source="LOCAL", source_negated=False):
                return ZERO
    return chance


def share_text(share: Fraction) -> str:
    """ "1/3" also for what is a third up to the kernel's grid; "0.249 %"-like where no simple fraction is near."""
    if share.denominator <= SIMPLE:
        return f"{share.numerator}/{share.denominator}"
    near = share.limit_denominator(SIMPLE)
    if abs(near - share) * UNIT <= GRID:
        return f"{near.numerator}/{near.denominator}"
    return f"{float(share * 100):.4g} %"


def share_list(shares: Shares) -> str:
    """ "10.244.0.3:80 1/2, 10.244.0.4:80 1/2"."""
    return ", ".join(f"{b} {share_text(s)}" for b, s in shares.items()) or "no backend"


# --- ipvs -------------------------------------------------------------------------------------------------------------

WEIGHTED = frozenset({"wrr", "wlc", "sed", "nq", "lblc", "lblcr", "dh", "sh", "mh", "fo", "ovf", "twos"})


def ipvs_frontends(known: Known) -> Iterator[Programmed]:
    names = names_by_address(known)
    for source in known.ipvs:
        for service in source.values.services:
            protocol, address, port = service.frontend
            frontend = Frontend(protocol.lower(), address, port)
            servers = [(s, 1 if s.weight is None else s.weight) for s in service.servers]
            weighted = service.scheduler in WEIGHTED
            total = sum(w if weighted else 1 for _, w in servers if w)
            shares: dict[str, Fraction] = {}
            for server, weight in servers:
                backend = socket(server.address, server.port)
                shares[backend] = Fraction(weight if weighted else 1, total) if weight and total else Fraction(0)
            place = source.at(service.line, f"{protocol} {address}:{port} {service.scheduler}".rstrip())
            name = names.get(frontend, "")
            yield Programmed("ipvs", source.file, "", frontend, name, "", shares, place, service.scheduler)


def names_by_address(known: Known) -> dict[Frontend, str]:
    """Of programs that say no names: the Service port that has this frontend."""
    found: dict[Frontend, str] = {}
    for key, service in known.services.items():
        spec = service.spec
        ingress = (i.ip for i in service.status.load_balancer.ingress or ())
        addresses = {*(spec.cluster_ips or (spec.cluster_ip,)), *spec.external_ips, *ingress}
        for port in spec.ports or ():
            name = f"{key}:{port.name}" if port.name else f"{key}"
            for address in addresses:
                found[Frontend(port.protocol.lower(), address, port.port)] = name
            if port.node_port:
                found[Frontend(port.protocol.lower(), "", port.node_port)] = name
    return found


def names_by_digest(known: Known) -> dict[str, str]:
    """What chains of a Service port end in -> its name, for every port that Services, slices and Endpoints tell of."""
    found: dict[str, str] = {}
    for namespace, service, port, protocol in ports(known):
        name = PortName(namespace, service, port)
        found[service_digest(name, protocol)] = str(name)
        if not port:  # before 1.19 the colon stood there all the same
            found[digest(f"{name}:{protocol.lower()}")] = str(name)
    return found


def ports(known: Known) -> Iterator[tuple[str, str, str, Protocol]]:
    for key, service in known.services.items():
        for p in service.spec.ports or ():
            yield *key, p.name, cast(Protocol, p.protocol)
    for key, slices in known.slices_of.items():
        for s in slices:
            for port in s.ports or ():
                yield *key, port.name or "", cast(Protocol, port.protocol or "TCP")
    for key, endpoints in known.endpoints.items():
        for subset in endpoints.subsets or ():
            for one in subset.ports:
                yield *key, one.name, cast(Protocol, one.protocol)

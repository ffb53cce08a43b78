"""What kube-proxy's nftables tables do for each frontend, in each of their layouts. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from clusterip.diagnosis.doctor.known import Sourced
from clusterip.diagnosis.doctor.programmed import Frontend, Programmed
from clusterip.diagnosis.findings import Evidence
from clusterip.diagnosis.packet import socket
from clusterip.rulesets.nft import values as nft


def nft_frontends(source: Sourced[nft.Ruleset]) -> Iterator[Programmed]:
    """Every element of a verdict map that sends a frontend to a chain which chooses a backend."""
    for table in source.values:
        chains = Chains(table)
        for held in table.sets.values():
            if held.values[:1] != ("verdict",):
                continue
            for element in held.elements:
                frontend = frontend_of(element.key)
                chain = target_of(element.value)
                if frontend is None or not chain.startswith(("service-", "external-", "endpoint-")):
                    continue
                target = chains.external_target(chain)
                text = f"table {table.family} {table.name}, map {held.name}: {frontend} : goto {chain}"
                line = source.places.line(f"{table.family} {table.name}", target, 0)  # where it chooses
                place = Evidence(text, source.file, line)
                name = name_of(chain)
                shares = chains.shares(target)
                yield Programmed(
                    "nftables", source.file, "", frontend, name, target, shares, place, writer="kube-proxy"
                )


def frontend_of(key: nft.Expression) -> Frontend | None:
    """Of an element "10.96.0.1 . tcp . 443" or, of a node port, "tcp . 30443"."""
    match key:
        case nft.Concat((nft.Address(address), protocol, port)):
            pass
        case nft.Concat((protocol, port)):
            address = ""
        case _:
            return None
    number = port.value if isinstance(port, nft.Number) else 0
    return Frontend(protocol.text, address, number) if isinstance(protocol, nft.Word) and number else None


def target_of(verdict: nft.Expression | nft.Verdict | None) -> str:
    return verdict.chain if isinstance(verdict, (nft.Jump, nft.Goto)) else ""


def name_of(chain: str) -> str:
    """ "service-2QRHZV4L-default/kubernetes/tcp/https" -> "default/kubernetes:https"; "" of other chains."""
    parts = chain.partition("-")[2].partition("-")[2].partition("__")[0].split("/")
    if len(parts) != 4:
        return ""
    namespace, service, _, port = parts
    return f"{namespace}/{service}:{port}" if port else f"{namespace}/{service}"


class Chains:
    """The chains of one table as choices; what was read once is kept."""

    def __init__(self, table: nft.Table) -> None:
        self._table = table
        self._shares: dict[str, dict[str, Fraction]] = {}

    def external_target(self, chain: str) -> str:
        """external- chains mark, and pass on without a condition to the chain that chooses."""
        if not chain.startswith("external-"):
            return chain
        for rule in self._table.rules(chain):
            conditional = any(isinstance(s, nft.Match) for s in rule.statements)
            for statement in rule.statements:
                if isinstance(statement, (nft.Goto, nft.Jump)) and not conditional:
                    return statement.chain
        return chain

    def shares(self, chain: str) -> Mapping[str, Fraction]:
        found = self._shares.get(chain)
        if found is None:
            self._shares[chain] = {}  # a loop of jumps leads to no backend
            found = self._shares[chain] = self._read(chain)
        return found

    def _read(self, chain: str) -> dict[str, Fraction]:
        found: dict[str, Fraction] = {}
        rest = Fraction(1)
        for rule in self._table.rules(chain):
            if of_some_clients(rule):
                continue
            for backend, share in self._of_rule(rule):
                found[backend] = found.get(backend, Fraction(0)) + rest * share
            rest = 1 - sum(found.values(), Fraction(0))
            if not rest:
                break
        return found

    def _of_rule(self, rule: nft.Rule) -> Iterator[tuple[str, Fraction]]:
        for statement in rule.statements:
            match statement:
                case nft.VerdictMap(nft.Numgen(modulus=modulus), nft.Elements(elements)):
                    for element in elements:
                        share = Fraction(_width(element.key), modulus)
                        for backend, inner in self.shares(target_of(element.value)).items():
                            yield backend, share * inner
                case nft.Jump(target) | nft.Goto(target):
                    yield from self.shares(target).items()
                case nft.Nat(kind="dnat", address=nft.Lookup(nft.Numgen(modulus=modulus), nft.Elements(elements))):
                    for element in elements:
                        if backend := backend_of(element.value, None):
                            yield backend, Fraction(_width(element.key), modulus)
                case nft.Nat(kind="dnat", address=address, port=port) if backend := backend_of(address, port):
                    yield backend, Fraction(1)


def of_some_clients(rule: nft.Rule) -> bool:
    """It asks who the client is: remembered by affinity, of one address, of this node, by which interface it came."""
    return any(
        isinstance(s, nft.Match) and any(asks_source(e) for e in _parts(s.left)) and s.operator != "!="
        for s in rule.statements
    )


def _parts(expression: nft.Expression) -> Sequence[nft.Expression]:
    return expression.parts if isinstance(expression, nft.Concat) else (expression,)


def asks_source(expression: nft.Expression) -> bool:
    match expression:
        case nft.Payload(field="saddr") | nft.Meta(key="iifname" | "iif"):
            return True
        case nft.Fib(by=by):
            return "saddr" in by
    return False


def _width(key: nft.Expression) -> int:
    """How many numbers an element of a map stands for."""
    match key:
        case nft.Range(nft.Number(first), nft.Number(last)):
            return last - first + 1
    return 1


def backend_of(address: nft.Expression | nft.Verdict | None, port: nft.Expression | None) -> str:
    match address, port:
        case nft.Concat((nft.Address(text), nft.Number(number))), _:
            return socket(text, number)
        case nft.Address(text), nft.Number(number):
            return socket(text, number)
        case nft.Address(text), None:
            return text
    return ""

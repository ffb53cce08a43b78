"""What our own nftables table does for each frontend: two maps hold everything, chains only say how to draw. Pure."""

from collections.abc import Iterator, Mapping
from fractions import Fraction

from clusterip.dataplane.nftables import chains as c
from clusterip.dataplane.nftables.config import TABLE
from clusterip.diagnosis.doctor.known import Sourced
from clusterip.diagnosis.doctor.programmed import Frontend, Programmed
from clusterip.diagnosis.doctor.programmed_nft import backend_of, frontend_of, of_some_clients, target_of
from clusterip.diagnosis.findings import Evidence
from clusterip.rulesets.nft import values as nft

_ENDPOINTS = (c.ENDPOINTS, c.LOCAL_ENDPOINTS, c.NODE_PORT_ENDPOINTS, c.NODE_PORT_LOCAL_ENDPOINTS)
_MARK_OF_LOCAL = ("-local-", "/local")  # chains that keep what comes from outside to backends of this node


def own_frontends(source: Sourced[nft.Ruleset]) -> Iterator[Programmed]:
    """Every element of the two verdict maps. Those that are refused, for want of endpoints, stand in maps of their
    own: `refusals` tells of them."""
    for table in source.values:
        if table.name != TABLE:
            continue
        table_of = _Table(table)
        for held in (table.sets.get(c.SERVICE_IPS), table.sets.get(c.NODE_PORTS)):
            for element in held.elements if held else ():
                frontend = frontend_of(element.key)
                if frontend is not None:
                    yield _programmed(source, table_of, held.name if held else "", frontend, element)


def _programmed(
    source: Sourced[nft.Ruleset], of: "_Table", held: str, frontend: Frontend, element: nft.Element
) -> Programmed:
    to = target_of(element.value)
    way = of.way(to)
    table = f"{of.table.family} {of.table.name}"
    text = f"table {table}, map {held}: {frontend} : {f'goto {to}' if to else 'drop'}"
    local = next((name for name in way if any(mark in name for mark in _MARK_OF_LOCAL)), "")
    return Programmed(
        "nftables",
        source.file,
        "",
        frontend,
        element.comment,
        way[-1] if way else "",
        of.shares(frontend, to),
        Evidence(text, source.file, source.places.line(table, to, 0)),
        internal=frontend.address in of.cluster_ips,
        of_this_node=bool(local),
        writer="clusterip",
    )


class _Table:
    def __init__(self, table: nft.Table) -> None:
        self.table = table
        held = table.sets.get(c.CLUSTER_IPS)
        self.cluster_ips = {e.key.text for e in held.elements if isinstance(e.key, nft.Address)} if held else set()
        self._endpoints = {name: _backends(table.sets[name]) for name in _ENDPOINTS if name in table.sets}

    def way(self, chain: str) -> tuple[str, ...]:
        """The chains that a client from outside the cluster passes, whom source ranges admit."""
        found: list[str] = []
        while chain and chain not in found:
            found.append(chain)
            chain = self._onward(chain)
        return tuple(found)

    def _onward(self, chain: str) -> str:
        if chain.startswith(("sticky-", "endpoint-")):
            return ""  # it draws
        admits = chain.startswith("admission-")
        for rule in self.table.rules(chain):
            if admits or not of_some_clients(rule):
                for statement in rule.statements:
                    if isinstance(statement, (nft.Goto, nft.Jump)):
                        return statement.chain
        return ""

    def shares(self, frontend: Frontend, chain: str) -> Mapping[str, Fraction]:
        way = self.way(chain)
        found: dict[str, Fraction] = {}
        rest = Fraction(1)
        for rule in self.table.rules(way[-1]) if way else ():
            if of_some_clients(rule):
                continue
            drawn = Fraction(1)
            for statement in rule.statements:
                match statement:
                    case nft.Match(nft.Numgen(modulus=modulus), _, nft.Number()):
                        drawn = Fraction(1, modulus)
                    case nft.Nat(
                        kind="dnat", address=nft.Lookup(nft.Concat((*_, nft.Numgen() as number)), nft.SetName(name))
                    ):
                        return self._drawn(frontend, name, number.modulus)
                    case nft.Goto(end) | nft.Jump(end):
                        for backend in self._ends(end):
                            found[backend] = found.get(backend, Fraction(0)) + rest * drawn
                        rest -= rest * drawn
        return found

    def _drawn(self, frontend: Frontend, name: str, count: int) -> dict[str, Fraction]:
        """Of a map by frontend and number; what is not there reaches none."""
        found: dict[str, Fraction] = {}
        held = self._endpoints.get(name, {})
        for number in range(count):
            if backend := held.get((frontend, number)):
                found[backend] = found.get(backend, Fraction(0)) + Fraction(1, count)
        return found

    def _ends(self, chain: str) -> Iterator[str]:
        """Of a sticky backend's chain."""
        for rule in self.table.rules(chain):
            for statement in rule.statements:
                if isinstance(statement, nft.Nat) and (backend := backend_of(statement.address, statement.port)):
                    yield backend


def _backends(held: nft.Set) -> dict[tuple[Frontend, int], str]:
    """(frontend, number) -> the backend."""
    found: dict[tuple[Frontend, int], str] = {}
    for element in held.elements:
        match element.key:
            case nft.Concat((*parts, nft.Number(number))) if at := frontend_of(nft.Concat(tuple(parts))):
                found[at, number] = backend_of(element.value, None)
    return found

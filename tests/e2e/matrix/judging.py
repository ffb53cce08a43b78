"""What was observed against what was expected, as a matrix that a person can read. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tests.e2e.matrix import odds
from tests.e2e.matrix.drawing import NAMESPACE
from tests.e2e.matrix.world import Answer, Cell, Decider, Setting

from clusterip.services.route import Source

STICKY = 4  # connections of a client that should keep its backend
FEW = {"TCP": 1, "UDP": 2, "SCTP": 1}  # where one answer is expected; datagrams from connected and other sockets
SHOWN = 25  # wrong cells told in full
LONG, SHORT = 30.0, 1.0  # seconds of patience, SHORT where silence is expected

Pool: TypeAlias = tuple[Decider, tuple[str, ...]]  # and the backends to draw from
Observed: TypeAlias = Mapping[str, Mapping[int, Counter[Answer]]]  # by client, and index of the cell


@dataclass(frozen=True, slots=True)
class Probe:
    """One cell to try, as the client's program reads it."""

    index: int  # of the cell
    times: int
    patience: float  # seconds
    group: str  # tries of a group come one after the other; "": all at once
    connected: bool  # datagrams from connected sockets alone: others are not told that nobody is there

    def words(self, cell: Cell) -> list[object]:
        frontend = cell.frontend
        return [cell.address, frontend.port, frontend.protocol, self.times, self.patience, self.group, self.connected]


def probes(cells: Sequence[Cell]) -> list[Probe]:
    """So many tries that every backend of every pool should be met."""
    sizes = Counter(pool for cell in cells if (pool := _pool(cell)))
    several = sum(len(backends) > 1 for _, backends in sizes)
    found = []
    for index, cell in enumerate(cells):
        pool = _pool(cell)
        wanted = -(-odds.tries(len(pool[1]), several) // sizes[pool]) if pool else 1
        times = STICKY if cell.sticky else max(FEW[cell.frontend.protocol], wanted)
        silent = any(a.who == "silent" for a in cell.expected)
        group = str(cell.decider) if cell.sticky else ""
        found.append(Probe(index, times, SHORT if silent else LONG, group, cell.decider is None))
    return found


def answer(line: str, setting: Setting) -> Answer:
    """Of what a client's program printed."""
    who, _, address = line.partition(" ")
    if not address:
        return Answer(line)
    return Answer(who, setting.owners.get(address, address)) if ":" in who else Answer(line)


@dataclass(frozen=True, slots=True)
class Report:
    cells: Sequence[Cell]
    observed: Mapping[int, Counter[Answer]]  # by index of the cell
    wrong: Mapping[int, str]  # likewise: what is wrong
    also: tuple[str, ...]  # what is wrong with many cells together

    @property
    def right(self) -> bool:
        return not (self.wrong or self.also)

    def summary(self) -> str:
        tries = sum(counts.total() for counts in self.observed.values())
        clients = dict.fromkeys(cell.client.name for cell in self.cells)
        rows = dict.fromkeys(cell.frontend for cell in self.cells)
        return (
            f"{len(rows)} frontends x {len(clients)} clients, {len(self.cells)} cells, {tries} connections: "
            f"{len(self.wrong)} cells wrong"
        )

    def text(self, cluster: str) -> str:
        """The rows that are not right, each wrong cell in words, and how to ask further."""
        clients = list(dict.fromkeys(cell.client.name for cell in self.cells))
        bad = {self.cells[i].frontend for i in self.wrong}
        marks: dict[str, dict[str, str]] = defaultdict(dict)
        for index, cell in enumerate(self.cells):
            if cell.frontend in bad:
                marks[_row(cell)][cell.client.name] = "WRONG" if index in self.wrong else "ok"
        width = max((len(row) for row in marks), default=0)
        lines = [self.summary(), ""]
        lines.append(" " * width + "".join(f"  {client:>9}" for client in clients))
        lines += [
            f"{row:<{width}}" + "".join(f"  {found.get(client, '-'):>9}" for client in clients)
            for row, found in sorted(marks.items())
        ]
        lines.append("")
        lines += [f"{_row(self.cells[i])}\n  from {self.cells[i].client.name}: {what}" for i, what in self._first()]
        lines += self.also
        lines += [f"ask further: {_trace(self.cells[i], cluster)}" for i, _ in self._first()[:1]]
        return "\n".join(lines)

    def _first(self) -> list[tuple[int, str]]:
        return list(self.wrong.items())[:SHOWN]


def judge(cells: Sequence[Cell], observed: Mapping[int, Counter[Answer]]) -> Report:
    """`observed` by index of the cell."""
    wrong = {i: what for i, cell in enumerate(cells) if (what := _strangers(cell, observed[i]))}
    pools: dict[Pool, Counter[str]] = {}
    for index, cell in enumerate(cells):
        if pool := _pool(cell):
            counts = pools.setdefault(pool, Counter(dict.fromkeys(pool[1], 0)))
            counts.update({a.who: n for a, n in observed[index].items() if a.who in counts})
    also = [
        f"{decider.entry} on {decider.node}: never met {', '.join(missing)}, of {dict(counts)}"
        for (decider, _), counts in pools.items()
        if (missing := [who for who, n in counts.items() if not n])
    ]
    also += _unfaithful(cells, observed)
    also += odds.shares(pools.values())
    return Report(cells, observed, wrong, tuple(also))


def _strangers(cell: Cell, seen: Counter[Answer]) -> str:
    if seen and set(seen) <= cell.expected:
        return ""
    said = ", ".join(f"{a} ({n} times)" for a, n in seen.most_common()) or "nothing at all"
    return f"expected {' or '.join(map(str, sorted(cell.expected)))}; observed {said}"


def _pool(cell: Cell) -> Pool | None:
    return (cell.decider, cell.backends) if cell.decider and not cell.sticky else None


def _unfaithful(cells: Sequence[Cell], observed: Mapping[int, Counter[Answer]]) -> Iterator[str]:
    """A client whose connections to a Service port with affinity met several backends. Where its frontends have
    different backends, by their policies, it may."""
    groups: dict[tuple[str, Decider], list[int]] = defaultdict(list)
    for index, cell in enumerate(cells):
        if cell.sticky and cell.decider:
            groups[f"{cell.client.name} ({cell.source})", cell.decider].append(index)
    for (client, decider), members in groups.items():
        met = {a.who for i in members for a in observed[i]}
        if len({cells[i].backends for i in members}) == 1 and len(met) > 1:
            several = ", ".join(sorted(met))
            yield f"{decider.entry} on {decider.node}: {client} should keep its backend and met {several}"


def _row(cell: Cell) -> str:
    frontend = cell.frontend
    host = f"[{frontend.address}]" if ":" in frontend.address else frontend.address
    return f"{frontend.label}  {host}:{frontend.port}/{frontend.protocol.lower()}"


def _trace(cell: Cell, cluster: str) -> str:
    """For an operator: at the node that decides."""
    client, frontend = cell.client, cell.frontend
    at = cell.decider.node if cell.decider else client.node or "node-1"
    match client.source:
        case Source.POD:
            source = f"{NAMESPACE}/{client.name}"
        case Source.NODE:
            source = "node" if at == client.node else f"node:{client.ips[frontend.family]}"
        case Source.OUTSIDE:
            source = f"outside:{client.ips[frontend.family]}"
    host = f"[{cell.address}]" if ":" in cell.address else cell.address
    return f"clusterip trace {source} {host}:{frontend.port}/{frontend.protocol.lower()} --name {cluster} --node {at}"

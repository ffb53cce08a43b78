"""A scenario page: Markdown for people, with blocks `node`, `objects` and `packets` that say what must hold.

README.md beside it says how a page is written. Reading one gives a `Page` or one error, which names file and line.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.scenarios.members import FAMILIES, MEMBERS, PLACES, family_of
from tests.scenarios.objects import State, families, laid_over, places_of

from clusterip.errors import BadInput, ClusterIPError
from clusterip.model.yamltext import documents
from clusterip.services.notation import Destination, destination
from clusterip.services.table import Family

PAGES = Path(__file__).parent / "pages"
DATAPLANES = ("iptables", "nftables", "ipvs", "ebpf")
PORT = 8080  # of a backend, where the page does not say another
WORDS = ("refused", "dropped", "passed", "healthy", "unhealthy")
NODE_FIELDS = frozenset(
    ("zone", "detector", "masqueradeAll", "nodePortAddresses", "localhostNodePorts", "serviceRanges")
)


class PageError(ClusterIPError):
    def __init__(self, path: Path, line: int, why: str) -> None:
        super().__init__(f"{path.name}:{line}: {why}", hint="tests/scenarios/README.md says how a page is written")


@dataclass(frozen=True, slots=True)
class Answer:
    """What becomes of a packet, in a page's words."""

    kind: str  # one of WORDS, or "delivered"
    backends: tuple[tuple[str, int, bool], ...] = ()  # name or address, port, whether it sees the node as the client
    sticky: bool = False  # one of them serves all
    apart: bool = False  # ... of one destination; another destination may have another
    anew: float = 0.0  # after so many seconds of silence another may; 0: not asked

    def __str__(self) -> str:
        if self.kind != "delivered":
            return self.kind
        words = (f"{name}:{port} as {'the node' if hidden else 'itself'}" for name, port, hidden in self.backends)
        return ("each " if self.apart else "") + ("one of " if self.sticky else "") + ", ".join(words)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a `packets` block: every client sends to every destination, in every family that both have."""

    number: int  # in the file
    clients: tuple[str, ...]
    targets: tuple[tuple[Destination, ...], ...]  # each in the families that it has
    answer: Answer
    exceptions: Mapping[str, Answer] = field(default_factory=dict)  # by dataplane
    flow: str = ""  # the connection, or datagram socket, that stays open under this name
    goes_on: bool = False  # the flow was opened further up
    size: int = 0  # bytes that are sent, and come back

    def answer_in(self, dataplane: str) -> Answer:
        return self.exceptions.get(dataplane, self.answer)

    def sent(self) -> Iterator[tuple[str, Destination]]:
        """Each client and destination."""
        for client in self.clients:
            for target in self.targets:
                for to in target:
                    yield client, to


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The cluster at one time, and what becomes of packets then. Each is a key of its own."""

    title: str
    state: State
    node: Mapping[str, Any]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    title: str
    rows: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def families(self) -> tuple[Family, ...]:
        """Those that any Service of the page has at any time."""
        return tuple(f for f in FAMILIES if any(f in families(step.state) for step in self.steps))


def paths() -> list[Path]:
    return sorted(PAGES.glob("*.md"))


@cache
def load(name: str) -> Page:
    return read(PAGES / f"{name}.md")


def read(path: Path) -> Page:
    """Raises PageError."""
    return parse(path.read_text(), path)


def parse(text: str, path: Path) -> Page:
    """Raises PageError."""
    return _Reader(path).page(text.split("\n"))


@dataclass
class _Block:
    kind: str
    first: int  # number of its first line
    lines: list[str] = field(default_factory=list)


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.flows: dict[str, Line] = {}

    def error(self, line: int, why: str) -> PageError:
        return PageError(self.path, line, why)

    def page(self, lines: Sequence[str]) -> Page:
        if not lines[0].startswith("# "):
            raise self.error(1, "a page begins with '# ' and its title")
        rows = self._rows(lines)
        steps: list[Step] = []
        for title, blocks in self._sections(lines):
            if not blocks:
                raise self.error(1, f"step {title!r} has no block")
            steps.append(self._step(title, blocks, steps[-1] if steps else None))
        return Page(self.path.stem, lines[0][2:].strip(), rows, tuple(steps))

    def _rows(self, lines: Sequence[str]) -> tuple[str, ...]:
        found = [(n, line) for n, line in enumerate(lines, 1) if line.startswith("rows:")]
        if len(found) != 1:
            raise self.error(found[1][0] if found else 1, "a page has one line 'rows: B1 B2'")
        number, line = found[0]
        rows = tuple(line.removeprefix("rows:").split())
        wrong = [row for row in rows if not re.fullmatch(r"B[1-9][0-9]*|1\.5", row)]
        if wrong or not rows:
            raise self.error(number, f"{' '.join(wrong) or 'nothing'}: rows are written like 'B31 B32'")
        return rows

    def _sections(self, lines: Sequence[str]) -> Iterator[tuple[str, list[_Block]]]:
        title, blocks = "", list[_Block]()
        block: _Block | None = None
        for number, line in enumerate(lines, 1):
            if line.startswith("```"):
                kind = line[3:].strip()
                if block is None:
                    if kind not in ("node", "objects", "packets"):
                        raise self.error(number, f"block {kind!r}: it is a node, objects or packets block")
                    block = _Block(kind, number + 1)
                    blocks.append(block)
                elif kind:
                    raise self.error(number, f"block {kind!r} begins within another")
                else:
                    block = None
            elif block is not None:
                block.lines.append(line)
            elif line.startswith("## "):
                yield title, blocks
                title, blocks = line[3:].strip(), []
        if block is not None:
            raise self.error(block.first - 1, f"the {block.kind} block has no end")
        yield title, blocks

    def _step(self, title: str, blocks: list[_Block], before: Step | None) -> Step:
        state = before.state if before else State()
        node: dict[str, Any] = dict(before.node) if before else {}
        lines: list[Line] = []
        for block in blocks:
            if block.kind == "packets":
                lines += self._packets(block, state)
                continue
            value = self._yaml(block)
            try:
                if block.kind == "node":
                    node |= _checked_node(value, first=before is None)
                else:
                    state = laid_over(state, value)
            except BadInput as error:
                raise self.error(block.first, error.message) from error
        return Step(title, state, node, tuple(lines))

    def _yaml(self, block: _Block) -> dict[str, Any]:
        try:
            found = list(documents("\n".join(block.lines)))
        except BadInput as error:
            at = re.search(r"line (\d+)", error.message)
            raise self.error(block.first + (int(at[1]) - 1 if at else 0), error.message) from error
        value = found[0].value if len(found) == 1 else None
        if not isinstance(value, dict):
            raise self.error(block.first, f"the {block.kind} block is not one YAML mapping")
        if found[0].duplicates:
            raise self.error(block.first, f"{', '.join(found[0].duplicates)} is given twice")
        return value

    def _packets(self, block: _Block, state: State) -> list[Line]:
        lines: list[Line] = []
        for number, text in enumerate(block.lines, block.first):
            stripped = text.split("#")[0].rstrip()
            if not stripped:
                continue
            try:
                if stripped.startswith(" "):
                    if not lines:
                        raise BadInput("an exception stands below the packet it is for")
                    lines[-1] = _with_exception(lines[-1], stripped.strip())
                else:
                    lines.append(self._line(number, stripped, state))
            except BadInput as error:
                raise self.error(number, f"{text.strip()!r}: {error.message}") from error
        if not lines:
            raise self.error(block.first, "the packets block has no packet")
        return lines

    def _line(self, number: int, text: str, state: State) -> Line:
        told, colon, answer = text.partition(" : ")
        if not colon:
            raise BadInput("a packet is written 'CLIENT -> DESTINATION : WHAT BECOMES OF IT'")
        going_on = re.fullmatch(r"on (\w+)", told.strip())
        if going_on:
            opened = self.flows.get(going_on[1])
            if opened is None:
                raise BadInput(f"no flow {going_on[1]} was opened further up")
            return Line(number, opened.clients, opened.targets, _answer(answer), flow=opened.flow, goes_on=True)
        form = re.fullmatch(r"(?:open (\w+): )?([\w, ]+?) -> (.+?)(?: sending ([0-9]+) bytes)?", told.strip())
        if form is None:
            raise BadInput("a packet is written 'CLIENT -> DESTINATION : WHAT BECOMES OF IT'")
        clients = tuple(word.strip() for word in form[2].split(","))
        strangers = [name for name in clients if name not in MEMBERS]
        if strangers:
            raise BadInput(f"{', '.join(strangers)}: clients are {', '.join(MEMBERS)}")
        targets = tuple(_target(word.strip(), state) for word in form[3].split(", "))
        line = Line(number, clients, targets, _answer(answer), flow=form[1] or "", size=int(form[4] or 0))
        if line.flow:
            if line.flow in self.flows:
                raise BadInput(f"flow {line.flow} is open already")
            self.flows[line.flow] = line
        return line


def _checked_node(value: dict[str, Any], *, first: bool) -> dict[str, Any]:
    unknown = value.keys() - NODE_FIELDS
    if unknown:
        raise BadInput(f"node: {', '.join(sorted(unknown))}: the fields are {', '.join(sorted(NODE_FIELDS))}")
    if not first and value.keys() - {"zone"}:
        raise BadInput("node: only the zone can change while the proxy runs")
    return value


def _target(text: str, state: State) -> tuple[Destination, ...]:
    """`web:80`, `shop/web:53/udp`: its ClusterIPs; `node:30080`; or an address as everywhere."""
    form = re.fullmatch(r"([a-z][\w/.-]*?):([0-9]+)(?:/(tcp|udp|sctp))?", text)
    if form is None:
        return (destination(text),)
    name, rest = form[1], f"{form[2]}/{form[3] or 'tcp'}"
    if name in PLACES:
        addresses = [PLACES[name].address(family) for family in families(state) or FAMILIES]
    else:
        addresses = list(places_of(state, name))
    if not addresses:
        raise BadInput(f"{name}: no Service with an address, and none of {', '.join(PLACES)}")
    return tuple(destination(f"[{a}]:{rest}" if family_of(a) == "IPv6" else f"{a}:{rest}") for a in addresses)


def _with_exception(line: Line, text: str) -> Line:
    form = re.fullmatch(r"in ([\w, ]+?) : (.+)", text)
    if form is None:
        raise BadInput("an exception is written 'in DATAPLANE, DATAPLANE : WHAT BECOMES OF IT'")
    names = [name.strip() for name in form[1].split(",")]
    unknown = [name for name in names if name not in DATAPLANES]
    if unknown:
        raise BadInput(f"{', '.join(unknown)}: dataplanes are {', '.join(DATAPLANES)}")
    if again := [name for name in names if name in line.exceptions or names.count(name) > 1]:
        raise BadInput(f"{again[0]} has an exception already")
    answer = _answer(form[2])
    exceptions = {**line.exceptions, **dict.fromkeys(names, answer)}
    return Line(line.number, line.clients, line.targets, line.answer, exceptions, line.flow, line.goes_on, line.size)


def _answer(text: str) -> Answer:
    """A word of WORDS, or `[one of] a b:9090 as itself, c as the node[, anew after 1 s]`."""
    words = text.strip()
    if words in WORDS:
        return Answer(words)
    later = re.search(r", anew after ([0-9.]+) s$", words)
    words = words[: later.start()] if later else words
    apart = words.startswith("each one of ")
    words = words.removeprefix("each ") if apart else words
    sticky = words.startswith("one of ")
    backends = [b for group in words.removeprefix("one of ").split(", ") for b in _group(group)]
    if len({(name, port) for name, port, _ in backends}) < len(backends):
        raise BadInput("a backend is given twice")
    return Answer("delivered", tuple(sorted(backends)), sticky, apart, float(later[1]) if later else 0.0)


def _group(text: str) -> Iterator[tuple[str, int, bool]]:
    form = re.fullmatch(r"(.+) as (itself|the node)", text.strip())
    if form is None:
        raise BadInput(
            f"{text.strip()!r} is none of {', '.join(WORDS)}, and not 'BACKEND BACKEND as itself' or '... as the node'"
        )
    for word in form[1].split():
        name, colon, port = word.partition(":")
        if name not in MEMBERS or (colon and not port.isdigit()):
            raise BadInput(f"backend {word!r}: backends are {', '.join(MEMBERS)}, each with or without ':PORT'")
        yield name, int(port) if colon else PORT, form[2] == "the node"

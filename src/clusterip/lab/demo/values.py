"""What a step can show: sentences, evidence, claims."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from clusterip.kernel.capture import Packet

if TYPE_CHECKING:
    from clusterip.lab.demo.stage import Stage


@dataclass(frozen=True, slots=True)
class Title:
    text: str


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class Wait:
    """What we wait for now, until the next value."""

    text: str


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that was run, letter for letter, and what it printed."""

    prompt: str  # where: "$" this shell, "node-1#" that node, "client#" that pod
    command: str
    output: str
    status: int = 0
    marks: tuple[str, ...] = ()  # the words in the output that matter
    only: tuple[str, ...] = ()  # show only lines with one of these words; (): all

    @property
    def all_lines(self) -> tuple[str, ...]:
        return tuple(line.rstrip() for line in self.output.strip("\n").splitlines())

    @property
    def lines(self) -> tuple[str, ...]:
        """The output's lines that are shown."""
        return tuple(line for line in self.all_lines if not self.only or any(word in line for word in self.only))


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file we apply."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A captured packet, and where."""

    where: str  # whose eth0
    packet: Packet
    changed: str = ""  # which address differs from the row before: "source", "destination", ""


@dataclass(frozen=True, slots=True)
class Packets:
    rows: tuple[Seen, ...]


@dataclass(frozen=True, slots=True)
class Explained:
    """Pieces of something just shown, each with its meaning."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Counted:
    """Packets that a rule has counted."""

    rule: str  # where it jumps to
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Counters:
    rows: tuple[Counted, ...]


@dataclass(frozen=True, slots=True)
class Bars:
    rows: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, and whether what was collected bears it out."""

    text: str
    held: bool
    saw: str = ""  # what was seen instead; of a claim that holds, the measured figure


Shown: TypeAlias = Title | Say | Wait | Ran | Manifest | Packets | Explained | Counters | Bars | Claim
Step: TypeAlias = Callable[["Stage"], AsyncIterator[Shown]]

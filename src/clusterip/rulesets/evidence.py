"""Where in a text something stands, and what of a text could not be read."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

T_co = TypeVar("T_co", covariant=True)

NAMED_PROBLEMS = 20  # of one section; the rest is counted


class Origin(Struct, frozen=True):
    """Where a section of a file begins."""

    file: str = "input"
    line: int = 1


INPUT = Origin()


class Problem(Struct, frozen=True):
    """Something that could not be read, or that a listing cannot say. It takes nothing from the rest of the file."""

    file: str
    line: int  # 1 is the first; 0: the file as a whole
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.why}" if self.line else f"{self.file}: {self.why}"


class Places(Struct, frozen=True):
    """The line of each rule of a section."""

    file: str = ""
    lines: Mapping[tuple[str, str], Sequence[int]] = {}  # (table, chain) -> line of each of its rules, from 1

    def line(self, table: str, chain: str, rule: int) -> int:
        """Of rule number `rule` (from 0) of a chain; 0: not known. nft tables are named "ip kube-proxy"."""
        lines = self.lines.get((table, chain), ())
        return lines[rule] if 0 <= rule < len(lines) else 0


class Reading(Struct, Generic[T_co], frozen=True):
    """What a parser made of a section."""

    values: T_co
    facts: int  # rules, entries, objects ...: how much it gave
    problems: tuple[Problem, ...] = ()
    places: Places = Places()


class Problems:
    """Collects the problems of a section. What comes again and again is named `NAMED_PROBLEMS` times, then counted."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._found: list[Problem] = []
        self._more = 0

    def add(self, line: int, why: str) -> None:
        """`line` counts from 0 within the section; -1: the section as a whole."""
        if len(self._found) >= NAMED_PROBLEMS:
            self._more += 1
            return
        self._found.append(Problem(self._origin.file, self._origin.line + line if line >= 0 else 0, why))

    def unreadable(self, line: int, text: str) -> None:
        self.add(line, f"cannot be read: {shortened(text)}")

    def all(self) -> tuple[Problem, ...]:
        more = (Problem(self._origin.file, 0, f"{self._more} more lines like these"),) if self._more else ()
        return (*self._found, *more)


def shortened(text: str, most: int = 120) -> str:
    """One line of at most `most` characters that can be printed whatever it holds."""
    shown = text[: most + 1].strip()
    shown = (
        shown if shown.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown)
    )
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def numbered(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    """The lines that say something, with their number from 0, without blanks at the end."""
    for number, line in enumerate(lines):
        stripped = line.rstrip()
        if stripped:
            yield number, stripped

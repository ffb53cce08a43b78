"""What `trace`, `verify` and `doctor` have to say of a thing: by a stable id, with the evidence and a remedy."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

from msgspec import Struct

Level: TypeAlias = Literal["E", "W", "I"]  # broken for new connections; will surprise or fail later; not a fault

ORDER: dict[Level, int] = {"E": 0, "W": 1, "I": 2}


_EXPLAINS = frozenset({"proxy-not-running", "sync-failing"})  # where nobody writes rules, all else may follow from it


class Evidence(Struct, frozen=True, omit_defaults=True):
    """What shows it, as it stands in the input: a rule, a counter, a line of a log, a field of an object."""

    text: str
    file: str = ""
    line: int = 0  # 1 is the first; 0: not known

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        return where + self.text


class Finding(Struct, frozen=True):
    """`id` names one kind of fault, whatever shows it, and never changes its meaning."""

    id: str  # "no-endpoints"
    level: Level
    object: str  # "service default/web:http", "filter/FORWARD", "node node-1"
    message: str  # a sentence: what is so, and what follows from it
    evidence: tuple[Evidence, ...] = ()
    share: Fraction | None = None  # of new connections that it costs; None: cannot be computed
    remedy: str = ""  # something that can be typed, or done

    @property
    def rank(self) -> tuple[int, bool, Fraction, str, str]:
        """Sorts findings: by level, those that explain others first, then by what they cost."""
        return ORDER[self.level], self.id not in _EXPLAINS, -(self.share or Fraction(0)), self.id, self.object


def shortened(items: Sequence[str], most: int) -> str:
    """ "a, b and 3 more"."""
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")

"""Sets of addresses as values: `ipset save` and `ipset list`. `text` prints what `ipset restore` loads."""

import re
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from clusterip.rulesets.evidence import INPUT, Origin, Problems, Reading, numbered


class Member(Struct, frozen=True, gc=False):
    parts: tuple[str, ...]  # one a dimension: ("10.96.0.1", "tcp:443"); of list:set the name of a set
    options: tuple[str, ...] = ()  # "nomatch", "timeout", "3", "comment", "x", "packets", "0"; "after", "name"

    @property
    def nomatch(self) -> bool:
        """An exception from the wider networks in its set."""
        return "nomatch" in self.options


class IPSet(Struct, frozen=True):
    name: str
    type: str  # "hash:ip,port,ip", "bitmap:port", "list:set"
    options: tuple[str, ...] = ()  # "family", "inet", "hashsize", "1024" ...
    members: tuple[Member, ...] = ()
    line: int = 0  # in the file; 0: made, not read

    @property
    def dimensions(self) -> tuple[str, ...]:
        """What the parts of its members are: ("ip", "port", "ip")."""
        return tuple(self.type.partition(":")[2].split(","))

    @property
    def family(self) -> str:
        """ "inet" or "inet6"."""
        given = dict(zip(self.options, self.options[1:], strict=False))
        return given.get("family", "inet")


class IPSets(Struct, frozen=True):
    sets: Mapping[str, IPSet]  # by name, in the order of the text; never changed


# A word of ipset's output; comments are in quotes and hold none.
_WORD = re.compile(r'"([^"]*)"|(\S+)')
_TYPE = re.compile(r"(hash|bitmap|list):[a-z,]+")
# Of `ipset list` only: what the kernel says of itself.
_NOT_OPTIONS = frozenset({"Revision", "Size in memory", "References", "Number of entries", "Members"})


def read(text: str, origin: Origin = INPUT) -> Reading[IPSets]:
    """Either form; the lines say which."""
    reader = _Reader(origin)
    for number, line in numbered(text.split("\n")):
        reader.take(number, line)
    sets = {
        name: IPSet(s.name, s.type, s.options, tuple(reader.members[name]), s.line) for name, s in reader.sets.items()
    }
    return Reading(IPSets(sets), len(sets) + sum(map(len, reader.members.values())), reader.problems.all())


class _Reader:
    def __init__(self, origin: Origin) -> None:
        self.problems = Problems(origin)
        self.sets: dict[str, IPSet] = {}
        self.members: dict[str, list[Member]] = {}
        self._origin = origin
        self._listed = ""  # the set whose members follow, a line each
        self._name = ""
        self._type = ""
        self._line = 0

    def take(self, number: int, line: str) -> None:
        verb, _, rest = line.partition(" ")
        known: dict[str, Callable[[int, str], bool]] = {"create": self._create, "-N": self._create, "add": self._add}
        known["-A"] = self._add
        if verb in known and not self._listed:
            if not known[verb](number, rest):
                self.problems.unreadable(number, line)
            return
        field, colon, value = line.partition(":")
        if colon and (field in _HEADERS or field in _NOT_OPTIONS) and value[:1] in ("", " "):
            self._header(number, field, value.strip())
        elif self._listed:
            self._member(number, self._listed, line)
        else:
            self.problems.unreadable(number, line)

    def _create(self, number: int, rest: str) -> bool:
        words = words_of(rest)
        if len(words) < 2 or not _TYPE.fullmatch(words[1]):
            return False
        self._declare(number, IPSet(words[0], words[1], tuple(words[2:]), line=self._origin.line + number))
        return True

    def _declare(self, number: int, found: IPSet) -> None:
        if found.name in self.sets:
            self.problems.add(number, f"set {found.name} is declared a second time: its members are put together")
        self.sets.setdefault(found.name, found)
        self.members.setdefault(found.name, [])

    def _add(self, number: int, rest: str) -> bool:
        name, _, member = rest.partition(" ")
        if not member:
            return False
        if name not in self.sets:
            self.problems.add(number, f"set {name} has members but is not declared: create is missing")
            self._declare(number, IPSet(name, "", line=self._origin.line + number))
        self._member(number, name, member)
        return True

    def _member(self, number: int, name: str, text: str) -> None:
        value, _, options = text.partition(" ")
        parts = tuple(value.split(","))
        self.members[name].append(Member(parts, tuple(words_of(options)) if options else ()))
        if any(not part for part in parts):
            self.problems.unreadable(number, text)
        wanted = self.sets[name].dimensions
        if self.sets[name].type and len(parts) != len(wanted) and wanted != ("set",):
            self.problems.add(
                number, f"a member of {self.sets[name].type} has {len(wanted)} parts, {value} has {len(parts)}"
            )

    def _header(self, number: int, field: str, value: str) -> None:
        match field:
            case "Name":
                self._listed, self._name, self._type = "", value, ""
                self._line = number
            case "Type" if self._name and _TYPE.fullmatch(value):
                self._type = value
            case "Header" if self._type:
                options = tuple(words_of(value))
                self._declare(self._line, IPSet(self._name, self._type, options, line=self._origin.line + self._line))
            case "Members" if self._type:
                if self._name not in self.sets:
                    self._declare(self._line, IPSet(self._name, self._type, line=self._origin.line + self._line))
                self._listed = self._name
            case "Type" | "Header" | "Members":
                self.problems.add(number, f"{field} stands before the name and the type of a set")


_HEADERS = frozenset({"Name", "Type", "Header"})


def words_of(text: str) -> list[str]:
    if '"' not in text:
        return text.split()
    return [bare or quoted for quoted, bare in _WORD.findall(text)]


def text(sets: IPSets) -> str:
    return "".join(f"{line}\n" for found in sets.sets.values() for line in _lines(found))


def _lines(found: IPSet) -> Iterator[str]:
    # What a listing says beyond `save`: the kernel draws `initval` itself unless it is given.
    yield " ".join(("create", found.name, found.type, *map(_quoted, found.options)))
    for member in found.members:
        yield " ".join(("add", found.name, ",".join(member.parts), *_option_words(member.options)))


def _option_words(options: tuple[str, ...]) -> Iterator[str]:
    previous = ""
    for option in options:
        yield f'"{option}"' if previous == "comment" else _quoted(option)
        previous = option if previous != "comment" else ""


def _quoted(word: str) -> str:
    return f'"{word}"' if not word or any(c.isspace() for c in word) else word

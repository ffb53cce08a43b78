"""A module's options: what stands between one -m or -j and the next."""

from collections.abc import Sequence
from typing import NamedTuple

from clusterip.rulesets.iptables.values import PortRange


class Option(NamedTuple):
    negated: bool
    name: str  # "--dport"; "": words that no option precedes
    values: list[str]


ALL_BITS = 0xFFFFFFFF


def options_of(given: Sequence[str]) -> list[Option]:
    """["!", "--dport", "80"] -> [Option(True, "--dport", ("80",))]; words before any option: an option named ""."""
    options: list[Option] = []
    negated = False
    for word in given:
        if word == "!":
            negated = True
        elif word.startswith("--") and len(word) > 2:
            options.append(Option(negated, word, []))
            negated = False
        else:
            if not options:
                options.append(Option(negated, "", []))
                negated = False
            if negated:
                options[-1].values.append("!")
                negated = False
            options[-1].values.append(word)
    return options


def words_of(options: Sequence[Option]) -> tuple[str, ...]:
    words: list[str] = []
    for option in options:
        words += (*(("!",) if option.negated else ()), *((option.name,) if option.name else ()), *option.values)
    return tuple(words)


def by_name(options: Sequence[Option]) -> dict[str, Option]:
    """The options by name; one named "", which no reader knows, if any is given twice or is not of its usual form."""
    found = {option.name: option for option in options}
    odd = len(found) < len(options) or any(
        len(o.values) != (0 if o.name in _FLAGS else 1) or (o.negated and o.name not in _NEGATABLE) for o in options
    )
    return {"": Option(False, "", [])} if odd else found


_NEGATABLE = {"--probability", "--every", "--set", "--rcheck", "--update", "--remove", "--src-type", "--dst-type"}
_FLAGS = {
    *("--set", "--rcheck", "--update", "--remove", "--reap", "--rttl", "--rsource", "--rdest"),
    *("--limit-iface-in", "--limit-iface-out", "--random", "--random-fully", "--persistent"),
}


def value(named: dict[str, Option], name: str, otherwise: str) -> str:
    option = named.get(name)
    return option.values[0] if option else otherwise


def masked(text: str) -> tuple[int, int] | None:
    """ "0x4000/0x4000" -> both numbers; None: it is not like that."""
    bits, slash, mask = text.partition("/")
    try:
        found = (int(bits, 0), int(mask, 0) if slash else ALL_BITS)
    except ValueError:
        return None
    return found if all(0 <= number <= ALL_BITS for number in found) else None


def port_range(text: str) -> PortRange | None:
    """ "80", "8000:8999", ":1023", "1024:" -> both ends; None: it is not like that."""
    first, colon, last = text.partition(":")
    low, high = first or "0", (last or "65535") if colon else first
    if not (low.isascii() and low.isdecimal() and high.isascii() and high.isdecimal()):
        return None
    found = PortRange(int(low), int(high))
    return found if max(found) <= 65535 else None

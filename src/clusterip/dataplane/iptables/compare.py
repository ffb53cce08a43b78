"""What the kernel holds against what it should hold: what others did, and what need not be written again. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from clusterip.dataplane.iptables import names
from clusterip.dataplane.iptables.compile import Piece
from clusterip.dataplane.iptables.config import Config
from clusterip.dataplane.iptables.delta import Delta
from clusterip.dataplane.iptables.program import Counts, complete

Place: TypeAlias = tuple[str, str]  # table, chain
Chains: TypeAlias = Mapping[Place, list[str]]  # rules in order, without "-A <chain> "


@dataclass(frozen=True, slots=True)
class Comparison:
    differences: tuple[str, ...]  # what somebody else did to our rules, a line each; (): they are as they should be
    intact: frozenset[Place]  # chains of ours that hold what they should
    shared: frozenset[Place] = frozenset()  # chains that are there, and in which others may have rules, too
    present: frozenset[tuple[str, str]] = frozenset()  # (chain, rule) of ours in shared chains


def compare(saved: str, pieces: Iterable[Piece], config: Config, stale: frozenset[str] = frozenset()) -> Comparison:
    """`saved`: an iptables-save of all tables. `stale`: chains we left standing on purpose.

    Rules of others, and the place of our jumps among them, are not our business. In a chain that all Services share
    the order of rules means nothing but for its fixed tail.
    """
    found, wanted = _by_chain(saved), _by_chain(complete(pieces, config))
    said: list[str] = []
    intact: set[Place] = set()
    for place, rules in wanted.items():
        table, chain = place
        there = found.get(place)
        if chain == names.FIREWALL or not chain.startswith("KUBE-"):
            kind = "the chain" if there is None else "a rule of ours"
            said += [f"{table}/{chain}: {kind} is gone: {rule}" for rule in Counter(rules) - Counter(there or ())]
        elif there is None:
            said.append(f"{table}/{chain}: the chain is gone")
        elif there == rules or (not names.is_own_chain(chain) and _alike(there, rules)):
            intact.add(place)
        else:
            said.append(f"{table}/{chain}: its rules are not ours")
    strays = {chain for table, chain in found.keys() - wanted.keys() if table == "nat" and names.is_own_chain(chain)}
    said += [f"nat/{chain}: nobody asked for this chain" for chain in sorted(strays - stale)]
    firewall = ("filter", names.FIREWALL)
    present = frozenset((names.FIREWALL, rule) for rule in found.get(firewall, ()))
    return Comparison(tuple(said), frozenset(intact), frozenset({firewall} & found.keys()), present)


def without(load: Delta, comparison: Comparison) -> Delta:
    """A load, less what the kernel holds already: to read is a tenth of the work of writing the same again.

    It also leaves the rules of others in chains that we share, which declaring the chain would flush.
    """
    text: list[str] = []
    counts = {"nat": 0, "filter": 0, "mangle": 0}
    for block in load.text.split("\nCOMMIT\n"):
        head, _, body = block.partition("\n")
        table = head[1:]
        lines = [line for line in body.splitlines() if _is_needed(table, line, comparison)]
        if lines:
            counts[table] += sum(line.startswith("-A ") for line in lines)
            text += [head, *lines, "COMMIT"]
    written = Counts(counts["nat"], counts["filter"])
    return Delta("".join(f"{line}\n" for line in text), written, load.change, load.stale)


def _is_needed(table: str, line: str, comparison: Comparison) -> bool:
    if line.startswith(":"):
        place = (table, line[1:].partition(" ")[0])
        return place not in comparison.intact and place not in comparison.shared
    if line.startswith("-A "):
        chain, _, rule = line[3:].partition(" ")
        return (table, chain) not in comparison.intact and (chain, _coarse(rule)) not in comparison.present
    return True


def _alike(found: list[str], wanted: list[str]) -> bool:
    return Counter(found) == Counter(wanted) and found[-1:] == wanted[-1:]


def _by_chain(text: str) -> Chains:
    chains: dict[Place, list[str]] = {}
    table = ""
    for line in text.splitlines():
        match line[:1]:
            case "*":
                table = line[1:].strip()
            case ":":
                chains.setdefault((table, line[1:].split(" ", 1)[0]), [])
            case "-" if line.startswith("-A "):
                chain, _, rule = line[3:].partition(" ")
                chains.setdefault((table, chain), []).append(_coarse(rule))
    return chains


def _coarse(rule: str) -> str:
    """The kernel keeps 31 bits of a probability: four digits of it come back as they were."""
    head, word, tail = rule.partition("--probability ")
    if not word:
        return rule
    number, _, rest = tail.partition(" ")
    return f"{head}{word}{float(number):.4f} {rest}"

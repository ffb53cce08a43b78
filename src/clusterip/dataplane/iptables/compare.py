"""What the kernel holds against what it should hold: what others did, and what need not be written again. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from clusterip.dataplane.iptables import names
from clusterip.dataplane.iptables.compile import OwnChain, Piece
from clusterip.dataplane.iptables.config import Config
from clusterip.dataplane.iptables.delta import Delta
from clusterip.dataplane.iptables.program import TABLES, Counts, fixed, jumps, shared_lines

Place: TypeAlias = tuple[str, str]  # table, chain

_EMPTY = 0  # a chain without rules, folded


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
    ordered = tuple(pieces)
    own, others = _read(saved)
    said: list[str] = []
    intact: set[Place] = set()
    tails = {(c.table, c.name): list(c.tail) for c in fixed(config)}
    for place, rules in _shared(ordered, config).items():
        table, chain = place
        there = others.get(place)
        if chain == names.FIREWALL or not chain.startswith("KUBE-"):
            kind = "the chain" if there is None else "a rule of ours"
            said += [f"{table}/{chain}: {kind} is gone: {rule}" for rule in Counter(rules) - Counter(there or ())]
        elif there is None:
            said.append(f"{table}/{chain}: the chain is gone")
        elif _alike(there, rules, tails[place]):
            intact.add(place)
        else:
            said.append(f"{table}/{chain}: its rules are not ours")
    wanted = {chain.name: _folded_text(chain) for piece in ordered for chain in piece.chains}
    for chain, rules_folded in wanted.items():
        if own.get(chain) == rules_folded:
            intact.add(("nat", chain))
        else:
            said.append(f"nat/{chain}: {'its rules are not ours' if chain in own else 'the chain is gone'}")
    strays = own.keys() - wanted.keys() - stale
    said += [f"nat/{chain}: nobody asked for this chain" for chain in sorted(strays)]
    firewall = ("filter", names.FIREWALL)
    present = frozenset((names.FIREWALL, rule) for rule in others.get(firewall, ()))
    return Comparison(tuple(said), frozenset(intact), frozenset({firewall} & others.keys()), present)


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


def _alike(found: list[str], wanted: list[str], tail: list[str]) -> bool:
    return Counter(found) == Counter(wanted) and found[len(found) - len(tail) :] == tail


def _shared(pieces: Iterable[Piece], config: Config) -> dict[Place, list[str]]:
    """The rules we want in the fixed chains, and our jumps in the built-in ones."""
    lines = {table: shared_lines(pieces, table) for table in TABLES}
    wanted = {(c.table, c.name): [*lines[c.table][c.name], *c.tail] for c in fixed(config)}
    for jump in jumps(config):
        wanted.setdefault((jump.table, jump.chain), []).append(jump.spec)
    return wanted


def _read(saved: str) -> tuple[dict[str, int], dict[Place, list[str]]]:
    """The folded rules of each own chain of the nat table, of which there may be a hundred thousand, and the rules
    of every other chain."""
    own: dict[str, int] = {}
    others: dict[Place, list[str]] = {}
    table = ""
    for line in _lines(saved):
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith((":", "-A ")):
            chain, _, rule = line.removeprefix("-A ").removeprefix(":").partition(" ")
            is_rule = line.startswith("-")
            if table == "nat" and names.is_own_chain(chain):
                own[chain] = _fold(own.get(chain, _EMPTY), rule) if is_rule else own.get(chain, _EMPTY)
            else:
                there = others.setdefault((table, chain), [])
                there += (_coarse(rule),) if is_rule else ()
    return own, others


def _lines(text: str) -> Iterator[str]:
    """As splitlines, but one at a time: a save may be tens of megabytes."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1


def _fold(before: int, rule: str) -> int:
    return hash((before, _coarse(rule)))


def _folded_text(chain: OwnChain) -> int:
    folded = _EMPTY
    for line in chain.rules.splitlines():
        folded = _fold(folded, line.removeprefix(f"-A {chain.name} "))
    return folded


def _coarse(rule: str) -> str:
    """The kernel keeps 31 bits of a probability: four digits of it come back as they were."""
    head, word, tail = rule.partition("--probability ")
    if not word:
        return rule
    number, _, rest = tail.partition(" ")
    return f"{head}{word}{float(number):.4f} {rest}"

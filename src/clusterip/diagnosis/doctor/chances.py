"""Whether the probabilities that stand in the rules give every backend its share. Pure."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.diagnosis.doctor.programmed import UNIT, Programmed, service_name
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt
from clusterip.rulesets.iptables.saved import Saved

NOTICEABLE = Fraction(1001, 1000)  # the largest share over the smallest, from which on it is no mere rounding


def find(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    by_chain = {(p.file, p.chain): p for p in programs if p.form == "iptables"}
    rounded: list[tuple[Programmed | None, str, Evidence, Sequence[Fraction]]] = []
    for source in known.iptables:
        nat = source.values.ruleset.tables.get("nat")
        for name, chain in nat.chains.items() if nat else ():
            drawn = _drawn(chain.rules)
            if len(drawn) < 3:
                continue
            shares = [share for _, _, share in drawn]
            number, rule, _ = drawn[0]
            place = source.rule("nat", name, number, line_text(name, rule))
            program = by_chain.get((source.file, name))
            label = (
                program.object
                if program
                else f"service {service_name(rule.comment)}"
                if service_name(rule.comment)
                else (f"nat/{name}")
            )
            repeated = _repeated(rule for _, rule, _ in drawn)
            if max(shares) / min(shares) > NOTICEABLE or repeated:
                yield _coarse(label, source, name, drawn, repeated)
            elif len(set(shares)) > 1:
                rounded.append((program, label, place, shares))
    if rounded and _asks_about_rules(known):
        yield _rounding(rounded)


def _asks_about_rules(known: Known) -> bool:
    """Who gives rules and nothing else wonders about the rules. With more to look at, what no iptables node is without
    would be told of every node."""
    host = (known.settings, known.interfaces, known.routes, known.conntrack, known.logs)
    return not known.documents and not any(host)


def _drawn(rules: Sequence[ipt.Rule]) -> list[tuple[int, ipt.Rule, Fraction]]:
    """The rules that share out by chance, the one that gets the rest last, and the share of each."""
    found: list[tuple[int, ipt.Rule, Fraction]] = []
    rest = Fraction(1)
    for number, rule in enumerate(rules):
        chance = next((m for m in rule.matches if isinstance(m, ipt.Random)), None)
        if chance is not None and not chance.negated:
            share = rest * Fraction(chance.numerator, UNIT)
            found.append((number, rule, share))
            rest -= share
        elif found and isinstance(rule.target, (ipt.Jump, ipt.Goto, ipt.DNAT)):
            found.append((number, rule, rest))
            break
    return found if all(share for _, _, share in found) else []


def _repeated(rules: Iterator[ipt.Rule]) -> int:
    """Rules with the probability of the one before: with n backends each is 1/n, 1/(n-1) ..., so no two are equal."""
    numerators = [m.numerator for rule in rules for m in rule.matches if isinstance(m, ipt.Random)]
    return sum(a == b for a, b in pairwise(numerators))


def _coarse(
    label: str, source: Sourced[Saved], chain: str, drawn: Sequence[tuple[int, ipt.Rule, Fraction]], repeated: int
) -> Finding:
    shares = [share for _, _, share in drawn]
    small, large = min(shares), max(shares)
    count = len(drawn)
    message = f"{count} backends, and probabilities written with too few digits: the smallest share is "
    message += f"{exact_percent(small)}, the largest {exact_percent(large)}, equal ones would be "
    message += f"{exact_percent(Fraction(1, count))}; largest/smallest is {float(large / small):.4f}."
    message += f" {repeated} rules repeat their neighbour's probability (kube-proxy before 1.17)." if repeated else ""
    evidence = tuple(
        source.rule("nat", chain, number, f"{line_text(chain, rule)} = {exact_percent(share)}")
        for number, rule, share in (min(drawn, key=lambda d: d[2]), max(drawn, key=lambda d: d[2]))
    )
    return Finding("coarse-probabilities", "W", label, message, evidence, None, "upgrade kube-proxy to 1.17 or later")


def _rounding(rounded: Sequence[tuple[Programmed | None, str, Evidence, Sequence[Fraction]]]) -> Finding:
    _, label, place, shares = max(rounded, key=lambda r: len(r[3]))
    count = len(shares)
    most = max(abs(s - Fraction(1, count)) for s in shares)
    message = "The probabilities grow from rule to rule, because each is asked only of what the rules before left: "
    message += f"the {count} backends get 1/{count} each, but for at most {float(most):.1e}, which is how finely they "
    message += "are written and the kernel can count (2^-31). This is not a fault."
    message += f" So it is with {len(rounded) - 1} more chains." if len(rounded) > 1 else ""
    shown = ", ".join(exact_percent(s) for s in shares[:5]) + (", ..." if count > 5 else "")
    return Finding("rounding-only", "I", label, message, (place, Evidence(f"shares: {shown}")))


def exact_percent(share: Fraction) -> str:
    return f"{float(share * 100):.8f} %"

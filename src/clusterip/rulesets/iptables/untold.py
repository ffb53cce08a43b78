"""`iptables -S` and `iptables -L` print one table and do not say which. Groups of chains -> tables."""

from array import array
from collections.abc import Sequence
from typing import Literal

from clusterip.rulesets.evidence import Origin, Places, Problems, Reading
from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.iptables.parse import BUILT_IN
from clusterip.rulesets.iptables.saved import Family, Saved


class Group:
    """Chains that were printed together, so of one table."""

    def __init__(self) -> None:
        self.heads: dict[str, v.Chain] = {}
        self.rules: dict[str, list[v.Rule]] = {}
        self.lines: dict[str, array[int]] = {}

    def declare(self, chain: v.Chain) -> None:
        self.heads[chain.name] = chain
        self.rules.setdefault(chain.name, [])
        self.lines.setdefault(chain.name, array("L"))

    def append(self, chain: str, rule: v.Rule, line: int) -> None:
        if chain not in self.heads:
            self.declare(v.Chain(chain, (), "ACCEPT" if chain in BUILT_IN else "-"))
        self.rules[chain].append(rule)
        self.lines[chain].append(line)

    def table(self, name: str) -> v.Table:
        heads = self.heads.values()
        return v.Table(name, {c.name: v.Chain(c.name, tuple(self.rules[c.name]), c.policy, c.counters) for c in heads})


_OF_NAT = frozenset(("DNAT", "SNAT", "MASQUERADE", "REDIRECT", "NETMAP"))
_NAT_CHAINS = ("KUBE-SEP-", "KUBE-SVC-", "KUBE-XLB-", "KUBE-EXT-", "KUBE-MARK-MASQ", "KUBE-POSTROUTING")


def table_of(group: Group) -> str:
    """By the hooks it has, else by what only one table can have; "": it cannot be told."""
    hooks = group.heads.keys() & BUILT_IN
    if {"PREROUTING", "POSTROUTING"} & hooks and "FORWARD" in hooks:
        return "mangle"
    if "FORWARD" in hooks:
        return "filter"
    if "POSTROUTING" in hooks or any(name.startswith(_NAT_CHAINS) for name in group.heads):
        return "nat"
    targets = {target_name(rule.target) for rules in group.rules.values() for rule in rules}
    if targets & _OF_NAT:
        return "nat"
    if {"CT", "NOTRACK"} & targets:
        return "raw"
    return "filter" if "INPUT" in hooks and "REJECT" in targets else ""


def target_name(target: v.Target) -> str:
    match target:
        case None:
            return ""
        case v.OtherTarget(name, _):
            return name
        case v.Jump() | v.Goto():
            return ""
        case _:
            return type(target).__name__.upper()


def assembled(
    groups: Sequence[Group], told_by: Literal["rules", "listing"], origin: Origin, problems: Problems
) -> Reading[Saved]:
    tables: dict[str, v.Table] = {}
    lines: dict[tuple[str, str], Sequence[int]] = {}
    for group in groups:
        name = table_of(group)
        if not name:
            name = "filter"
            chains = ", ".join(list(group.heads)[:3])
            problems.add(
                -1, f"it does not say of which table the chains {chains} are: taken for filter, which is the default"
            )
        if name in tables:
            problems.add(-1, f"table {name} seems to come twice: only the first is kept")
            continue
        tables[name] = group.table(name)
        lines |= {(name, chain): at for chain, at in group.lines.items()}
    facts = sum(len(at) for at in lines.values())
    saved = Saved(v.Ruleset(tables), family_of(groups), told_by=told_by)
    return Reading(saved, facts, problems.all(), Places(origin.file, lines))


def family_of(groups: Sequence[Group]) -> Family:
    """By the first address that a rule asks for."""
    for group in groups:
        for rule in (rule for rules in group.rules.values() for rule in rules):
            for match in rule.matches:
                if isinstance(match, v.Source | v.Destination):
                    return "ip6" if ":" in match.network else "ip"
    return ""

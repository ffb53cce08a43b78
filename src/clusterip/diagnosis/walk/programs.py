"""All programs of a node that a packet of one family passes, by hook."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from clusterip.diagnosis.facts import Facts, IptablesRules, NftRules
from clusterip.diagnosis.walk.chain import Rules
from clusterip.diagnosis.walk.hooks import BaseChain, HookName, Kind
from clusterip.diagnosis.walk.iptables import Index, IptablesTable
from clusterip.diagnosis.walk.iptables_match import Matching
from clusterip.diagnosis.walk.ipvs import IPVS
from clusterip.diagnosis.walk.nft import NftTable, SetIndexes
from clusterip.diagnosis.walk.sets import Index as SetIndex
from clusterip.diagnosis.walk.sets import Sets
from clusterip.diagnosis.walk.surroundings import Surroundings
from clusterip.rulesets.nft import values as n

HOOKS: tuple[HookName, ...] = ("prerouting", "input", "forward", "output", "postrouting")

# Sources: include/uapi/linux/netfilter_ipv4.h; net/netfilter/ipvs/ip_vs_core.c.
_PRIORITIES = {"raw": -300, "mangle": -150, "filter": 0, "security": 50}
_NAT_PRIORITIES = {"PREROUTING": -100, "OUTPUT": -100, "INPUT": 100, "POSTROUTING": 100}
_IPVS_PRIORITIES: dict[HookName, int] = {"input": 99, "output": -99}


@dataclass(frozen=True, slots=True)
class Programs:
    chains: Mapping[HookName, tuple[BaseChain, ...]]  # by priority
    tables: Mapping[tuple[str, str], Rules]  # by program and name

    def told(self, program: str, table: str, chain: str, rule: int) -> tuple[str, str, int]:
        """The rule's text, its file and line."""
        rules = self.tables.get((program, table))
        return rules.told(chain, rule) if rules and rule >= 0 else ("", "", 0)


@dataclass(frozen=True, slots=True)
class Kept:
    """What was learned of large chains and sets, so that later questions are quick."""

    chains: dict[tuple[str, str], dict[str, Index]] = field(default_factory=dict)  # by program and table
    ipsets: dict[str, SetIndex] = field(default_factory=dict)  # by name
    sets: dict[str, SetIndexes] = field(default_factory=dict)  # by table
    hooked: dict[str, tuple[n.Chain, ...]] = field(default_factory=dict)  # base chains, by table


def programs(facts: Facts, surroundings: Surroundings, kept: Kept | None = None, *, ipv6: bool) -> Programs:
    """Of a table that was given twice the first counts, a listing that does not tell all last."""
    kept = kept or Kept()
    found: list[BaseChain] = []
    seen: set[tuple[str, str]] = set()
    ipsets = Sets(facts.ipsets or {}, kept.ipsets)
    for given in sorted((r for r in facts.iptables if r.ipv6 == ipv6), key=lambda r: r.listed):
        found += _iptables(given, Matching(surroundings, ipsets), seen, kept)
    for rules in facts.nft:
        found += _nft(rules, surroundings, "ip6" if ipv6 else "ip", seen, kept)
    expected = _ipvs_frontends(facts)
    if facts.ipvs is not None or expected:
        ipvs = IPVS(facts.ipvs, facts.ipvs_connections, facts.settings, surroundings, expected)
        found += [BaseChain(hook, at, "ipvs", ipvs, "") for hook, at in _IPVS_PRIORITIES.items()]
    by_hook = {hook: tuple(sorted((c for c in found if c.hook == hook), key=lambda c: c.priority)) for hook in HOOKS}
    return Programs(by_hook, {(c.rules.program, c.rules.table): c.rules for c in found})


def _ipvs_frontends(facts: Facts) -> frozenset[tuple[str, str]]:
    """Of the sets that a proxy in IPVS mode keeps beside its services."""
    sets = facts.ipsets or {}
    kinds = ("CLUSTER-IP", "LOAD-BALANCER", "EXTERNAL-IP")
    named = (sets[name] for kind in kinds for name in (f"KUBE-{kind}", f"KUBE-6-{kind}") if name in sets)
    return frozenset((m.parts[0], m.parts[1]) for found in named for m in found.members if len(m.parts) > 1)


def _iptables(given: IptablesRules, matching: Matching, seen: set[tuple[str, str]], kept: Kept) -> Iterator[BaseChain]:
    program = f"iptables-{given.variant}" if given.variant else "iptables"
    for table in given.ruleset:
        if (program, table.name) in seen:
            continue
        seen.add((program, table.name))
        indexes = kept.chains.setdefault((f"{program}{given.ipv6}", table.name), {})
        rules = IptablesTable(program, table, matching, given.places, indexes)
        for hook in HOOKS:
            chain = table.chains.get(hook.upper())
            if chain is None or (not chain.rules and chain.policy != "DROP"):
                continue
            nat = table.name == "nat"
            priority = _NAT_PRIORITIES.get(chain.name) if nat else _PRIORITIES.get(table.name)
            if priority is not None:
                policy: Literal["accept", "drop"] = "drop" if chain.policy == "DROP" else "accept"
                yield BaseChain(hook, priority, "nat" if nat else "filter", rules, chain.name, policy)


def _nft(
    given: NftRules, surroundings: Surroundings, family: Literal["ip", "ip6"], seen: set[tuple[str, str]], kept: Kept
) -> Iterator[BaseChain]:
    """Tables that iptables-nft keeps are told better by its own dump, where there is one."""
    for table in given.ruleset:
        told_already = table.family == family and {("iptables-nft", table.name), ("iptables", table.name)} & seen
        if table.family not in (family, "inet") or "dormant" in table.flags or told_already:
            continue
        name = f"{table.family} {table.name}"
        if ("nft", name) in seen:
            continue
        seen.add(("nft", name))
        rules = NftTable(table, surroundings, given.places, kept.sets.setdefault(name, {}))
        if name not in kept.hooked:
            kept.hooked[name] = tuple(chain for chain in table.chains.values() if chain.hook)
        for chain in kept.hooked[name]:
            hook = chain.hook
            if hook and hook.hook in HOOKS and (chain.rules or hook.policy == "drop"):
                kind: Kind = "nat" if hook.type == "nat" else "filter"
                yield BaseChain(hook.hook, hook.priority, kind, rules, chain.name, hook.policy)

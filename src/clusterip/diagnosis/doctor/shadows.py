"""Rules that no packet ever reaches, because one before them takes all that they ask for. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from ipaddress import ip_network

from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.diagnosis.doctor.programmed import Chains, service_name
from clusterip.diagnosis.findings import Finding
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt
from clusterip.rulesets.iptables.saved import Saved

NAMED = 3
_NETWORKS = (ipt.Source, ipt.Destination)
_OURS = ("KUBE-", "CLUSTERIP-")
_NO_CHOICE = Chains(None)  # filter tables give no packet a new destination


def find(known: Known, choices: Sequence[Chains], firewall: bool) -> Iterator[Finding]:
    """`choices`: of each dump's nat table. `firewall`: rules behind a firewall's are told of with it."""
    for source, chains in zip(known.iptables, choices, strict=True):
        if source.values.told_by == "listing":
            continue  # it may leave out what a rule asks
        for table in source.values.ruleset:
            for name, chain in table.chains.items():
                if len(chain.rules) < 2 or name.startswith("KUBE-SEP-"):
                    continue
                if table.name == "nat" or (table.name == "filter" and name == "FORWARD" and not firewall):
                    own = chains if table.name == "nat" else _NO_CHOICE
                    yield from _in_chain(source, table.name, name, chain.rules, own)


def _in_chain(
    source: Sourced[Saved], table: str, name: str, rules: Sequence[ipt.Rule], choices: Chains
) -> Iterator[Finding]:
    """Rules that a rule takes everything of, together. Exact addresses are told apart at once: chains are long."""
    takers: list[int] = []
    by_destination: defaultdict[str, list[int]] = defaultdict(list)
    taken: defaultdict[int, list[int]] = defaultdict(list)
    for number, rule in enumerate(rules):
        exact = _destination(rule)
        for at in (*takers, *by_destination.get(exact, ())) if _matters(rule) else ():
            taker = rules[at]
            if (taker.matches, taker.target) != (rule.matches, rule.target) and _takes_all_of(taker, rule):
                taken[at].append(number)
                break
        if _ends(rule, choices):
            (by_destination[exact] if exact else takers).append(number)
    for at, numbers in taken.items():
        yield _shadowed(source, (table, name), rules, at, numbers)


def _destination(rule: ipt.Rule) -> str:
    found = next((m for m in rule.matches if isinstance(m, ipt.Destination) and not m.negated), None)
    return ipt.lone_address(found.network) if found else ""


def _matters(rule: ipt.Rule) -> bool:
    match rule.target:
        case ipt.Jump(chain) | ipt.Goto(chain):
            return chain.startswith(_OURS)
        case ipt.Accept():
            return any(isinstance(m, _NETWORKS) for m in rule.matches)
    return isinstance(rule.target, ipt.DNAT)


def _ends(rule: ipt.Rule, choices: Chains) -> bool:
    """Whether no packet that matches goes on to the next rule."""
    match rule.target:
        case ipt.Accept() | ipt.Drop() | ipt.Reject() | ipt.Return() | ipt.DNAT() | ipt.Goto():
            return True
        case ipt.Jump(chain):
            return choices.always(chain)
    return False


def _takes_all_of(taker: ipt.Rule, rule: ipt.Rule) -> bool:
    """Each thing that it asks for is asked for, at least as narrowly, by the other."""
    return all(
        isinstance(match, (ipt.Comment, ipt.NfAcct)) or any(_implies(other, match) for other in rule.matches)
        for match in taker.matches
    )


def _implies(narrow: ipt.Match, wide: ipt.Match) -> bool:
    match narrow, wide:
        case ipt.Source(one, False), ipt.Source(other, False):
            return _within(one, other)
        case ipt.Destination(one, False), ipt.Destination(other, False):
            return _within(one, other)
        case _ if isinstance(wide, (ipt.Random, ipt.Nth, ipt.Limit, ipt.OtherMatch, ipt.Recent)):
            return False
    return narrow == wide


def _within(inner: str, outer: str) -> bool:
    if inner == outer:
        return True
    try:
        one, two = ip_network(inner, strict=False), ip_network(outer, strict=False)
    except ValueError:
        return False
    return one.version == two.version and two.supernet_of(one)  # type: ignore[arg-type]


def _shadowed(
    source: Sourced[Saved], where: tuple[str, str], rules: Sequence[ipt.Rule], taker: int, taken: Sequence[int]
) -> Finding:
    table, chain = where
    names = list(dict.fromkeys(filter(None, (service_name(rules[n].comment) for n in taken))))
    many = len(taken) > 1
    message = f"Rule {taken[0] + 1} of {table}/{chain}{f' and {len(taken) - 1} more are' if many else ' is'} never "
    message += f"reached: rule {taker + 1} takes every packet that {'they ask' if many else 'it asks'} for."
    message += f" They are of {', '.join(names[:NAMED])}." if many and names else ""
    evidence = tuple(source.rule(table, chain, n, line_text(chain, rules[n])) for n in (taker, *taken[:NAMED]))
    remedy = f"iptables -t {table} -L {chain} -n -v --line-numbers   # whose rule {taker + 1} is; take it out there"
    object_ = f"service {names[0]}" if len(names) == 1 else f"{table}/{chain}"
    return Finding("shadowed-rule", "E", object_, message, evidence, None, remedy)

"""Rules that are wrong in themselves: a match that was lost, a chain that no hook reaches, a jump to nowhere. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from msgspec import structs

from clusterip.diagnosis.doctor import proxies
from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.diagnosis.doctor.refusals import Refusal
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt
from clusterip.rulesets.iptables.saved import Saved
from clusterip.rulesets.nft import values as nft

BUILT_IN = frozenset({"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"})
FIREWALL = "KUBE-FIREWALL"
NAMED = 5  # duplicates that are shown as evidence


def find(known: Known, refusals: Sequence[Refusal]) -> Iterator[Finding]:
    for source in known.iptables:
        for table in source.values.ruleset:
            if table.name == "filter":
                yield from _unconditional(source, table, reached_from(table))
            yield from _missing_chains(known, source, table)
            yield from _duplicates(source, table)
        yield from _invalid(known, source)
    yield from _not_hooked(known, refusals)
    for rules in known.nft:
        for nft_table in rules.values:
            yield from _nft_missing_chains(known, rules, nft_table)


def reached_from(table: ipt.Table) -> Mapping[str, frozenset[str]]:
    """Chain -> the built-in chains that lead to it, whatever the conditions on the way."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for start in BUILT_IN & table.chains.keys():
        waiting = [start]
        while waiting:
            chain = waiting.pop()
            if start in found[chain]:
                continue
            found[chain].add(start)
            targets = (rule.target for rule in table.rules(chain))
            waiting += [t.chain for t in targets if isinstance(t, (ipt.Jump, ipt.Goto))]
    return {chain: frozenset(starts) for chain, starts in found.items()}


# --- a match that was lost --------------------------------------------------------------------------------------------


def _unconditional(
    source: Sourced[Saved], table: ipt.Table, reached: Mapping[str, frozenset[str]]
) -> Iterator[Finding]:
    for name, chain in table.chains.items():
        hooks = reached.get(name, frozenset()) & {"INPUT", "FORWARD", "OUTPUT"}
        if name in BUILT_IN or not name.startswith(("KUBE-", "cali-")) or not hooks:
            continue
        for number, rule in enumerate(chain.rules):
            if not isinstance(rule.target, (ipt.Drop, ipt.Reject)) or _selects(rule):
                continue
            if name != FIREWALL and "mark" not in rule.comment:
                continue
            place = source.rule("filter", name, number, line_text(name, rule))
            yield _dropping_all(f"filter/{name}", rule.comment, sorted(hooks), place)
            break


def _selects(rule: ipt.Rule) -> bool:
    return any(not isinstance(m, (ipt.Comment, ipt.NfAcct)) for m in rule.matches)


def _dropping_all(object_: str, comment: str, hooks: Sequence[str], place: Evidence) -> Finding:
    message = f"This rule drops every packet in {' and '.join(hooks)}: a match was lost"
    message += f', for its comment says "{comment}". ' if comment else ". "
    message += "An older iptables cannot decode what a newer one wrote, leaves the match out when it saves, and a "
    message += "restore writes it back without. The iptables of the host and of the container differ."
    if "FORWARD" not in hooks:
        message += " Pods' forwarded traffic does not pass here."
    chain = object_.rpartition("/")[2]
    remedy = f"iptables -D {chain} -m comment --comment '{comment}' -j DROP" if comment else f"iptables -F {chain}"
    remedy += "   # then bring host and container to one version of iptables"
    return Finding("unconditional-drop", "E", object_, message, (place,), Fraction(1), remedy)


# --- chains -----------------------------------------------------------------------------------------------------------


def _missing_chains(known: Known, source: Sourced[Saved], table: ipt.Table) -> Iterator[Finding]:
    """A listing may show a few chains of many, so what it leaves out says nothing."""
    if source.values.told_by == "listing":
        return
    for name, chain in table.chains.items():
        for number, rule in enumerate(chain.rules):
            target = rule.target.chain if isinstance(rule.target, (ipt.Jump, ipt.Goto)) else ""
            if not target or target in table.chains:
                continue
            place = source.rule(table.name, name, number, line_text(name, rule))
            yield _no_chain(known.proxy, table.name, target, name, place)


def _nft_missing_chains(known: Known, source: Sourced[nft.Ruleset], table: nft.Table) -> Iterator[Finding]:
    proxy = proxies.of_table(known, table.name)
    for held in table.sets.values():
        for element in held.elements:
            target = element.value.chain if isinstance(element.value, (nft.Jump, nft.Goto)) else ""
            if target and target not in table.chains:
                place = Evidence(f"map {held.name}: an element goes to {target}", source.file)
                yield _no_chain(proxy, f"{table.family} {table.name}", target, f"map {held.name}", place)
    for name, chain in table.chains.items():
        for number, rule in enumerate(chain.rules):
            for statement in rule.statements:
                target = statement.chain if isinstance(statement, (nft.Jump, nft.Goto)) else ""
                if target and target not in table.chains:
                    place = source.rule(f"{table.family} {table.name}", name, number, f"chain {name}: jump {target}")
                    yield _no_chain(proxy, f"{table.family} {table.name}", target, name, place)


def _no_chain(proxy: proxies.Proxy, table: str, chain: str, from_: str, place: Evidence) -> Finding:
    message = f"{from_} leads to {chain}, and there is no such chain. The kernel holds no such program: either the "
    message += "dump is not whole, or it is a batch that the kernel would refuse as a whole."
    remedy = proxy.restart("then dump again: iptables-save")
    return Finding("chain-missing", "E", f"{table}/{chain}", message, (place,), None, remedy)


def _duplicates(source: Sourced[Saved], table: ipt.Table) -> Iterator[Finding]:
    for name, chain in table.chains.items():
        if len(chain.rules) < 2:
            continue
        seen: dict[tuple[object, object], list[int]] = {}
        for number, rule in enumerate(chain.rules):
            if rule.target is not None and not any(isinstance(m, ipt.Nth) for m in rule.matches):
                seen.setdefault((rule.matches, rule.target), []).append(number)
        doubled = [numbers for numbers in seen.values() if len(numbers) > 1]
        if not doubled:
            continue
        worst = max(doubled, key=len)
        message = f"{len(doubled)} rule{'s stand' if len(doubled) > 1 else ' stands'} more than once in {name}, the "
        message += f"worst {len(worst)} times: something adds them again and again without seeing that they are there."
        evidence = tuple(source.rule(table.name, name, n, line_text(name, chain.rules[n])) for n in worst[:NAMED])
        rule = structs.replace(chain.rules[worst[0]], counters=None)
        remedy = f"iptables -t {table.name} -D{line_text(name, rule).removeprefix('-A')}   # "
        remedy += f"{len(worst) - 1} times; host and container should use one variant and version of iptables"
        yield Finding("duplicate-rules", "W", f"{table.name}/{name}", message, evidence, None, remedy)


# --- refusals that no hook reaches ------------------------------------------------------------------------------------


def _not_hooked(known: Known, refusals: Sequence[Refusal]) -> Iterator[Finding]:
    for source in known.iptables:
        table = source.values.ruleset.tables.get("filter")
        if table is None or "FORWARD" not in table.chains:
            continue
        reached = reached_from(table)
        ours = [r for r in refusals if r.form == "iptables" and r.file == source.file]
        six = source.values.family == "ip6"  # one file may hold both families, one after the other
        ours = [r for r in ours if (":" in r.frontend.address) == six]
        chains = {r.chain: r for r in ours}
        for chain, refusal in sorted(chains.items()):
            if "FORWARD" in reached.get(chain, frozenset()) or not refusal.frontend.address:
                continue
            count = sum(r.chain == chain for r in ours)
            hooks = ", ".join(sorted(reached.get(chain, ()))) or "none"
            more = f" (and {count - 1} more)" if count > 1 else ""
            message = f"filter/{chain} refuses {refusal.frontend}{more}, but FORWARD does not jump to it (it is "
            message += f"reached from {hooks}): pods' packets pass by it, leave untranslated to an address that nobody "
            message += "owns, and the client waits until it gives up. Only this host's own are refused at once."
            remedy = f"iptables -I FORWARD -m conntrack --ctstate NEW -j {chain}   # or "
            remedy += f"restart {known.proxy.name}; upgrade an old one"
            yield Finding("reject-not-hooked", "E", f"filter/{chain}", message, (refusal.place,), Fraction(1), remedy)


def _invalid(known: Known, source: Sourced[Saved]) -> Iterator[Finding]:
    table = source.values.ruleset.tables.get("filter")
    if table is None or not table.rules("KUBE-FORWARD") or source.values.told_by == "listing":
        return
    if any(s.values.number("net.netfilter.nf_conntrack_tcp_be_liberal") == 1 for s in known.settings):
        return
    reached = reached_from(table)
    dropped = any(
        "INVALID" in m.states and isinstance(rule.target, ipt.Drop)
        for name, chain in table.chains.items()
        if "FORWARD" in reached.get(name, ())
        for rule in chain.rules
        for m in rule.matches
        if isinstance(m, ipt.ConnState) and not m.negated
    )
    if dropped:
        return
    message = "Nothing drops what conntrack calls INVALID in FORWARD: such a packet (a late answer, one out of its "
    message += "window) reaches the client with the pod's address instead of the Service's, and the client resets the "
    message += "connection."
    first = table.rules("KUBE-FORWARD")[0]
    evidence = (source.rule("filter", "KUBE-FORWARD", 0, line_text("KUBE-FORWARD", first)),)
    remedy = "iptables -I KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP   # or upgrade the proxy, or sysctl "
    remedy += "-w net.netfilter.nf_conntrack_tcp_be_liberal=1"
    yield Finding("invalid-not-dropped", "W", "filter/KUBE-FORWARD", message, evidence, None, remedy)

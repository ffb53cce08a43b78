"""Rules of Services that no packet comes to: the hook that should lead to them does not. Pure."""

from collections.abc import Iterator
from fractions import Fraction

from clusterip.diagnosis.doctor import proxies
from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.diagnosis.doctor.structure import reached_from
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables.saved import Saved
from clusterip.rulesets.nft import values as nft

_CHAIN, _MAP = "KUBE-SERVICES", "service-ips"  # the map is called so by kube-proxy and by us
_WHOSE = {"prerouting": "pods and clients outside send", "output": "this node sends"}


def find(known: Known) -> Iterator[Finding]:
    """Of hooks that were given: a dump may leave some out, and that says nothing."""
    for source in known.iptables:
        yield from _iptables(known, source)
    for rules in known.nft:
        for table in rules.values:
            yield from _nft(known, rules, table)


def _iptables(known: Known, source: Sourced[Saved]) -> Iterator[Finding]:
    nat = source.values.ruleset.tables.get("nat")
    if nat is None or not nat.rules(_CHAIN) or source.values.told_by == "listing":
        return
    reached = reached_from(nat).get(_CHAIN, frozenset())
    place = source.rule("nat", _CHAIN, 0, line_text(_CHAIN, nat.rules(_CHAIN)[0]))
    for hook in _WHOSE:
        if hook.upper() in nat.chains and hook.upper() not in reached:
            where = f"nat/{hook.upper()}"
            yield _finding(hook, where, f"nat/{_CHAIN}", place, known.proxy)


def _nft(known: Known, source: Sourced[nft.Ruleset], table: nft.Table) -> Iterator[Finding]:
    held = table.sets.get(_MAP)
    if held is None or not held.elements:
        return
    name = f"{table.family} {table.name}"
    for chain in table.chains.values():
        hook = chain.hook
        if hook and hook.type == "nat" and hook.hook in _WHOSE and not _asks(table, chain.name):
            place = Evidence(f"table {name}, chain {chain.name}: no way to map {_MAP}", source.file)
            where = f"{name}/{chain.name}"
            yield _finding(hook.hook, where, f"map {_MAP}", place, proxies.of_table(known, table.name))


def _asks(table: nft.Table, start: str) -> bool:
    """Whether some rule on the way from a chain looks the Service up."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        chain = waiting.pop()
        if chain in seen:
            continue
        seen.add(chain)
        for rule in table.rules(chain):
            for statement in rule.statements:
                match statement:
                    case nft.VerdictMap(map=nft.SetName(name)) if name == _MAP:
                        return True
                    case nft.Jump(target) | nft.Goto(target):
                        waiting.append(target)
    return False


def _finding(hook: str, where: str, what: str, place: Evidence, proxy: proxies.Proxy) -> Finding:
    message = f"{where} does not lead to {what}, where the Services are: nothing that {_WHOSE[hook]} to them is "
    message += "translated. Somebody has flushed a chain, or taken the jump away."
    return Finding("services-not-hooked", "E", where, message, (place,), Fraction(1), proxy.restart())

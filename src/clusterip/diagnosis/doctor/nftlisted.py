"""Tables of iptables-nft as `nft list ruleset` shows them -> the rules of iptables that they are. Pure.

nft leaves out comments, so the names of Services are found by the hashes in chains' names. What it cannot show of a
match is kept as a match that nobody knows.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.rulesets.evidence import Places
from clusterip.rulesets.iptables import values as ipt
from clusterip.rulesets.iptables.saved import Saved
from clusterip.rulesets.nft import values as nft

TABLES = frozenset({"nat", "filter", "mangle", "raw"})
_RANDOM = 0x7FFFFFFF
_SHOWN = frozenset({"comment", "MASQUERADE", "REJECT", "MARK"})  # a mark decides nothing by its number
_PORTED = frozenset({"tcp", "udp", "sctp", "th"})
_HOOKS = frozenset({"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"})


def with_listed(known: Known) -> Known:
    """Where iptables-save itself was given it tells more of the same rules, so it alone counts."""
    told = {source.values.family == "ip6" for source in known.iptables if source.values.variant != "legacy"}
    listed = (
        saved for source in known.nft for saved in _of_iptables(source) if (saved.values.family == "ip6") not in told
    )
    return replace(known, iptables=(*known.iptables, *listed))


def _of_iptables(source: Sourced[nft.Ruleset]) -> Iterator[Sourced[Saved]]:
    """One a family, if there are such tables: their base chains are called as iptables calls them."""
    for family in ("ip", "ip6"):
        tables = [
            t
            for t in source.values
            if t.family == family and t.name in TABLES and any(c.hook and c.name in _HOOKS for c in t.chains.values())
        ]
        if not tables or any(_hides(rule) for t in tables for c in t.chains.values() for rule in c.rules):
            continue
        lines = {
            (t.name, chain): source.places.lines.get((f"{t.family} {t.name}", chain), ())
            for t in tables
            for chain in t.chains
        }
        made = {t.name: ipt.Table(t.name, {c.name: _chain(c) for c in t.chains.values()}) for t in tables}
        saved = Saved(ipt.Ruleset(made), "ip6" if family == "ip6" else "ip", "nft")
        yield Sourced(saved, source.file, Places(source.file, lines))


def _hides(rule: nft.Rule) -> bool:
    """Whether nft names something of it and does not show what it asks or does: then it decides nothing here."""
    return any(isinstance(s, nft.Xt) and s.name not in _SHOWN for s in rule.statements)


def _chain(chain: nft.Chain) -> ipt.Chain:
    policy = chain.hook.policy.upper() if chain.hook else "-"
    return ipt.Chain(chain.name, tuple(map(_rule, chain.rules)), policy)


def _rule(rule: nft.Rule) -> ipt.Rule:
    matches: list[ipt.Match] = []
    target: ipt.Target = None
    counters: ipt.Counters | None = None
    for statement in rule.statements:
        match statement:
            case nft.Counter(packets, bytes_):
                counters = ipt.Counters(packets, bytes_)
            case nft.Match():
                matches.append(_match(statement))
            case nft.Xt(kind="match", name="comment"):
                pass  # its text is not shown
            case nft.Xt(kind="match", name=name):
                matches.append(ipt.OtherMatch(name))
            case _:
                target = _target(statement)
    return ipt.Rule(tuple(matches), target, counters)


def _match(given: nft.Match) -> ipt.Match:
    negated = given.operator == "!="
    match given.left, given.right:
        case nft.Payload("ip" | "ip6", "saddr"), (nft.Address() | nft.Prefix()) as right:
            return ipt.Source(_network(right), negated)
        case nft.Payload("ip" | "ip6", "daddr"), (nft.Address() | nft.Prefix()) as right:
            return ipt.Destination(_network(right), negated)
        case nft.Meta("l4proto"), nft.Word(name):
            return ipt.IPProtocol(name, negated)
        case nft.Payload(protocol, "dport"), nft.Number(port) if protocol in _PORTED:
            known: Literal["tcp", "udp", "sctp"] = "udp" if protocol == "udp" else "tcp"
            known = "sctp" if protocol == "sctp" else known
            return ipt.Ports(known, None, ipt.PortRange(port, port), destination_negated=negated)
        case nft.Binary("&", nft.Meta("random"), nft.Number(mask)), nft.Number(limit) if mask == _RANDOM:
            return ipt.Random(limit)
        case nft.Binary("&", nft.Meta("mark"), nft.Number(mask)), nft.Number(value):
            return ipt.Mark(value, mask, negated)
        case nft.Ct("state"), right:
            states = right.parts if isinstance(right, nft.Flags) else (right,)
            return ipt.ConnState(tuple(s.text.upper() for s in states if isinstance(s, nft.Word)), negated)
        case nft.Fib(("daddr",), "type"), nft.Word(kind):
            return ipt.AddrType(destination=kind.upper(), destination_negated=negated)
        case nft.Meta("iifname"), nft.Quoted(name):
            return ipt.InInterface(name.replace("*", "+"), negated)
        case nft.Meta("oifname"), nft.Quoted(name):
            return ipt.OutInterface(name.replace("*", "+"), negated)
    return ipt.OtherMatch("", (repr(given),))


def _network(value: nft.Address | nft.Prefix) -> str:
    if isinstance(value, nft.Prefix):
        return f"{value.address}/{value.length}"
    return f"{value.text}/{128 if ':' in value.text else 32}"


def _target(statement: nft.Statement) -> ipt.Target:
    match statement:
        case nft.Accept():
            return ipt.Accept()
        case nft.Drop():
            return ipt.Drop()
        case nft.Return():
            return ipt.Return()
        case nft.Jump(chain):
            return ipt.Jump(chain)
        case nft.Goto(chain):
            return ipt.Goto(chain)
        case nft.Reject(how):
            return ipt.Reject(how)
        case nft.Nat(kind="masquerade", flags=flags):
            return ipt.Masquerade(random="random" in flags, random_fully="fully-random" in flags)
        case nft.Nat(kind="dnat", address=nft.Address(address), port=nft.Number(port)):
            return ipt.DNAT(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
        case nft.Xt(kind="target", name="MASQUERADE"):
            return ipt.Masquerade()
        case nft.Xt(kind="target", name="REJECT"):
            return ipt.Reject()
    return ipt.OtherTarget(type(statement).__name__, (repr(statement),))

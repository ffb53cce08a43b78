"""Values -> text, as `iptables-save` writes it. The inverse of `parse`."""

from collections.abc import Iterable
from typing import assert_never

from clusterip.rulesets.iptables import values as v


def ruleset_text(ruleset: v.Ruleset) -> str:
    return "".join(map(table_text, ruleset.tables.values()))


def table_text(table: v.Table) -> str:
    lines = [f"*{table.name}"]
    lines += [f":{c.name} {c.policy} [{c.counters.packets}:{c.counters.bytes}]" for c in table.chains.values()]
    for chain in table.chains.values():
        lines += [line_text(chain.name, rule) for rule in chain.rules]
    return "\n".join([*lines, "COMMIT", ""])


def line_text(chain: str, rule: v.Rule) -> str:
    """The line of one rule: "-A KUBE-SERVICES ..."."""
    counters = f"[{rule.counters.packets}:{rule.counters.bytes}] " if rule.counters else ""
    return _join((f"{counters}-A {chain}", rule_text(rule)))


def rule_text(rule: v.Rule) -> str:
    """What follows "-A <chain> "."""
    return _join((*map(match_text, rule.matches), target_text(rule.target)))


def match_text(match: v.Match) -> str:
    match match:
        case v.Source(network, negated):
            return f"{_not(negated)}-s {quoted(network)}"
        case v.Destination(network, negated):
            return f"{_not(negated)}-d {quoted(network)}"
        case v.InInterface(pattern, negated):
            return f"{_not(negated)}-i {quoted(pattern)}"
        case v.OutInterface(pattern, negated):
            return f"{_not(negated)}-o {quoted(pattern)}"
        case v.IPProtocol(name, negated):
            return f"{_not(negated)}-p {quoted(name)}"
        case v.OtherMatch(module, words):
            return _words(*(("-m", module) if module else ()), *words)
        case v.Comment(text):
            return f"-m comment --comment {_comment(text)}"
        case v.ConnState(states, negated, module):
            option = "ctstate" if module == "conntrack" else "state"
            return f"-m {module} {_not(negated)}--{option} {quoted(','.join(states))}"
        case _:
            return _module_text(match)


def _module_text(
    match: v.Mark
    | v.Random
    | v.Nth
    | v.Recent
    | v.AddrType
    | v.NfAcct
    | v.InSet
    | v.Ports
    | v.MultiPort
    | v.PhysDev
    | v.Limit,
) -> str:
    match match:
        case v.Mark(value, mask, negated):
            return f"-m mark {_not(negated)}--mark {_masked(value, mask)}"
        case v.Random(numerator, negated):
            # 11 digits tell all 2**31 values apart.
            return f"-m statistic --mode random {_not(negated)}--probability {numerator / 2**31:.11f}"
        case v.Nth(every, packet, negated):
            return f"-m statistic --mode nth {_not(negated)}--every {every} --packet {packet}"
        case v.Recent():
            return _recent(match)
        case v.AddrType():
            return _addrtype(match)
        case v.NfAcct(name):
            return _words("-m", "nfacct", "--nfacct-name", name)
        case v.InSet(name, directions, negated):
            return f"-m set {_not(negated)}--match-set {quoted(name)} {quoted(','.join(directions))}"
        case v.Ports():
            return _ports(match)
        case v.MultiPort(side, ports, negated):
            return f"-m multiport {_not(negated)}--{side} {','.join(map(_range, ports))}"
        case v.PhysDev():
            return _physdev(match)
        case v.Limit(rate, burst):
            return f"-m limit --limit {quoted(rate)}" + (f" --limit-burst {burst}" if burst is not None else "")
        case _:
            assert_never(match)


def target_text(target: v.Target) -> str:
    match target:
        case None:
            return ""
        case v.Accept():
            return "-j ACCEPT"
        case v.Drop():
            return "-j DROP"
        case v.Return():
            return "-j RETURN"
        case v.Reject(how):
            return "-j REJECT" + (f" --reject-with {quoted(how)}" if how else "")
        case v.SetMark(value, mask):
            return f"-j MARK --set-xmark {value:#x}/{mask:#x}"
        case v.Masquerade(ports, random, fully):
            options = (
                f"--to-ports {quoted(ports)}" if ports else "",
                _flag(random, "random"),
                _flag(fully, "random-fully"),
            )
            return _join(("-j MASQUERADE", *options))
        case v.DNAT(to, random, persistent):
            return _join(
                (f"-j DNAT --to-destination {quoted(to)}", _flag(random, "random"), _flag(persistent, "persistent"))
            )
        case v.SNAT(to, random, fully, persistent):
            options = (_flag(random, "random"), _flag(fully, "random-fully"), _flag(persistent, "persistent"))
            return _join((f"-j SNAT --to-source {quoted(to)}", *options))
        case v.Jump(chain):
            return f"-j {quoted(chain)}"
        case v.Goto(chain):
            return f"-g {quoted(chain)}"
        case v.OtherTarget(name, words):
            return _words("-j", name, *words)
        case _:
            assert_never(target)


def quoted(text: str, plain: frozenset[str] = frozenset("_-.:/,+=@%[]*!^~#")) -> str:
    """In double quotes if it holds anything but ASCII letters, digits and `plain`."""
    if text and all((c.isascii() and c.isalnum()) or c in plain for c in text):
        return text
    return '"' + "".join(f"\\{c}" if c in "\"\\'" else c for c in text) + '"'


def _comment(text: str) -> str:
    return quoted(text, frozenset("_-"))


def _words(*words: str) -> str:
    return " ".join(map(quoted, words))


def _not(negated: bool) -> str:
    return "! " if negated else ""


def _flag(on: bool, name: str) -> str:
    return f"--{name}" if on else ""


def _masked(value: int, mask: int) -> str:
    return f"{value:#x}" if mask == 0xFFFFFFFF else f"{value:#x}/{mask:#x}"


def _range(ports: v.PortRange) -> str:
    return f"{ports.first}" if ports.first == ports.last else f"{ports.first}:{ports.last}"


def _join(parts: Iterable[str]) -> str:
    return " ".join(part for part in parts if part)


def _recent(match: v.Recent) -> str:
    return _join(
        (
            f"-m recent {_not(match.negated)}--{match.action}",
            f"--seconds {match.seconds}" if match.seconds else "",
            _flag(match.reap, "reap"),
            f"--hitcount {match.hitcount}" if match.hitcount else "",
            _flag(match.ttl, "rttl"),
            f"--name {quoted(match.name)}",
            f"--mask {quoted(match.mask)}" if match.mask else "",
            _flag(bool(match.side), match.side),
        )
    )


def _addrtype(match: v.AddrType) -> str:
    return _join(
        (
            "-m addrtype",
            f"{_not(match.source_negated)}--src-type {quoted(match.source)}" if match.source else "",
            f"{_not(match.destination_negated)}--dst-type {quoted(match.destination)}" if match.destination else "",
            _flag(bool(match.limit), f"limit-iface-{match.limit}"),
        )
    )


def _ports(match: v.Ports) -> str:
    flags = (
        f"{_not(match.flags_negated)}--tcp-flags {quoted(match.flag_mask)} {quoted(match.flags)}"
        if match.flag_mask
        else ""
    )
    return _join(
        (
            f"-m {match.protocol}",
            f"{_not(match.source_negated)}--sport {_range(match.source)}" if match.source else "",
            f"{_not(match.destination_negated)}--dport {_range(match.destination)}" if match.destination else "",
            flags,
        )
    )


def _physdev(match: v.PhysDev) -> str:
    asked = (("is-in", match.is_in), ("is-out", match.is_out), ("is-bridged", match.is_bridged))
    return _join(
        (
            "-m physdev",
            f"{_not(match.came_in_negated)}--physdev-in {quoted(match.came_in)}" if match.came_in else "",
            f"{_not(match.goes_out_negated)}--physdev-out {quoted(match.goes_out)}" if match.goes_out else "",
            *(f"{_not(not wanted)}--physdev-{name}" for name, wanted in asked if wanted is not None),
        )
    )

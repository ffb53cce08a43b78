"""Where the rules send a packet: a walk through the hooks. Pure. Knows the rules that `compile` writes.

Two differences to `services.route`, both kube-proxy's own:

- the node's packets to an external or load balancer address that is not on this node pass through OUTPUT alone, where
  nothing refuses them when there is no backend;
- a node port without a backend is refused on all of the node's addresses, also on those that do not serve node ports.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from clusterip.dataplane.flow import End, Flow, NotModelled, Ways, is_local, named, through, within
from clusterip.dataplane.iptables.compile import Piece
from clusterip.dataplane.iptables.config import Config
from clusterip.dataplane.iptables.program import complete
from clusterip.dataplane.node import Host as Host
from clusterip.rulesets.iptables import Match, Rule, Ruleset, match_text, parse, rule_text
from clusterip.rulesets.iptables import values as v
from clusterip.services.route import Outcomes, Packet


def outcomes(pieces: Iterable[Piece], config: Config, packet: Packet, host: Host) -> Outcomes:
    """Every outcome that the first packet of a connection may have."""
    return walk(program(pieces, config), packet, host)


def program(pieces: Iterable[Piece], config: Config) -> Ruleset:
    """The rules as values."""
    return parse(complete(pieces, config))


def walk(ruleset: Ruleset, packet: Packet, host: Host) -> Outcomes:
    """`outcomes` for rules at hand. Raises NotModelled."""
    return frozenset(through(_Walker(ruleset, host).hook, packet, host))


class _Walker:
    def __init__(self, ruleset: Ruleset, host: Host) -> None:
        self.ruleset = ruleset
        self.host = host
        self.table = ""  # that of the hook being walked
        self.remembers = _remembers(ruleset)

    def hook(self, table: str, name: str, flow: Flow) -> Ways:
        self.table = table
        # A list, because the table is that of the innermost hook: walk this one to its end before another begins.
        return list(self._from(self.ruleset.rules(table, name.upper()), 0, flow))

    def _from(self, rules: Sequence[Rule], first: int, flow: Flow) -> Iterator[tuple[End, Flow]]:
        for index in range(first, len(rules)):
            may, must = self._meets(rules[index], flow)
            if may:
                if not must:
                    yield from self._from(rules, index + 1, flow)
                yield from self._act(rules, index, flow)
                return
        yield End.FELL_THROUGH, flow

    def _act(self, rules: Sequence[Rule], index: int, flow: Flow) -> Iterator[tuple[End, Flow]]:
        """What the rule at `index` does with a packet that meets it, and what comes after."""
        match rules[index].target:
            case None:
                yield from self._from(rules, index + 1, flow)
            case v.Accept():
                yield End.ACCEPT, flow
            case v.Drop():
                yield End.DROP, flow
            case v.Reject():
                yield End.REJECT, flow
            case v.Return():
                yield End.FELL_THROUGH, flow
            case v.SetMark(value, mask):
                yield from self._from(rules, index + 1, replace(flow, mark=(flow.mark & ~mask) ^ value))
            case v.Masquerade():
                yield End.ACCEPT, replace(flow, masqueraded=True)
            case v.DNAT(to):
                address, _, port = to.rpartition(":")
                yield End.ACCEPT, replace(flow, address=address.strip("[]"), port=int(port), rewritten=True)
            case v.Jump(chain):
                for end, inner in self._from(self.ruleset.rules(self.table, chain), 0, flow):
                    if end is End.FELL_THROUGH:
                        yield from self._from(rules, index + 1, inner)
                    else:
                        yield end, inner
            case v.Goto() | v.SNAT() | v.OtherTarget():
                raise NotModelled(f"rule {rule_text(rules[index])!r}: its target is not one that the proxy writes")

    def _meets(self, rule: Rule, flow: Flow) -> tuple[bool, bool]:
        """Whether the packet may meet the rule, and whether it must."""
        must = True
        for match in rule.matches:
            answer = self._answer(match, flow)
            if answer is False:
                return False, False
            must = must and answer is True
        return True, must

    def _answer(self, match: Match, flow: Flow) -> bool | None:
        """None: it may be so or not."""
        packet = flow.packet
        match match:
            case v.Source(network, negated):
                return within(packet.source_address, network) != negated
            case v.Destination(network, negated):
                return within(flow.address, network) != negated
            case v.InInterface(pattern, negated):
                return named(flow.interface, pattern, "+") != negated
            case v.IPProtocol(name, negated):
                return (packet.protocol.lower() == name) != negated
            case v.Comment() | v.NfAcct():
                return True
            case v.ConnState(states, negated):
                return bool({"NEW", "DNAT" if flow.rewritten else "NEW"} & set(states)) != negated
            case v.Mark(value, mask, negated):
                return (flow.mark & mask == value) != negated
            case v.Random(numerator, False):
                return {0: False, 2**31: True}.get(numerator)
            case v.Recent(action, name):
                return action == "set" or self.remembers[name] == str(packet.remembered)
            case v.AddrType(source, destination, False, False, "") if {source, destination} <= {"", "LOCAL"}:
                asked = (packet.source_address if source else "", flow.address if destination else "")
                return all(is_local(address, self.host) for address in asked if address)
            case v.Ports(protocol, None, destination, flag_mask="") if destination:
                fits = destination.first <= flow.port <= destination.last
                return protocol == packet.protocol.lower() and fits != match.destination_negated
            case v.Ports(protocol, None, None, flag_mask=""):
                return protocol == packet.protocol.lower()
            case _:
                raise NotModelled(f"match {match_text(match)!r}: not one that the proxy writes")


def _remembers(ruleset: Ruleset) -> dict[str, str]:
    """The backend whose clients a list holds, by the list's name."""
    found: dict[str, str] = {}
    for rule in (r for table in ruleset for chain in table.chains.values() for r in chain.rules):
        if isinstance(rule.target, v.DNAT):
            found |= {m.name: rule.target.to for m in rule.matches if isinstance(m, v.Recent)}
    return found

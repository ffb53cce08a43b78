"""One question, one answer: where does this packet go, with which probability, by which rule; and how does the
answer come back.
"""

from contextlib import suppress
from functools import cached_property

from msgspec.structs import replace

from clusterip.diagnosis.answer import OverFamily, Trace
from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.frontends import Frontend, frontends
from clusterip.diagnosis.node import asked_by, surroundings
from clusterip.diagnosis.outcomes import outcome, reached, steps, verdict
from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.question import Client, Target, client, families, target
from clusterip.diagnosis.remarks import remarks
from clusterip.diagnosis.reply import way_back
from clusterip.diagnosis.sentences import owner, reason, service
from clusterip.diagnosis.sockets import Chosen, chosen, through
from clusterip.diagnosis.tracked import tracked
from clusterip.diagnosis.walk.branch import Branch, End
from clusterip.diagnosis.walk.hooks import Hooks
from clusterip.diagnosis.walk.programs import Kept, programs
from clusterip.diagnosis.walk.surroundings import Surroundings
from clusterip.diagnosis.walked import Walked
from clusterip.errors import BadInput
from clusterip.services.table import Family


class Tracer:
    """Answers questions about one node. What it learns of large chains it keeps, so later answers are quick."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._kept = Kept()

    @cached_property
    def frontends(self) -> tuple[Frontend, ...]:
        return frontends(self.facts)

    @cached_property
    def _known(self) -> Surroundings:
        return surroundings(self.facts, self.frontends)

    def ask(self, source: str, destination: str, interface: str | None = None, family: Family | None = None) -> Trace:
        """In people's notation. Raises BadInput."""
        answer = self.trace(*self.asked(source, destination, interface, family))
        return replace(answer, other_families=self.other_families(source, destination, interface, family))

    def asked(
        self, source: str, destination: str, interface: str | None = None, family: Family | None = None
    ) -> tuple[Client, Target]:
        """What people's notation means; `family` counts for names, without it the Service's own first one does.
        Raises BadInput."""
        first = families(source, destination, self.facts, self.frontends)[0]
        to = target(destination, self.facts, self.frontends, ipv6=(family or first) == "IPv6")
        if family and (":" in to.address) != (family == "IPv6"):
            raise BadInput(f"destination {destination!r}: is no {family} address", hint="leave out --family")
        asks = client(source, self.facts, ipv6=":" in to.address, interface=interface)
        if asks.address and (":" in asks.address) != (":" in to.address):
            hint = "name addresses of one family, or the Service and the pod by their names"
            raise BadInput(f"{asks.address} cannot send to {to.address}: the one is IPv4, the other IPv6", hint=hint)
        return asks, to

    def other_families(
        self, source: str, destination: str, interface: str | None = None, family: Family | None = None
    ) -> tuple[OverFamily, ...]:
        """What becomes of the question over the families that were not asked for: where the client has an address of
        it, and rules of it are known."""
        found = []
        for other in () if family else families(source, destination, self.facts, self.frontends)[1:]:
            with suppress(BadInput):
                over = self.trace(*self.asked(source, destination, interface, other))
                if _told(self.facts, over.packet):
                    found.append(OverFamily(other, over.verdict, over.reason, over.answers))
        return tuple(found)

    def trace(self, source: Client, to: Target) -> Trace:
        walked = self.walk(source, to)
        return told(walked)

    def walk(self, source: Client, to: Target) -> Walked:
        if given := self.given(source, to):
            return through(self.by_rules, source, self._asked(source, to), given)
        return self.by_rules(source, to)

    def given(self, source: Client, to: Target) -> Chosen | None:
        """What the maps of eBPF mode have for the socket that asks; None: they leave it to the rules."""
        return chosen(self.facts, source, self._asked(source, to))

    def _asked(self, source: Client, to: Target) -> Packet:
        return _packet(source, to, asked_by(self._known, source))

    def by_rules(self, source: Client, to: Target) -> Walked:
        """Of a packet that leaves its socket as it was asked for."""
        known = asked_by(self._known, source)
        has = programs(self.facts, known, self._kept, ipv6=":" in to.address)
        packet = _packet(source, to, known)
        entry = tracked(self.facts, packet)
        if entry:
            packet = replace(
                packet,
                state=entry.state,
                destination_rewritten=entry.translation.destination is not None,
                source_rewritten=entry.translation.source is not None,
                ct_mark=entry.entry.mark,
            )
        hooks = Hooks(has.chains, known, _forwards(self.facts, packet), entry.translation if entry else None)
        if entry or _told(self.facts, packet):
            ended = hooks.from_node(packet) if source.kind == "node" else hooks.arriving(packet)
        else:
            ended = [(End.LOST, Branch(packet, note=f"no rules for IPv{6 if packet.ipv6 else 4} are in the input"))]
        found, granted = reached(ended)
        best = next((r for r in found if r.verdict == "delivered"), None)
        back = way_back(hooks, source, packet, best.branch.packet) if best else None
        return Walked(self.facts, self.frontends, source, packet, has, hooks, entry, tuple(found), tuple(granted), back)


def told(walked: Walked) -> Trace:
    outcomes = tuple(outcome(one, steps(one.branch, walked.programs)) for one in walked.found)
    return Trace(
        packet=walked.packet,
        verdict=verdict(walked.found),
        reason=reason(walked.found, walked.packet, walked.frontends) + _answered(walked),
        steps=outcomes[0].steps,
        outcomes=outcomes,
        reply=steps(walked.back.branch, walked.programs) if walked.back else (),
        findings=tuple(sorted(remarks(walked), key=lambda finding: finding.rank)),
        service=service(walked.packet, walked.frontends),
        answers=owner(walked.facts, walked.hooks.surroundings, walked.packet.destination) != "",
    )


def _answered(walked: Walked) -> str:
    """What a sentence about delivery must not leave out."""
    back = walked.back
    if back is None or verdict(walked.found) != "delivered":
        return ""
    if back.direct:
        return "; but the answer goes past this node, and the client refuses it"
    stopped = {End.DROP: "dropped", End.REJECT: "rejected"}.get(back.end)
    return f"; but the answer is {stopped} on its way back" if stopped else ""


def _packet(source: Client, to: Target, known: Surroundings) -> Packet:
    if source.kind == "node":
        return Packet(
            protocol=to.protocol,
            source=source.address or known.source(to.address),
            source_port=source.port,
            destination=to.address,
            destination_port=to.port,
            in_interface="",
        )
    return Packet(
        protocol=to.protocol,
        source=source.address,
        source_port=source.port,
        destination=to.address,
        destination_port=to.port,
        in_interface=known.interface(source.address) if source.interface is None else source.interface,
        out_interface="",
    )


def _told(facts: Facts, packet: Packet) -> bool:
    """Whether rules of its family were given: that others say nothing of it is no answer."""
    families = {"inet", "ip6" if packet.ipv6 else "ip"}
    listed = any(table.family in families for given in facts.nft for table in given.ruleset)
    return listed or facts.ipvs is not None or any(r.ipv6 == packet.ipv6 for r in facts.iptables)


def _forwards(facts: Facts, packet: Packet) -> bool | None:
    """None: not known."""
    name = "net.ipv6.conf.all.forwarding" if packet.ipv6 else "net.ipv4.ip_forward"
    value = facts.settings.number(name)
    return None if value is None else value != 0

"""Loads drawn rules into the topology's node, sends a packet, and brings back what the kernel did beside the model."""

import socket
from contextlib import ExitStack
from typing import Literal, NamedTuple, TypeAlias

from hypothesis import note
from tests.model_is_kernel import foreign
from tests.model_is_kernel import services as drawn
from tests.model_is_kernel.foreign import Firewall
from tests.model_is_kernel.services import Service
from tests.model_is_kernel.topology import Source, Topology, run

from clusterip.diagnosis import facts, question
from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.observed import Observation, observe
from clusterip.diagnosis.outcomes import outcome, steps
from clusterip.diagnosis.question import client
from clusterip.diagnosis.trace import Tracer
from clusterip.kernel import probe, trace
from clusterip.kernel.netlink import Netlink, netfilter
from clusterip.kernel.probe import Target
from clusterip.rulesets import recognise
from clusterip.rulesets.traced import Traced

_CONNTRACK, _DELETE = 1, 2  # the subsystem of netfilter, and its command
Program: TypeAlias = Literal["iptables-nft", "iptables-legacy", "nft"]
IPTABLES: tuple[Program, ...] = ("iptables-nft", "iptables-legacy")
NONE = foreign.text({}, Firewall())


class Rules(NamedTuple):
    services: tuple[Service, ...]
    by: Program  # who holds the Services' rules
    firewall: Firewall
    firewall_by: Program
    nft_firewall: str  # "": none

    def text(self, program: Program) -> str:
        """What its own tool loads; "": nothing is there to load."""
        if program == "nft":
            return (drawn.nft(self.services) if self.by == "nft" else "") + self.nft_firewall
        if program not in (self.by, self.firewall_by):
            return ""
        tables = drawn.iptables(self.services) if program == self.by else {}
        return foreign.text(tables, self.firewall if program == self.firewall_by else Firewall())


class Packet(NamedTuple):
    source: Source
    target: Target


class Bench:
    """A topology with the rules of the last draw in it, and one ear for all traces."""

    def __init__(self, at: Topology, stack: ExitStack) -> None:
        self.at = at
        self.node = at.netns("node")
        run(self.node, "iptables-legacy-restore", stdin=NONE)  # tables that are there when the listener looks
        run(self.node, "ipset", "restore", stdin=foreign.IPSETS)
        self._filled = False  # iptables-legacy
        self.listener = stack.enter_context(trace.listening(self.node))
        assert not self.listener.missing
        host = {
            "ipset": ("ipset", "save"),
            "addr": ("ip", "addr"),
            "route": ("ip", "route"),
            "sysctl": ("sysctl", "net.ipv4.ip_forward"),
        }
        self._host = [recognise.read(name, run(self.node, *argv).encode()) for name, argv in host.items()]

    def load(self, wanted: Rules) -> Facts:
        """Put the rules in place of the last ones; the facts are what the kernel lists then."""
        texts: dict[Program, str] = {p: wanted.text(p) for p in ("nft", *IPTABLES)}
        for program, text in texts.items():
            note(f"--- {program}\n{text}")
        run(self.node, "nft", "-f", "-", stdin=f"flush ruleset\n{texts['nft']}")
        if texts["iptables-nft"]:
            run(self.node, "iptables-nft-restore", stdin=texts["iptables-nft"])
        if texts["iptables-legacy"] or self._filled:  # `nft flush ruleset` leaves it alone
            run(self.node, "iptables-legacy-restore", stdin=texts["iptables-legacy"] or NONE)
        self._filled = bool(texts["iptables-legacy"])
        listed = {p: ("nft", "list", "ruleset") if p == "nft" else (f"{p}-save",) for p in texts if texts[p]}
        read = [recognise.read(p, run(self.node, *argv).encode()) for p, argv in listed.items()]
        return facts.merge([*self._host, *read])

    def send(self, packet: Packet, tracer: Tracer) -> Observation:
        with probe.ready(self.at.netns(packet.source.place), packet.target) as ready:
            self.at.arrived()
            self.listener.forget()
            self._forget_connections()
            with trace.armed(self.node, ready.flow):
                ready.send(0.002)
                self.at.answer()
                self.listener.wait(0.02, quiet=0.002)
            events, landed = self.listener.events(ready.flow), self.at.arrived()
        to = packet.target
        sender = client(packet.source.asked, tracer.facts)
        walked = tracer.walk(sender, question.Target(to.protocol, to.address, to.port))
        outcomes = [outcome(one, steps(one.branch, walked.programs)) for one in walked.found]
        assert all(one.verdict != "unknown" for one in outcomes), [one.reason for one in outcomes]
        seen = observe(walked, outcomes, events, landed)
        if seen.difference:
            for told in events:
                note(line(told))
            for one in outcomes:
                note(f"model: {one.verdict} {one.backend} {one.source} {one.probability} {one.when} {one.reason}")
            note(f"kernel: {seen.verdict} {seen.backend} {seen.source}, landed {landed}")
        return seen

    def _forget_connections(self) -> None:
        """Ports come again: what is asked of the model is a new connection."""
        with Netlink(self.node) as link:
            assert link.tell([netfilter(_CONNTRACK, _DELETE, socket.AF_INET)]) == [0]


def line(told: Traced) -> str:
    where = f"{told.program} {told.hook} {told.table} {told.chain} {told.kind} {told.rule} {told.verdict}"
    return f"{where} [{'>'.join(told.headers[:2])} {told.in_interface} {told.out_interface} mark {told.mark:#x}]"

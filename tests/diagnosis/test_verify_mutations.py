"""Whatever one changes in the rules: if it changes what becomes of a packet it is found, and the packet shows it."""

import re
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.dataplane.strategies import V4, Pool, tables
from tests.diagnosis.test_verify import assumed, program, settled, told
from tests.examples import share

from clusterip.dataplane.iptables import Config
from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.outcomes import Reached, reached
from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.verify.premises import Premises
from clusterip.diagnosis.verify.premises import settled as around
from clusterip.diagnosis.verify.report import Witness
from clusterip.diagnosis.verify.verify import verify_table
from clusterip.diagnosis.walk.hooks import Hooks
from clusterip.diagnosis.walk.programs import programs
from clusterip.rulesets.iptables import parse
from clusterip.services.notation import destination
from clusterip.services.route import Delivered, Dropped, Outcome, Passed, Rejected, Source, route
from clusterip.services.route import Packet as Asked
from clusterip.services.table import Entry, PortName

KINDS = {kind.value: kind for kind in Source}
SHARE_SEEN = Fraction(1, 1 << 29)  # a difference in shares that nobody takes for rounding


# --- what one can do to rules ---------------------------------------------------------------------------------------


def mutated(draw: st.DrawFn, text: str) -> str:
    lines = text.splitlines()
    rules = [n for n, line in enumerate(lines) if line.startswith("-A ")]
    at = draw(st.sampled_from(rules))
    match draw(st.sampled_from(["drop", "change", "chain", "before", "swap"])):
        case "drop":
            del lines[at]
        case "change":
            changes = list(_changes(lines[at]))
            lines[at] = draw(st.sampled_from(changes)) if changes else lines[at]
        case "chain":
            chain = draw(st.sampled_from([line.split()[0][1:] for line in lines if line.startswith(":KUBE-")]))
            lines = [line for line in lines if not re.search(rf"(^:|^-A |-j ){chain}( |$)", line)]
        case "before":
            lines.insert(lines.index("*filter") + 1, draw(st.sampled_from(list(_drops()))))
        case "swap":
            table = max(n for n, line in enumerate(lines[:at]) if line.startswith("*"))
            alike = [n for n in rules if lines[n].split()[1] == lines[at].split()[1]]
            end = next(n for n, line in enumerate(lines) if n > at and line == "COMMIT")
            other = draw(st.sampled_from([n for n in alike if table < n < end]))
            lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines) + "\n"


def _changes(rule: str) -> Iterator[str]:
    """The rule with one number of it another."""
    for pattern, replacement in (
        (r"10\.244\.1\.2\b", "10.244.1.7"),
        (r"10\.244\.1\.2\b", "10.244.2.2"),
        (r"--dport 80\b", "--dport 81"),
        (r"--dport \d+", "--dport 1:65535"),
        (r":8080$", ":80"),
        (r"--probability 0\.5\d*", "--probability 0.25"),
        (r"--probability 0\.\d+", "--probability 0.9"),
        (r"10\.244\.0\.0/16", "10.244.0.0/23"),
        (r"10\.244\.0\.0/16", "0.0.0.0/0"),
        (r"203\.0\.113\.0/24", "203.0.113.0/25"),
        (r"0x4000/0x4000", "0x8000/0x8000"),
        (r"! -s", "-s"),
        (r"-p tcp", "-p udp"),
        (r"-j DROP", "-j REJECT"),
        (r"-j REJECT --reject-with \S+", "-j DROP"),
        (r"-j KUBE-MARK-MASQ", "-j RETURN"),
        (r"--dst-type LOCAL", "--dst-type UNICAST"),
        (r"--seconds \d+", "--seconds 60"),
    ):
        if (changed := re.sub(pattern, replacement, rule, count=1)) != rule:
            yield changed


def _drops() -> Iterator[str]:
    for chain in ("FORWARD", "INPUT", "OUTPUT"):
        for what in ("-d 10.244.1.2/32", "-s 10.244.1.0/24", "-s 203.0.113.0/24 -p tcp", "-i wg0", "-p udp --dport 80"):
            yield f"-A {chain} {what} -j DROP"


# --- packet by packet -----------------------------------------------------------------------------------------------


class Node:
    """Asks of single packets what becomes of them, by the table and by the rules."""

    def __init__(self, facts: Facts, table: list[Entry], premises: Premises) -> None:
        surroundings = around(facts, premises)
        self.hooks = Hooks(programs(facts, surroundings, ipv6=False).chains, surroundings)
        self.table = table
        self.policy = premises.policy(ipv6=False)
        self.pod_interface = premises.pod_interface.replace("+", "0") or "cip0"

    def differs(self, packet: Asked, interface: str = "") -> bool:
        """Beyond rounding, and beyond what kube-proxy does otherwise on purpose."""
        wanted = route(self.table, packet, self.policy)
        came_in = {Source.NODE: "", Source.POD: self.pod_interface, Source.OUTSIDE: "eth0"}[packet.source]
        walked = Packet(
            protocol=packet.protocol.lower(),
            source=packet.source_address,
            destination=packet.address,
            destination_port=packet.port,
            in_interface=interface or came_in,
            out_interface="",
        )
        ended = self.hooks.from_node(walked) if packet.source is Source.NODE else self.hooks.arriving(walked)
        shares: dict[Outcome | str, Fraction] = {}
        for one in reached(ended)[0]:
            if not one.remembered:
                shares[_outcome(one)] = shares.get(_outcome(one), Fraction(0)) + one.branch.probability
        if wanted == {Passed()}:
            return any(isinstance(o, Delivered) for o in shares)
        delivered = any(isinstance(o, Delivered) for o in wanted)
        if packet.source is Source.NODE and not delivered and shares.keys() == {Passed()}:
            own = any(packet.address == e.cluster_ip for e in self.table)
            return own or packet.address in self.policy.node_port_addresses
        if shares.keys() != wanted:
            return True
        return any(abs(share - Fraction(1, len(wanted))) > SHARE_SEEN for share in shares.values())


def _outcome(one: Reached) -> Outcome | str:
    packet = one.branch.packet
    match one.verdict:
        case "delivered":
            return Delivered(packet.destination, packet.destination_port, packet.source_rewritten)
        case "passed":
            return Passed()
        case "rejected":
            return Rejected()
        case "dropped":
            return Dropped()
        case "unknown":
            return one.branch.note


def asked(table: list[Entry], pool: Pool, premises: Premises) -> Iterator[Asked]:
    """For every frontend and a port beside it, from clients of every kind, the backends of this node among them."""
    own = sorted(premises.policy(ipv6=False).node_port_addresses)
    clients = [(Source.POD, a) for a in (*pool.pods, "10.244.200.9") if premises.detects_pods]
    clients += [(Source.NODE, pool.node_ip), *((Source.OUTSIDE, a) for a in pool.outside), (Source.OUTSIDE, "8.8.8.8")]
    for entry in table:
        for frontend in entry.frontends():
            for address in [frontend.address] if frontend.address else own:
                for source, sender in clients:
                    yield Asked(source, sender, address, frontend.port, frontend.protocol)
                    yield Asked(source, sender, address, 9999, frontend.protocol)


def replayed(witness: Witness) -> Asked:
    kind, _, address = witness.source.partition(":")
    to = destination(witness.destination)
    return Asked(KINDS[kind], address, to.address, to.port, to.protocol)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Entry], Config, str]:
    table = list(draw(tables(V4)).values())
    config = draw(settled(V4))
    return table, config, mutated(draw, program(*table, config=config))


@settings(max_examples=share(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_a_change_that_a_packet_can_tell_is_found_and_every_witness_shows_it(
    case: tuple[list[Entry], Config, str],
) -> None:
    table, config, text = case
    facts, premises = told(text), assumed(config, V4)
    node = Node(facts, table, premises)
    found = verify_table(facts, table, premises, ipv6=False)
    told_apart = [packet for packet in asked(table, V4, premises) if node.differs(packet)]
    if told_apart:
        assert found.verdict == "different", told_apart[0]
    for difference in found.differences:
        if difference.kind != "affinity":
            assert node.differs(replayed(difference.witness), difference.witness.interface), difference
    assert not found.unproven


def test_the_text_that_is_mutated_loads() -> None:
    assert parse(program())


@pytest.mark.parametrize("chain", ["PREROUTING", "OUTPUT"])
def test_rules_that_are_never_reached_leave_every_frontend_missing(chain: str) -> None:
    name = PortName("default", "web", "")
    entry = Entry(name, "IPv4", "TCP", 80, "10.96.0.10", cluster=V4.backends[:1], has_backends=True)
    config = Config(node_ip=V4.node_ip)
    lines = program(entry, config=config).splitlines()
    text = "\n".join(line for line in lines if not line.startswith(f"-A {chain} "))
    premises = assumed(config, V4)
    found = verify_table(told(text + "\n"), [entry], premises, ipv6=False)
    assert {d.kind for d in found.differences} == {"missing"}
    assert {d.clients for d in found.differences} == {"the node" if chain == "OUTPUT" else "outside"}

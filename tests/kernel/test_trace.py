"""The kernel's own trace of one packet, in a real namespace."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.model_is_kernel.topology import CLIENT, NODE_IP, ONE, REMOTE, Topology, run, topology

from clusterip.errors import BadInput
from clusterip.kernel import netns, nflog, probe, trace
from clusterip.kernel.probe import Target
from clusterip.rulesets.traced import Headers, Traced, merged

pytestmark = pytest.mark.kernel

RULES = f"""*mangle
:PREROUTING ACCEPT [0:0]
-A PREROUTING -d 10.96.0.20/32 -j MARK --set-xmark 0x8/0x8
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:SERVICES - [0:0]
-A PREROUTING -j SERVICES
-A OUTPUT -j SERVICES
-A POSTROUTING -s 192.0.2.0/24 -j MASQUERADE
-A SERVICES -d 10.96.0.21/32 -j RETURN
-A SERVICES -d 10.96.0.20/32 -p tcp -m tcp --dport 80 -j DNAT --to-destination {ONE}:8080
-A SERVICES -d 10.96.0.20/32 -p udp -m udp --dport 53 -j DNAT --to-destination {ONE}:5353
COMMIT
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -d 10.244.1.9/32 -j REJECT --reject-with icmp-port-unreachable
COMMIT
"""
LOGGER = Path("/proc/sys/net/netfilter/nf_log/2")


@pytest.fixture(scope="module")
def at() -> Iterator[Topology]:
    with topology() as made:
        yield made


@pytest.fixture(params=["nft", "legacy"])
def variant(request: pytest.FixtureRequest, at: Topology) -> Iterator[str]:
    node = at.netns("node")
    run(node, f"iptables-{request.param}-restore", stdin=RULES)
    yield request.param
    run(node, "nft", "flush", "ruleset")
    for table in ("filter", "nat", "mangle"):
        run(node, "iptables-legacy", "-t", table, "-F")


def seen(at: Topology, place: str, target: Target) -> tuple[tuple[Traced, ...], probe.Answer, Headers]:
    node = at.netns("node")
    with probe.ready(at.netns(place), target) as ready, trace.listening(node) as listener:
        with trace.armed(node, ready.flow):
            answer = ready.send(0.2)
            listener.wait(0.5)
        return listener.events(ready.flow), answer, ready.flow


def told(events: tuple[Traced, ...]) -> list[tuple[str, str, str, int | None]]:
    return [(e.hook, e.table, e.chain, e.rule) for e in events if e.kind == "rule"]


def test_the_rules_that_a_packet_met_are_told_in_order(at: Topology, variant: str) -> None:
    events, answer, _ = seen(at, "client", Target("tcp", "10.96.0.20", 80))
    assert told(events) == [
        ("prerouting", "mangle", "PREROUTING", 0),
        ("prerouting", "nat", "PREROUTING", 0),
        ("prerouting", "nat", "SERVICES", 1),
    ]
    assert {event.program for event in events} >= {variant}
    assert events[-1].headers.destination == ONE
    assert answer.kind == "connected"


def test_a_mark_is_told(at: Topology, variant: str) -> None:
    events, _, _ = seen(at, "client", Target("tcp", "10.96.0.20", 80))
    assert {event.mark for event in events if event.hook != "prerouting"} == {8}


def test_a_packet_of_the_node_is_told_from_where_it_is_sent(at: Topology, variant: str) -> None:
    events, answer, flow = seen(at, "node", Target("udp", "10.96.0.20", 53))
    assert told(events)[:2] == [("output", "nat", "OUTPUT", 0), ("output", "nat", "SERVICES", 2)]
    assert flow.source == NODE_IP
    assert [event.hook for event in events] == sorted((e.hook for e in events), key=("output", "postrouting").index)
    assert answer.kind in ("answered", "silence")  # nobody answers here; a refusal would be wrong


def test_a_refused_packet_ends_with_the_rule_that_refused_it(at: Topology, variant: str) -> None:
    events, answer, _ = seen(at, "client", Target("udp", "10.244.1.9", 5353))
    assert told(events)[-1] == ("forward", "filter", "FORWARD", 0)
    assert answer.kind == "refused"


def test_an_echo_request_is_traced_too(at: Topology, variant: str) -> None:
    events, answer, flow = seen(at, "client", Target("icmp", REMOTE))
    assert answer.kind == "answered"
    assert flow.protocol == "icmp"
    assert {event.hook for event in events} >= {"prerouting", "postrouting"}


def test_only_the_packet_that_was_armed_for_is_traced(at: Topology, variant: str) -> None:
    node = at.netns("node")
    target = Target("udp", "10.96.0.20", 53)
    with (
        probe.ready(at.netns("client"), target) as mine,
        probe.ready(at.netns("client"), target) as other,
        trace.listening(node) as listener,
        trace.armed(node, mine.flow),
    ):
        other.send(0.05)
        listener.wait(0.1)
        assert listener.events(other.flow) == ()
        mine.send(0.05)
        listener.wait(0.5)
        once = listener.events(mine.flow)
        mine.send(0.05)  # a second datagram of the same flow
        listener.wait(0.1)
        assert listener.events(mine.flow) == once != ()


def test_nothing_is_left_behind(at: Topology, variant: str) -> None:
    node = at.netns("node")
    before = everything(node)
    seen(at, "client", Target("tcp", "10.96.0.20", 80))
    assert everything(node) == before


KILLED = """
import sys, time
from clusterip.kernel import trace
from clusterip.rulesets.traced import Headers
with trace.listening(sys.argv[1]), trace.armed(sys.argv[1], Headers("10.244.1.7", "10.96.0.20", "tcp", 4000, 80)):
    print("armed", flush=True)
    time.sleep(60)
"""


def test_nothing_is_left_behind_by_one_that_is_killed(at: Topology, variant: str) -> None:
    node = at.netns("node")
    before = everything(node)
    with subprocess.Popen((sys.executable, "-c", KILLED, node), stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "armed\n"
        assert everything(node) != before
        os.kill(running.pid, signal.SIGKILL)
    for _ in range(100):
        if everything(node) == before:
            return
        subprocess.run(("sleep", "0.05"), check=True)
    assert everything(node) == before


def everything(node: str) -> list[str]:
    """Rules of all programs without counters, and the logger."""
    with netns.inside(node):
        logger = LOGGER.read_text()
    lists = (("nft", "-s", "list", "ruleset"), ("iptables-nft-save",), ("iptables-legacy-save",))
    said = [line for argv in lists for line in run(node, *argv).splitlines() if not line.startswith("#")]
    return [logger, *(line.rsplit("[", 1)[0] if line.startswith(":") else line for line in said)]


def test_where_legacy_has_no_tables_the_logger_is_left_alone() -> None:
    with topology() as at:
        node = at.netns("node")
        with netns.inside(node):
            before = LOGGER.read_text()
        assert nflog.tables(node, ipv6=False) == ()
        with trace.listening(node) as listener, netns.inside(node):
            assert LOGGER.read_text() == before
            assert listener.legacy is None


def test_a_second_listener_says_why_it_cannot_hear_legacy(at: Topology, variant: str) -> None:
    if variant == "legacy":
        with trace.listening(at.netns("node")), trace.listening(at.netns("node")) as second:
            assert "iptables-legacy cannot be traced" in second.missing


def test_a_source_that_is_not_there_is_refused(at: Topology) -> None:
    with (
        pytest.raises(BadInput, match=r"192\.0\.2\.9"),
        probe.ready(at.netns("client"), Target("tcp", "10.96.0.20", 80, "192.0.2.9")),
    ):
        pass


def test_what_nft_dropped_is_told_last_of_its_priority() -> None:
    def one(program: str, verdict: str, hook: str = "forward") -> Traced:
        headers = Headers(CLIENT, ONE, "tcp")
        return Traced(
            program=program,  # type: ignore[arg-type]
            family="ip",
            hook=hook,  # type: ignore[arg-type]
            priority=0,
            table="filter",
            chain="FORWARD",
            kind="rule",
            verdict=verdict,
            headers=headers,
        )

    first, dropped = one("nft", "accept", "prerouting"), one("nft", "drop")
    legacy = one("legacy", "")
    assert merged([first, dropped], [legacy]) == (first, legacy, dropped)
    accepted = one("nft", "accept")
    assert merged([first, accepted], [legacy]) == (first, accepted, legacy)

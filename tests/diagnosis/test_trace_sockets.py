"""eBPF mode: sockets are given a backend before there is a packet, and the answer says so."""

from dataclasses import replace

import pytest

from clusterip.dataplane.ebpf.compile import compile_entry
from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.delta import applied, load
from clusterip.dataplane.ebpf.document import describe
from clusterip.dataplane.ebpf.outcomes import EMPTY
from clusterip.diagnosis.answer import Trace
from clusterip.diagnosis.facts import merge
from clusterip.diagnosis.trace import Tracer
from clusterip.rulesets import recognise
from clusterip.rulesets.socketmaps import text
from clusterip.services.table import Backend, Entry, PortName

# Beneath: an address that nobody has is refused, and one backend's packets are dropped by a rule of the host's.
RULES = """
table ip filter {
	chain forward {
		type filter hook forward priority filter; policy accept;
		ip daddr 10.96.0.0/16 reject
		ip daddr 10.244.2.9 drop
	}
}
"""
ENTRY = Entry(
    PortName("default", "web", "http"),
    "IPv4",
    "TCP",
    80,
    "10.96.0.20",
    node_port=30080,
    cluster=(Backend("10.244.1.2", 8080, True), Backend("10.244.2.2", 8080)),
    has_backends=True,
)


def ask(
    entry: Entry,
    source: str = "pod:10.244.1.9",
    destination: str = "10.96.0.20:80",
    hooks: tuple[str, ...] | None = None,
    lost: int = 0,
) -> Trace:
    """Of files, as a bundle holds them. `lost`: slots that somebody has taken out of the maps."""
    maps = applied(EMPTY, load([compile_entry(entry, Config(entry.family))], EMPTY).steps)
    maps = {**maps, "slots": dict(sorted(maps["slots"].items())[lost:])}
    files = {"nft.txt": RULES, "ebpf-maps.json": text(describe([maps], {}, hooks))}
    return Tracer(merge(recognise.read(n, data.encode()) for n, data in files.items())).ask(source, destination)


@pytest.mark.parametrize("source", ["pod:10.244.1.9", "node:192.168.50.11"])
def test_each_backend_has_its_share_and_no_rule_is_asked_for_the_service(source: str) -> None:
    answer = ask(ENTRY, source)
    assert [(o.verdict, o.backend, str(o.probability)) for o in answer.outcomes] == [
        ("delivered", "10.244.1.2:8080", "1/2"),
        ("delivered", "10.244.2.2:8080", "1/2"),
    ]
    assert answer.verdict == "delivered"
    assert (answer.steps[0].hook, answer.steps[0].effect) == ("socket", "connect 10.244.1.2:8080")
    assert answer.steps[0].packet_before.destination == "10.96.0.20"
    assert answer.steps[1].packet_before.destination == "10.244.1.2"
    assert (answer.reply[-1].hook, answer.reply[-1].effect) == ("socket", "getpeername 10.96.0.20:80")


def test_a_packet_from_outside_meets_no_socket() -> None:
    answer = ask(ENTRY, "outside:203.0.113.9")
    assert "rejected" in {o.verdict for o in answer.outcomes}
    assert "socket" not in {step.hook for o in answer.outcomes for step in o.steps}


def test_what_the_maps_do_not_have_is_the_rules_to_answer() -> None:
    assert ask(ENTRY, destination="10.96.0.20:81").steps[0].hook != "socket"
    assert ask(ENTRY, destination="10.96.0.20:80/udp").steps[0].hook != "socket"


def test_a_service_without_endpoints_is_refused_by_connect() -> None:
    answer = ask(replace(ENTRY, cluster=(), has_backends=False))
    assert answer.verdict == "rejected"
    assert "ECONNREFUSED" in answer.reason
    assert [f.id for f in answer.findings] == ["no-endpoints"]
    assert not answer.reply


@pytest.mark.parametrize("affinity", [0, 60])
def test_a_slot_that_is_not_there_refuses_whoever_draws_it(affinity: int) -> None:
    answer = ask(replace(ENTRY, affinity_seconds=affinity), lost=1)
    assert sorted((o.verdict, str(o.probability)) for o in answer.outcomes) == [
        ("delivered", "1/2"),
        ("rejected", "1/2"),
    ]
    assert answer.verdict == "rejected"
    assert "lacks slot 0 of 2" in answer.reason
    assert [(f.id, str(f.share)) for f in answer.findings] == [("ebpf-slot-missing", "1/2")]


def test_where_no_slot_is_there_all_are_refused() -> None:
    answer = ask(ENTRY, lost=2)
    assert (answer.verdict, answer.findings[0].id) == ("rejected", "ebpf-slot-missing")
    assert answer.findings[0].share == 1


def test_affinity_says_what_it_hangs_on() -> None:
    answer = ask(replace(ENTRY, affinity_seconds=60))
    assert {o.when for o in answer.outcomes} == {("the client is not remembered",)}
    assert answer.verdict == "delivered"


def test_a_node_port_on_loopback_is_the_nodes_alone() -> None:
    assert ask(ENTRY, "node", "127.0.0.1:30080").steps[0].hook == "socket"
    assert ask(ENTRY, destination="127.0.0.1:30080").steps[0].hook != "socket"


def test_a_rule_that_stops_packets_to_a_backend_is_found_behind_the_socket() -> None:
    dropped = replace(ENTRY, cluster=(Backend("10.244.1.2", 8080, True), Backend("10.244.2.9", 8080)))
    answer = ask(dropped)
    assert {(o.verdict, str(o.probability)) for o in answer.outcomes} == {("delivered", "1/2"), ("dropped", "1/2")}
    assert answer.verdict != "delivered"


def test_programs_that_are_not_attached_leave_it_to_the_rules() -> None:
    assert ask(ENTRY, hooks=("connect4", "connect6")).steps[0].hook == "socket"
    assert ask(ENTRY, hooks=("connect6", "getpeername4")).steps[0].hook != "socket"


UDP = replace(ENTRY, protocol="UDP", node_port=0)


@pytest.mark.parametrize(
    ("hooks", "found", "named"),
    [
        (None, [], True),
        (("connect4", "recvmsg4", "sendmsg4"), [], True),
        (("connect4", "recvmsg6", "sendmsg4"), ["ebpf-detached"], False),
    ],
)
def test_answers_to_datagrams_come_from_the_service_where_a_program_sees_to_it(
    hooks: tuple[str, ...] | None, found: list[str], named: bool
) -> None:
    answer = ask(UDP, destination="10.96.0.20:80/udp", hooks=hooks)
    assert answer.verdict == "delivered"
    assert [f.id for f in answer.findings if f.level == "E"] == found
    assert ("socket" in {step.hook for step in answer.reply}) is named


def test_a_stream_loses_no_more_than_the_name_of_its_peer() -> None:
    answer = ask(ENTRY, hooks=("connect4",))
    assert [f.id for f in answer.findings if f.level == "E"] == []
    assert "socket" not in {step.hook for step in answer.reply}

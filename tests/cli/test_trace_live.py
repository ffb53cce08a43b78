"""`clusterip trace --live`, on a node of its own with rules in both variants."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest
from click.testing import CliRunner
from tests.model_is_kernel.topology import CLIENT, ONE, TWO, Topology, run, topology

from clusterip.cli import trace, trace_live
from clusterip.cli.trace_live import Place
from clusterip.diagnosis.answer import to_json
from clusterip.diagnosis.facts import Facts, merge
from clusterip.diagnosis.observed import LiveTrace
from clusterip.diagnosis.trace import Tracer
from clusterip.errors import BadInput
from clusterip.kernel.snapshot import snapshot
from clusterip.rulesets import recognise

pytestmark = pytest.mark.kernel

RULES = f"""*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:SERVICES - [0:0]
:WEB - [0:0]
-A PREROUTING -j SERVICES
-A OUTPUT -j SERVICES
-A SERVICES -d 10.96.0.20/32 -p tcp -m tcp --dport 80 -j WEB
-A WEB -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination {ONE}:8080
-A WEB -p tcp -j DNAT --to-destination {TWO}:9090
COMMIT
*filter
:FORWARD ACCEPT [0:0]
-A FORWARD -d 10.96.0.21/32 -p tcp -j REJECT --reject-with icmp-port-unreachable
-A FORWARD -d 10.96.0.22/32 -j DROP
COMMIT
"""


@pytest.fixture(scope="module", params=["nft", "legacy"])
def at(request: pytest.FixtureRequest) -> Iterator[Topology]:
    with topology() as made:
        run(made.netns("node"), f"iptables-{request.param}-restore", stdin=RULES)
        yield made


def facts(at: Topology) -> Facts:
    return merge([recognise.read(s.name, s.output) for s in asyncio.run(snapshot(at.netns("node"))) if s.output])


def live(at: Topology, source: str, destination: str, known: Facts | None = None) -> LiveTrace:
    known = known or facts(at)
    asked = Tracer(known).asked(source, destination)
    return asyncio.run(trace_live.run(known, Place(at.netns("node"), at.prefix), *asked))


def said(answer: LiveTrace) -> str:
    return "\n".join(trace_live.lines(answer))


@pytest.mark.parametrize("source", [f"pod:{CLIENT}", "node", "outside:203.0.113.9"])
def test_model_and_kernel_agree_on_a_service(at: Topology, source: str) -> None:
    answer = live(at, source, "10.96.0.20:80")
    assert answer.live.observation.difference is None
    assert (answer.verdict, answer.source, answer.live.answer) == ("delivered", "observed", "connected")
    backend = answer.live.observation.backend
    assert backend in (f"{ONE}:8080", f"{TWO}:9090")
    assert answer.steps[-1].effect == f"dnat {backend}"
    assert "model and kernel agree" in said(answer)


def test_the_packet_is_seen_at_both_ends(at: Topology) -> None:
    answer = live(at, f"pod:{CLIENT}", "10.96.0.20:80")
    backend = answer.live.observation.backend
    syns = [(one.place.split()[0], one.text.split()[2]) for one in answer.live.captured if one.text.endswith("tcp SYN")]
    assert syns == [("client", "10.96.0.20:80"), ("backend", backend)]
    assert backend in answer.live.connection


def test_a_refusal_is_seen_with_the_rule_and_the_error_that_came_back(at: Topology) -> None:
    answer = live(at, f"pod:{CLIENT}", "10.96.0.21:80")
    assert (answer.verdict, answer.live.answer, answer.exit_status) == ("rejected", "refused", 1)
    assert "-d 10.96.0.21/32 -p tcp -j REJECT" in answer.reason
    assert any("icmp port unreachable" in one.text for one in answer.live.captured)
    assert answer.live.connection == ""


def test_a_drop_is_seen_with_its_rule(at: Topology) -> None:
    answer = live(at, f"pod:{CLIENT}", "10.96.0.22:80/udp")
    assert (answer.verdict, answer.live.answer, answer.exit_status) == ("dropped", "silence", 1)
    assert answer.steps[-1].rule == "-A FORWARD -d 10.96.0.22/32 -j DROP"


def test_where_model_and_kernel_differ_the_rule_is_named(at: Topology) -> None:
    known = facts(at)
    dumps = [run(at.netns("node"), f"iptables-{variant}-save") for variant in ("nft", "legacy")]
    stale = merge(
        [recognise.read("stale", d.replace("-A FORWARD -d 10.96.0.22/32 -j DROP\n", "").encode()) for d in dumps if d]
    )
    answer = live(at, f"pod:{CLIENT}", "10.96.0.22:80", replace(known, iptables=stale.iptables, nft=()))
    assert answer.live.observation.difference is not None
    assert "FORWARD" in answer.live.observation.difference.message
    assert "model and kernel differ" in said(answer)


def test_the_ruleset_is_the_same_before_and_after(at: Topology) -> None:
    node = at.netns("node")

    def everything() -> list[str]:
        lists = (("nft", "-s", "-a", "list", "ruleset"), ("iptables-nft-save",), ("iptables-legacy-save",))
        return [line.split("[")[0] for argv in lists for line in run(node, *argv).splitlines() if line[:1] != "#"]

    before = everything()
    live(at, f"pod:{CLIENT}", "10.96.0.20:80")
    assert everything() == before


def test_a_source_that_is_not_here_is_refused(at: Topology) -> None:
    with pytest.raises(BadInput, match="no network namespace here has this address") as refused:
        live(at, "outside:198.51.100.77", "10.96.0.20:80")
    assert "--live" in refused.value.hint


def test_a_packet_that_passes_elsewhere_is_not_judged(at: Topology) -> None:
    known = facts(at)
    asked = Tracer(known).asked(f"pod:{CLIENT}", f"{TWO}:8080")
    elsewhere = asyncio.run(trace_live.run(known, Place(at.netns("one"), at.prefix), *asked))
    assert (elsewhere.verdict, elsewhere.exit_status) == ("unknown", 2)
    assert "did not come by" in elsewhere.reason
    assert "cannot be compared" in said(elsewhere)


def test_json_has_all_that_a_modelled_trace_has(at: Topology) -> None:
    document = msgspec.json.decode(to_json(live(at, f"pod:{CLIENT}", "10.96.0.20:80")))
    assert (document["kind"], document["source"], document["verdict"]) == ("Trace", "observed", "delivered")
    assert {outcome["probability"] for outcome in document["outcomes"]} == {"1/2"}
    assert document["live"]["observation"]["steps"]


def test_files_and_a_kernel_at_once_are_refused() -> None:
    done = CliRunner().invoke(trace.command, ["node", "10.96.0.20:80", "--live", "--rules", "-"], input=RULES)
    assert isinstance(done.exception, BadInput)
    assert "--live asks a kernel" in done.exception.message

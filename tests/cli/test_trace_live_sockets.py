"""`clusterip trace --live` in eBPF mode: the packet leaves its socket for another destination than was asked for."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.dataplane.ebpf.entries import FAMILIES, VIP, VIP6, entry, everywhere
from tests.dataplane.ebpf.pods import NODE_IP, Node, four, node, six
from tests.model_is_kernel.topology import run

from clusterip.cli import trace_live
from clusterip.cli.inputs import SocketPlace, socket_maps
from clusterip.cli.trace_live import Place
from clusterip.diagnosis.facts import Facts, merge
from clusterip.diagnosis.observed import LiveTrace
from clusterip.diagnosis.trace import Tracer
from clusterip.kernel.snapshot import snapshot
from clusterip.rulesets import recognise
from clusterip.services.table import Family

pytestmark = pytest.mark.kernel

# Beneath: some chains for the packets to meet, and one backend that nobody may reach.
RULES = f"""
table inet test {{
	chain prerouting {{ type nat hook prerouting priority dstnat; policy accept; }}
	chain forward {{ type filter hook forward priority filter; policy accept; ip daddr {four("b2")} drop; }}
	chain output {{ type filter hook output priority filter; policy accept; ip daddr {four("b2")} drop; }}
}}
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Node]:
    with node(tmp_path) as made:
        run(made.namespace("node"), "nft", "-f", "-", stdin=RULES)
        yield made


def facts(lab: Node) -> Facts:
    said = [(s.name, s.output) for s in asyncio.run(snapshot(lab.namespace("node"))) if s.output.strip()]
    return merge(
        recognise.read(n, data) for n, data in (*said, ("ebpf-maps", socket_maps(SocketPlace(lab.place.directory))))
    )


def live(lab: Node, source: str, destination: str, known: Facts | None = None, cgroup: Path | None = None) -> LiveTrace:
    known = known or facts(lab)
    place = Place(lab.namespace("node"), lab.prefix, str(cgroup or lab.place.cgroup))
    return asyncio.run(trace_live.run(known, place, *Tracer(known).asked(source, destination)))


def said(answer: LiveTrace) -> str:
    return "\n".join(trace_live.lines(answer))


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_sockets_choice_is_a_step_and_model_and_kernel_agree(lab: Node, family: Family, protocol: str) -> None:
    asyncio.run(lab.serve(*everywhere(("b1",))))
    client, vip, b1 = (
        (six("client"), f"[{VIP6}]", f"[{six('b1')}]") if family == "IPv6" else (four("client"), VIP, four("b1"))
    )
    answer = live(lab, f"pod:{client}", f"{vip}:80/{protocol}")
    assert answer.live.observation.difference is None
    assert (answer.verdict, answer.source) == ("delivered", "observed")
    assert answer.live.answer in ("connected", "answered")
    assert answer.live.observation.backend == f"{b1}:8080"
    first = answer.steps[0]
    assert (first.hook, first.effect) == ("socket", f"connect {b1}:8080")
    assert first.packet_before.destination == vip.strip("[]")
    assert "model and kernel agree" in said(answer)
    assert any(f"> {b1}:8080 {protocol}" in one.text for one in answer.live.captured)


def test_a_process_of_the_node_is_served_too(lab: Node) -> None:
    asyncio.run(lab.serve(entry(pods=("b1",))))
    answer = live(lab, f"node:{NODE_IP}", f"{VIP}:80")
    assert (answer.verdict, answer.live.answer, answer.live.observation.difference) == ("delivered", "connected", None)
    assert answer.steps[0].hook == "socket"


def test_a_service_without_endpoints_is_refused_by_the_socket(lab: Node) -> None:
    asyncio.run(lab.serve(entry(pods=())))
    answer = live(lab, f"pod:{four('client')}", f"{VIP}:80")
    assert (answer.verdict, answer.live.answer, answer.exit_status) == ("rejected", "refused", 1)
    assert [(step.hook, step.effect) for step in answer.steps] == [("socket", "reject")]
    assert "no endpoints" in answer.reason
    assert answer.live.observation.difference is None


def test_a_rule_that_drops_what_the_socket_sends_is_named(lab: Node) -> None:
    asyncio.run(lab.serve(entry(pods=("b2",))))
    answer = live(lab, f"node:{NODE_IP}", f"{VIP}:80")
    assert (answer.verdict, answer.live.answer) == ("dropped", "silence")
    assert [step.hook for step in answer.steps] == ["socket", "output"]
    assert answer.steps[-1].rule == f"ip daddr {four('b2')} drop"
    assert answer.live.observation.difference is None


def test_a_backend_that_the_maps_did_not_have_is_a_difference(lab: Node) -> None:
    asyncio.run(lab.serve(entry(pods=("b2",))))
    stale = facts(lab)
    asyncio.run(lab.serve(entry(pods=("b1",))))
    answer = live(lab, f"pod:{four('client')}", f"{VIP}:80", stale)
    found = answer.live.observation.difference
    assert found is not None
    assert found.message == f"the socket was given {four('b1')}:8080, and the maps have {four('b2')}:8080"
    nothing = live(lab, f"pod:{four('client')}", f"{VIP}:80", replace(stale, sockets=None))
    assert nothing.live.observation.difference is not None
    assert "the maps have nothing for it" in said(nothing)


def test_a_refusal_at_the_socket_that_the_maps_do_not_explain_is_a_difference(lab: Node) -> None:
    asyncio.run(lab.serve(entry(pods=("b1",))))
    stale = facts(lab)
    asyncio.run(lab.serve(entry(pods=())))
    answer = live(lab, f"pod:{four('client')}", f"{VIP}:80", stale)
    assert answer.verdict == "rejected"
    assert "connect() was refused at the socket, and the maps have backends for it" in said(answer)


def test_a_socket_of_no_cgroup_that_is_served_is_a_difference(lab: Node) -> None:
    asyncio.run(lab.serve(entry(pods=("b1",))))
    answer = live(lab, f"pod:{four('client')}", f"{VIP}:80", cgroup=lab.place.cgroup.parent)
    assert answer.live.observation.difference is not None
    assert f"the socket kept {VIP}:80" in said(answer)
    assert answer.exit_status == 1

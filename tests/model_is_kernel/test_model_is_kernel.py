"""The model is the kernel: drawn Services and firewalls are loaded into a real namespace, packets are sent, and where
they land and what the kernel's own trace says of them is held against what the model says.

CLUSTERIP_DRAWS=5000 makes it a long run.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.model_is_kernel import foreign
from tests.model_is_kernel import services as drawn
from tests.model_is_kernel.bench import IPTABLES, Bench, Packet, Program, Rules
from tests.model_is_kernel.services import ADDRESSES, EXTERNAL
from tests.model_is_kernel.topology import (
    GATEWAY,
    NODE_IP,
    ONE,
    OUTSIDE,
    REMOTE,
    SOURCES,
    TWO,
    UDP_PORT,
    topology,
)

from clusterip.diagnosis.trace import Tracer
from clusterip.kernel.probe import Target

pytestmark = pytest.mark.kernel

DRAWS = int(os.environ.get("CLUSTERIP_DRAWS", "200"))


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    by: Program = draw(st.sampled_from((*IPTABLES, "nft")))
    usual = by if by != "nft" else "iptables-nft"
    firewall_by: Program = draw(st.sampled_from((usual, usual, *IPTABLES)))
    nft_firewall = draw(foreign.nft_tables()) if by == "nft" or draw(st.integers(0, 3)) == 0 else ""
    return Rules(draw(drawn.services()), by, draw(foreign.firewalls()), firewall_by, nft_firewall)


TARGETS = (
    *(Target("tcp", address, 80) for address in ADDRESSES),
    *(Target("udp", address, 53) for address in ADDRESSES),
    *(Target("tcp", NODE_IP, port) for port in (30080, 30081, 8080)),
    *(Target("udp", NODE_IP, port) for port in (30080, 30081)),
    *(Target("tcp", address, 8080) for address in (ONE, TWO, REMOTE)),
    *(Target("tcp", EXTERNAL, 80), Target("udp", EXTERNAL, 53), Target("tcp", GATEWAY, 30080)),
    *(Target("tcp", ADDRESSES[0], 81), Target("tcp", "10.96.0.99", 80), Target("udp", TWO, UDP_PORT)),
)


@st.composite
def packets(draw: st.DrawFn) -> Packet:
    source = draw(st.sampled_from(SOURCES))
    own = {REMOTE, OUTSIDE} if source.place == "far" else {source.address}
    target = draw(st.sampled_from([t for t in TARGETS if t.address not in own]))
    return Packet(source, Target(target.protocol, target.address, target.port, source.address))


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with topology() as at, ExitStack() as stack:
        yield Bench(at, stack)


@settings(max_examples=DRAWS, report_multiple_bugs=False)
@given(wanted=rules(), sent=st.lists(packets(), min_size=3, max_size=6))
def test_the_model_is_the_kernel(bench: Bench, wanted: Rules, sent: list[Packet]) -> None:
    tracer = Tracer(bench.load(wanted))
    for packet in sent:
        seen = bench.send(packet, tracer)
        event(seen.verdict)
        assert seen.difference is None, f"{packet}: {seen.difference.message}"

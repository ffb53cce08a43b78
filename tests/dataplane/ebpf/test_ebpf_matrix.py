"""Drawn Services on the real kernel: what each kind of client observes at each frontend is what the model says."""

import random
import socket
from collections.abc import Iterator

import pytest
from tests.dataplane.ebpf.entries import backends
from tests.dataplane.ebpf.pods import CONFIGS, NODE_IP, NODE_IP6, PODS, Node, four, node, six

from clusterip.dataplane.ebpf.compile import compile_entry
from clusterip.dataplane.ebpf.layout import Frontend, read_frontend
from clusterip.dataplane.ebpf.outcomes import outcomes
from clusterip.services.route import Delivered, Outcome, Packet, Passed, Rejected, Source
from clusterip.services.table import Entry, Family, PortName, Protocol

pytestmark = pytest.mark.kernel

CLIENTS = {"client": Source.POD, "b1": Source.POD, "node": Source.NODE}  # b1 is a backend, too
KINDS: dict[Protocol, int] = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}
PLACES = {
    "IPv4": ("10.96.0.{}", "198.51.100.{}", "192.0.2.{}"),
    "IPv6": ("fd00:96::{}", "2001:db8:7::{}", "2001:db8:2::{}"),
}
TRIES = 24  # of two backends one is missed by chance once in 2^23


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with node(tmp_path_factory.mktemp("ebpf")) as made:
        yield made


def drawn(draw: random.Random, number: int, family: Family, protocol: Protocol) -> Entry:
    cluster_ip, external, balancer = (place.format(number) for place in PLACES[family])
    pods = draw.choice([(), ("b1",), ("b2",), ("b1", "b2")])
    found = backends(family, *pods)
    local = tuple(b for b in found if draw.random() < 0.5)
    return Entry(
        PortName("default", f"s{number}", protocol.lower()),
        family,
        protocol,
        80,
        cluster_ip,
        node_port=draw.choice([0, 30000 + number]),
        external_ips=draw.choice([(), (external,)]),
        load_balancer_ips=draw.choice([(), (balancer,)]),
        source_ranges=draw.choice([(), ("203.0.113.0/24",), ("2001:db8::/32",)]),
        internal_local=draw.random() < 0.3,
        external_local=draw.random() < 0.3,
        cluster=found,
        local=local,
        has_backends=bool(found),
        serving=found if protocol == "UDP" else (),
    )


def observe(lab: Node, member: str, to: Frontend, patience: float) -> frozenset[Outcome]:
    names = {p: four(p) for p in PODS} if ":" not in to.address else {p: six(p) for p in PODS}
    on_node = CLIENTS[member] is Source.NODE
    seen: set[Outcome] = set()
    for _ in range(TRIES):
        try:
            pod = lab.ask(to.address, to.port, member=member, kind=KINDS[to.protocol], patience=patience)
            seen.add(Delivered(names[pod], 8080, on_node))
        except ConnectionRefusedError:
            seen.add(Rejected())
        except OSError:
            seen.add(Passed())
            break
    return frozenset(seen)


@pytest.mark.parametrize("seed", range(3))
async def test_what_clients_observe_is_what_the_model_says(lab: Node, seed: int) -> None:
    draw = random.Random(seed)
    families: tuple[Family, ...] = ("IPv4", "IPv6")
    table = [drawn(draw, 2 * n + s, f, p) for n, f in enumerate(families, 1) for s, p in enumerate(KINDS)]
    await lab.serve(*table)
    pieces = [compile_entry(e, CONFIGS[e.family]) for e in table]
    frontends = {read_frontend(key) for piece in pieces for key in piece.services}
    frontends |= {Frontend(e.cluster_ip, e.port, e.protocol) for e in table}
    # A refusal on its own address is a node's when nobody listens: only frontends of Services tell something there.
    for member, source in CLIENTS.items():
        for to in sorted(frontends):
            expected = outcomes(pieces, Packet(source, "0.0.0.0", *to))
            if expected == {Passed()} and to.address in ("127.0.0.1", "::1", NODE_IP, NODE_IP6):
                continue
            patience = 0.2 if expected == {Passed()} else 5  # seconds; nobody answers what is left
            assert observe(lab, member, to, patience) == expected, (member, to)


def test_the_draw_covers_what_it_should() -> None:
    table = [drawn(random.Random(seed), n, "IPv4", p) for seed in range(3) for n in (2, 3) for p in KINDS]
    pieces = [compile_entry(e, CONFIGS["IPv4"]) for e in table]
    assert any(p.left for p in pieces)
    assert any(not e.has_backends for e in table)
    assert any(len(e.cluster) == 2 for e in table)

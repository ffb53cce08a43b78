"""The maps of eBPF mode against the service table."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.strategies import V4, V6, Pool, tables

from clusterip.dataplane.ebpf.compile import compile_entry
from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.delta import applied, load
from clusterip.dataplane.ebpf.layout import Contents, Frontend, frontend_key, read_service, service_value
from clusterip.dataplane.ebpf.outcomes import EMPTY
from clusterip.diagnosis.verify.report import Verification
from clusterip.diagnosis.verify.sockets import clients, verify_sockets
from clusterip.services.route import Policy
from clusterip.services.table import Backend, Entry, PortName

NODE_IP = "192.168.50.11"
BACKENDS = (Backend("10.244.1.2", 8080, True), Backend("10.244.2.2", 8080))
WEB = Entry(
    PortName("default", "web", "http"), "IPv4", "TCP", 80, "10.96.0.20", 30080, cluster=BACKENDS, has_backends=True
)
VIP = frontend_key(Frontend("10.96.0.20", 80, "TCP"))


def maps(*entries: Entry, node_ip: str = NODE_IP) -> dict[str, dict[bytes, bytes]]:
    config = Config("IPv6" if ":" in node_ip else "IPv4", (node_ip,))
    found = applied(EMPTY, load([compile_entry(e, config) for e in entries], EMPTY).steps)
    return {name: dict(held) for name, held in found.items()}


def verify(table: list[Entry], held: dict[str, dict[bytes, bytes]], node_ip: str = NODE_IP) -> Verification:
    policy = Policy(frozenset({node_ip}), node_ip)
    contents: Contents = held  # type: ignore[assignment]  # its keys are the maps' names
    return verify_sockets(table, contents, policy, clients(("10.244.0.0/16",), policy, ipv6=":" in node_ip))


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_what_the_dataplane_writes_of_a_table_is_equal_to_it(pool: Pool, data: st.DataObject) -> None:
    table = list(data.draw(tables(pool)).values())
    assert verify(table, maps(*table, node_ip=pool.node_ip), pool.node_ip).differences == ()


def lost_backend(held: dict[str, dict[bytes, bytes]]) -> None:
    held["slots"].popitem()


def other_affinity(held: dict[str, dict[bytes, bytes]]) -> None:
    held["services"][VIP] = service_value(read_service(held["services"][VIP])._replace(affinity=9))


def refuses(held: dict[str, dict[bytes, bytes]]) -> None:
    held["services"][VIP] = service_value(read_service(held["services"][VIP])._replace(backends=0))


@pytest.mark.parametrize(
    ("damage", "kind"), [(lost_backend, "rejected"), (other_affinity, "affinity"), (refuses, "rejected")]
)
def test_damage_is_told_with_a_packet_that_shows_it(
    damage: Callable[[dict[str, dict[bytes, bytes]]], None], kind: str
) -> None:
    held = maps(WEB)
    damage(held)
    found = verify([WEB], held)
    assert found.verdict == "different"
    assert {d.kind for d in found.differences} == {kind}
    one = next(d for d in found.differences if d.frontend == "10.96.0.20:80/tcp")
    assert (one.object, one.clients) == ("service default/web:http", "pods, the node")
    assert one.witness.arguments == "pod:10.244.0.2 10.96.0.20:80/tcp"


@pytest.mark.parametrize(
    ("now", "kind", "share"),
    [
        (replace(WEB, cluster=BACKENDS[:1]), "stale-backend", "1/2"),
        (replace(WEB, cluster=(*BACKENDS, Backend("10.244.2.3", 8080))), "missing-backend", "1/3"),
        (replace(WEB, cluster=(), has_backends=False), "verdict", "1"),
        (replace(WEB, internal_local=True, local=()), "verdict", "1"),
    ],
)
def test_a_table_that_has_moved_on_is_told_by_kind_and_share(now: Entry, kind: str, share: str) -> None:
    found = verify([now], maps(WEB)).differences
    one = next(d for d in found if d.frontend == "10.96.0.20:80/tcp")
    assert (one.kind, str(one.share)) == (kind, share)


def test_a_service_that_is_gone_is_extra_in_the_maps() -> None:
    found = verify([], maps(WEB)).differences
    assert {(d.kind, d.object) for d in found} == {
        ("extra", f"{address}/tcp") for address in ("10.96.0.20:80", "127.0.0.1:30080", "192.168.50.11:30080")
    }
    assert {d.clients for d in found} == {"pods, the node", "the node"}


def test_what_the_maps_lack_is_the_rules_to_answer() -> None:
    held = maps(WEB)
    del held["services"][VIP]
    assert verify([WEB], held).verdict == "equal"

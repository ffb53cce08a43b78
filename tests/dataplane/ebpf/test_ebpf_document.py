import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.ebpf.entries import entry
from tests.dataplane.strategies import V4, V6, Pool, tables

from clusterip.dataplane.ebpf.compile import compile_entry
from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.delta import applied, load
from clusterip.dataplane.ebpf.document import complete, contents, describe
from clusterip.dataplane.ebpf.outcomes import EMPTY
from clusterip.rulesets import recognise
from clusterip.rulesets.socketmaps import SocketMaps, text

CONFIG = Config("IPv4", ("192.168.50.11",))


def test_the_maps_read_by_names_of_services_and_backends() -> None:
    web = replace(entry("UDP"), affinity_seconds=60, node_port=30080)
    found = json.loads(complete([compile_entry(web, CONFIG)]))
    assert [s["frontend"] for s in found["services"]] == [
        "10.96.0.20:80/udp",
        "127.0.0.1:30080/udp",
        "192.168.50.11:30080/udp",
    ]
    assert {s["service"] for s in found["services"]} == {"default/web:udp"}
    assert [s["nodeOnly"] for s in found["services"]] == [False, True, False]
    assert {(s["backends"], s["affinitySeconds"]) for s in found["services"]} == {(2, 60)}
    assert [(s["index"], s["backend"]) for s in found["slots"]] == [(0, "10.244.1.11:8080"), (1, "10.244.1.12:8080")]
    assert {s["set"] for s in found["slots"] + found["members"]} == {found["services"][0]["set"]}
    assert found["beneath"] == []


def test_what_sockets_leave_is_listed_apart() -> None:
    web = replace(
        entry(),
        internal_local=True,
        load_balancer_ips=("192.0.2.200",),
        source_ranges=("203.0.113.0/24",),
    )
    found = json.loads(complete([compile_entry(web, CONFIG), compile_entry(replace(web, protocol="SCTP"), CONFIG)]))
    assert found["services"] == found["slots"] == []
    assert [left["frontend"] for left in found["beneath"]] == [
        "10.96.0.20:80/tcp",
        "192.0.2.200:80/tcp",
        "10.96.0.20:80/sctp",
        "192.0.2.200:80/sctp",
    ]


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_what_is_printed_of_maps_is_read_as_the_same_maps(pool: Pool, data: st.DataObject) -> None:
    entries = list(data.draw(tables(pool)).values())
    pieces = [compile_entry(e, Config(pool.family, (pool.node_ip,))) for e in entries]
    held = applied(EMPTY, load(pieces, EMPTY).steps)
    printed = text(describe([held], {}, ("connect4",)))
    (part,) = recognise.read("ebpf-maps.json", printed.encode()).parts
    assert isinstance(part.values, SocketMaps)
    assert part.values.hooks == ("connect4",)
    assert contents(part.values)[pool.family] == held

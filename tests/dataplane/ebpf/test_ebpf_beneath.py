"""Sockets above nftables: nobody goes elsewhere than by nftables alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.dataplane.strategies import V4, V6, Pool, packets, tables

from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.plane import EBPF
from clusterip.dataplane.nftables.config import Config as PacketConfig
from clusterip.dataplane.nftables.plane import NFTables
from clusterip.dataplane.node import FromCIDR, Host
from clusterip.services.route import Delivered, Outcome, Outcomes, Passed


def where(outcomes: Outcomes) -> frozenset[Outcome]:
    """Without the source that the backend sees: a socket's own is never hidden from it, a packet's sometimes is."""
    return frozenset(Delivered(o.address, o.port, False) if isinstance(o, Delivered) else o for o in outcomes)


@pytest.mark.parametrize("pool", [V4, V6], ids=lambda p: p.family)
@given(data=st.data())
def test_with_sockets_or_without_a_connection_goes_to_the_same_backends(pool: Pool, data: st.DataObject) -> None:
    entries = list(data.draw(tables(pool)).values())
    sockets = EBPF(Config(pool.family, (pool.node_ip,), localhost_node_ports=False))
    host = Host(frozenset({pool.node_ip}))
    beneath = NFTables(
        PacketConfig(pool.family, pool.node_ip, FromCIDR(pool.pod_range), node_port_addresses=(pool.node_ip,)), host
    )
    above_pieces, pieces = [sockets.compile(e) for e in entries], [beneath.compile(e) for e in entries]
    for packet in data.draw(st.lists(packets(pool, host, entries), min_size=1, max_size=4)):
        alone = beneath.outcomes(pieces, packet)
        above = sockets.outcomes(above_pieces, packet)
        assert where(alone if above == {Passed()} else above) == where(alone)

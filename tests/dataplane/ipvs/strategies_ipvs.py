"""Configurations of IPVS mode, for the tables and packets of `tests.dataplane.strategies`."""

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st
from tests.dataplane.strategies import Pool

from clusterip.dataplane.ipvs import Config
from clusterip.dataplane.node import FromCIDR, FromInterface, Host
from clusterip.services.route import Packet, Source


@cache
def configs(pool: Pool, host: Host) -> st.SearchStrategy[Config]:
    own = tuple(sorted(host.addresses))
    return st.builds(
        Config,
        family=st.just(pool.family),
        node_ip=st.sampled_from(["", pool.node_ip]),
        detector=st.sampled_from([None, FromCIDR(pool.pod_range), FromInterface("cip0"), FromInterface("cip+")]),
        masquerade_bit=st.sampled_from([0, 14, 31]),
        masquerade_all=st.booleans(),
        scheduler=st.sampled_from(["rr", "mh"]),
        node_addresses=st.sampled_from([(), (pool.node_ip,), (*own, pool.loopback)]),
        host_addresses=st.just(host.addresses),
    )


def as_the_kernel_sends(packet: Packet, host: Host) -> Packet:
    """A process of the node that names no source speaks to an address of the node with that address as its own."""
    if packet.source is not Source.NODE or packet.address in host.addresses:
        return packet
    return replace(packet, source_address=packet.address)

"""Configurations of nftables mode for the service tables of `tests.dataplane.strategies`."""

from dataclasses import replace
from functools import cache

from hypothesis import strategies as st
from tests.dataplane.strategies import Pool

from clusterip.dataplane.nftables.config import Config
from clusterip.dataplane.node import FromCIDR, FromInterface, Host
from clusterip.services.route import Policy

RANGES = {"IPv4": "10.96.0.0/16", "IPv6": "fd00:96::/112"}  # hold the pools' ClusterIPs


@cache
def configs(pool: Pool) -> st.SearchStrategy[Config]:
    detectors = [None, FromCIDR(pool.pod_range), FromInterface("cip0"), FromInterface("cip+")]
    return st.builds(
        Config,
        family=st.just(pool.family),
        node_ip=st.sampled_from(["", pool.node_ip]),
        detector=st.sampled_from(detectors),
        masquerade_bit=st.sampled_from([0, 14, 31]),
        masquerade_all=st.booleans(),
        node_port_addresses=st.sampled_from([None, (pool.node_ip,), (pool.node_ip, pool.loopback), ()]),
        service_cidrs=st.sampled_from([(), (RANGES[pool.family],)]),
        drop_invalid=st.booleans(),
    )


def policy(config: Config, host: Host) -> Policy:
    """What the configuration means."""
    served = config.served_addresses
    addresses = host.addresses if served is None else frozenset(served)
    return Policy(addresses, config.node_ip, config.detector is not None, config.masquerade_all)


def serving(config: Config, addresses: tuple[str, ...]) -> Config:
    """With node ports on these addresses of the node."""
    return replace(config, node_port_addresses=addresses)

"""The modes side by side: how each is configured, compiles and answers, and what it should answer."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from hypothesis import strategies as st
from tests.dataplane import meaning
from tests.dataplane.ipvs import strategies_ipvs
from tests.dataplane.meaning import Where
from tests.dataplane.nftables import strategies_nft
from tests.dataplane.strategies import BOOLEANS, Pool, configs, policy, sampled

from clusterip.dataplane.ebpf.config import Config as SocketConfig
from clusterip.dataplane.ebpf.plane import EBPF
from clusterip.dataplane.iptables.plane import IPTables
from clusterip.dataplane.ipvs.plane import IPVS
from clusterip.dataplane.nftables.plane import NFTables
from clusterip.dataplane.node import Host
from clusterip.services.route import Outcomes, Packet, Passed, Policy
from clusterip.services.table import Entry


class Plane(Protocol):
    """Of `clusterip.dataplane.base.Compiler` what these tests need."""

    def compile(self, entry: Entry, /) -> Any: ...
    def outcomes(self, pieces: Collection[Any], packet: Packet, /) -> Outcomes: ...


Set: TypeAlias = tuple[Plane, Where]  # configured, and what the configuration means


@dataclass(frozen=True, slots=True)
class Mode:
    name: str
    setup: Callable[[Pool, Host], st.SearchStrategy[Set]]
    expected: Callable[[Sequence[Entry], Packet, Where], Outcomes]
    sent: Callable[[Packet, Host], Packet] = field(default=lambda packet, _: packet)  # as the kernel may send it


class Layers:
    """eBPF mode: sockets, and packets beneath."""

    def __init__(self, sockets: EBPF, packets: NFTables) -> None:
        self.planes = (sockets, packets)

    def compile(self, entry: Entry) -> tuple[Any, Any]:
        sockets, packets = self.planes
        return sockets.compile(entry), packets.compile(entry)

    def outcomes(self, pieces: Collection[tuple[Any, Any]], packet: Packet) -> Outcomes:
        sockets, packets = self.planes
        found = sockets.outcomes([above for above, _ in pieces], packet)
        return packets.outcomes([beneath for _, beneath in pieces], packet) if found == {Passed()} else found


@st.composite
def _iptables(draw: st.DrawFn, pool: Pool, host: Host) -> Set:
    config = draw(configs(pool))
    return IPTables(config, host), Where(policy(config, host, pool), host)


@st.composite
def _nftables(draw: st.DrawFn, pool: Pool, host: Host) -> Set:
    config = draw(strategies_nft.configs(pool))
    return NFTables(config, host), Where(strategies_nft.policy(config, host), host, config.service_cidrs)


@st.composite
def _ipvs(draw: st.DrawFn, pool: Pool, host: Host) -> Set:
    config = draw(strategies_ipvs.configs(pool, host))
    detects = config.detector is not None
    served = Policy(frozenset(config.node_addresses), config.node_ip, detects, config.masquerade_all)
    return IPVS(config, host), Where(served, host)


@st.composite
def _sockets(draw: st.DrawFn, pool: Pool, host: Host) -> tuple[EBPF, Where]:
    addresses = draw(sampled(((), (pool.node_ip,), (pool.node_ip, pool.loopback))))
    config = SocketConfig(pool.family, addresses, draw(BOOLEANS))
    served = {a for a in addresses if a != pool.loopback}
    loopback = {pool.loopback} if config.localhost_node_ports else set()
    return EBPF(config), Where(Policy(frozenset(served | loopback), pool.node_ip), host)


@st.composite
def _ebpf(draw: st.DrawFn, pool: Pool, host: Host) -> Set:
    """Both layers serve the same addresses of the node."""
    sockets, where = draw(_sockets(pool, host))
    drawn = draw(strategies_nft.configs(pool))
    config = strategies_nft.serving(drawn, tuple(sorted(meaning.without_loopback(where.policy).node_port_addresses)))
    beneath = strategies_nft.policy(config, host)
    served = where.policy.node_port_addresses | beneath.node_port_addresses
    both = Policy(served, beneath.node_ip, beneath.detects_pods, beneath.masquerade_all)
    return Layers(sockets, NFTables(config, host)), Where(both, host, config.service_cidrs)


IPTABLES = Mode("iptables", _iptables, meaning.iptables)
NFTABLES = Mode("nftables", _nftables, meaning.nftables)
SOCKETS = Mode("sockets", _sockets, meaning.sockets)
EBPF_MODE = Mode("ebpf", _ebpf, meaning.ebpf)
IPVS_MODE = Mode("ipvs", _ipvs, meaning.ipvs, strategies_ipvs.as_the_kernel_sends)
MODES = (IPTABLES, NFTABLES, SOCKETS, EBPF_MODE, IPVS_MODE)

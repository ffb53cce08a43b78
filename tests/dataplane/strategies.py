"""Small service tables with colliding values, configurations and packets for them. Drawn from tiny pools on purpose.

Strategies are made once and kept: making one and having it checked takes longer than drawing from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from clusterip.dataplane.iptables import Config, FromCIDR, FromInterface
from clusterip.dataplane.iptables.outcomes import Host
from clusterip.services.route import Packet, Policy, Source
from clusterip.services.table import Backend, Entry, EntryKey, Family, PortName, Protocol


@dataclass(frozen=True, slots=True)
class Pool:
    """The address plan of one family."""

    family: Family
    cluster_ips: tuple[str, ...]
    external_ips: tuple[str, ...]
    balancers: tuple[str, ...]
    backends: tuple[Backend, ...]
    pods: tuple[str, ...]  # clients; the first is a backend, too
    pod_range: str
    node_ip: str
    other_node: str
    outside: tuple[str, ...]
    ranges: tuple[str, ...]  # the first holds the first of `outside`, the second the node
    loopback: str


V4 = Pool(
    "IPv4",
    ("10.96.0.10", "10.96.0.11"),
    ("198.51.100.7", "198.51.100.8"),
    ("192.0.2.200", "192.0.2.201"),
    (
        Backend("10.244.1.2", 80, True),
        Backend("10.244.1.2", 8080, True),
        Backend("10.244.1.3", 8080, True),
        Backend("10.244.2.2", 8080),
    ),
    ("10.244.1.2", "10.244.1.9"),
    "10.244.0.0/16",
    "192.168.50.11",
    "192.168.50.12",
    ("203.0.113.5", "192.168.50.12"),
    ("203.0.113.0/24", "192.168.50.0/24"),
    "127.0.0.1",
)
V6 = Pool(
    "IPv6",
    ("fd00:96::a", "fd00:96::b"),
    ("2001:db8:7::7", "2001:db8:7::8"),
    ("2001:db8:2::200", "2001:db8:2::201"),
    (
        Backend("fd00:1:1::2", 80, True),
        Backend("fd00:1:1::2", 8080, True),
        Backend("fd00:1:1::3", 8080, True),
        Backend("fd00:1:2::2", 8080),
    ),
    ("fd00:1:1::2", "fd00:1:1::9"),
    "fd00:1::/32",
    "fd00:50::11",
    "fd00:50::12",
    ("2001:db8::5", "fd00:50::12"),
    ("2001:db8::/64", "fd00:50::/64"),
    "::1",
)
PORTS = (80, 443)
NODE_PORTS = (30080, 30081)
PROTOCOLS: tuple[Protocol, ...] = ("TCP", "UDP", "SCTP")
NAMES = (PortName("default", "web", "http"), PortName("default", "web", "dns"), PortName("kube-system", "dns", ""))


T = TypeVar("T")
BOOLEANS = st.booleans()
SOURCES = st.sampled_from(Source)
AIMED = st.sampled_from((True, True, True, False))


def sampled(values: tuple[T, ...]) -> st.SearchStrategy[T]:
    return _sampled(values)


@cache
def _sampled(values: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


@cache
def some(pool: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(pool), max_size=2, unique=True).map(tuple)


@cache
def backends(pool: Pool) -> st.SearchStrategy[list[Backend]]:
    return st.lists(st.sampled_from(pool.backends), max_size=3, unique=True)


@cache
def fronts(pool: Pool, name: PortName) -> st.SearchStrategy[Entry]:
    """Entries without backends."""
    return st.builds(
        Entry,
        name=st.just(name),
        family=st.just(pool.family),
        protocol=st.sampled_from(PROTOCOLS),
        port=st.sampled_from(PORTS),
        cluster_ip=st.sampled_from(pool.cluster_ips),
        node_port=st.sampled_from((0, *NODE_PORTS)),
        external_ips=some(pool.external_ips),
        load_balancer_ips=some(pool.balancers),
        source_ranges=some(pool.ranges),
        internal_local=BOOLEANS,
        external_local=BOOLEANS,
        affinity_seconds=st.sampled_from((0, 10800)),
        health_check_node_port=st.sampled_from((0, 32000)),
    )


@cache
def entries(pool: Pool, name: PortName) -> st.SearchStrategy[Entry]:
    """Any entry that `resolve` could give."""

    @st.composite
    def drawn(draw: st.DrawFn) -> Entry:
        front = draw(fronts(pool, name))
        cluster = draw(backends(pool)) if front.uses_cluster else []
        anywhere = bool(cluster) if front.uses_cluster else draw(BOOLEANS)
        local = [b for b in draw(backends(pool)) if b.local] if front.uses_local and anywhere else []
        return replace(
            front,
            cluster=tuple(sorted(cluster, key=str)),
            local=tuple(sorted(local, key=str)),
            has_backends=anywhere,
        )

    return drawn()


def disjoint(found: list[Entry]) -> list[Entry]:
    """Without those that claim what another claims already: which one answers then is not promised."""
    taken: set[tuple[str, int, str]] = set()
    kept = []
    for entry in found:
        claims = {(f.address, f.port, f.protocol) for f in entry.frontends()}
        if not claims & taken:
            taken |= claims
            kept.append(entry)
    return kept


@cache
def tables(pool: Pool) -> st.SearchStrategy[Mapping[EntryKey, Entry]]:
    rows = st.tuples(*(st.none() | entries(pool, name) for name in NAMES))
    return rows.map(lambda found: {e.key: e for e in disjoint([e for e in found if e])})


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
        localhost_node_ports=st.booleans(),
        node_port_addresses=st.sampled_from([None, (pool.node_ip,), (pool.node_ip, pool.loopback), ()]),
        random_fully=st.booleans(),
        nfacct=st.booleans(),
        drop_invalid=st.booleans(),
        large_cluster=st.booleans(),
    )


@cache
def hosts(pool: Pool) -> st.SearchStrategy[Host]:
    """With or without a load balancer's address bound to the node."""
    return st.sampled_from([(), pool.balancers[:1]]).map(lambda bound: Host(frozenset({pool.node_ip, *bound})))


@cache
def remembered(pool: Pool) -> st.SearchStrategy[Backend | None]:
    """Whom affinity remembers for a client."""
    return st.none() | st.sampled_from(pool.backends)


@st.composite
def packets(draw: st.DrawFn, pool: Pool, host: Host, table: Iterable[Entry] = ()) -> Packet:
    """Most of them for a frontend of `table`, if it has any; some for any address and port."""
    source = draw(SOURCES)
    own = tuple(sorted(host.addresses))
    senders = {Source.POD: pool.pods, Source.NODE: own, Source.OUTSIDE: pool.outside}[source]
    loopback = (pool.loopback,) if source is Source.NODE else ()
    somewhere = (pool.other_node, pool.backends[0].address)
    to = draw(sampled((*pool.cluster_ips, *pool.external_ips, *pool.balancers, *own, *somewhere, *loopback)))
    port, protocol = draw(sampled((*PORTS, *NODE_PORTS, 8080))), draw(sampled(PROTOCOLS))
    frontends = [frontend for entry in table for frontend in entry.frontends()]
    aimed = draw(AIMED)
    if frontends and aimed:
        frontend = draw(sampled(tuple(frontends)))
        port, protocol = frontend.port, frontend.protocol
        to = frontend.address or draw(sampled((*own, *loopback)))
    sender = pool.loopback if to == pool.loopback else draw(sampled(senders))
    return Packet(source, sender, to, port, protocol, draw(remembered(pool)))


def policy(config: Config, host: Host, pool: Pool) -> Policy:
    """What the configuration means."""
    served = host.addresses | {pool.loopback} if config.node_port_addresses is None else config.node_port_addresses
    reachable = frozenset(a for a in served if a != pool.loopback or config.localhost)
    return Policy(reachable, config.node_ip, config.detector is not None, config.masquerade_all)

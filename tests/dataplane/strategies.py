"""Small service tables with colliding values, configurations and packets for them. Drawn from tiny pools on purpose."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

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


def some(pool: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(pool), max_size=2, unique=True).map(tuple)


@st.composite
def entries(draw: st.DrawFn, pool: Pool, name: PortName) -> Entry:
    """Any entry that `resolve` could give."""
    draft = Entry(
        name=name,
        family=pool.family,
        protocol=draw(st.sampled_from(PROTOCOLS)),
        port=draw(st.sampled_from(PORTS)),
        cluster_ip=draw(st.sampled_from(pool.cluster_ips)),
        node_port=draw(st.sampled_from((0, *NODE_PORTS))),
        external_ips=draw(some(pool.external_ips)),
        load_balancer_ips=draw(some(pool.balancers)),
        source_ranges=draw(some(pool.ranges)),
        internal_local=draw(st.booleans()),
        external_local=draw(st.booleans()),
        affinity_seconds=draw(st.sampled_from((0, 10800))),
        health_check_node_port=draw(st.sampled_from((0, 32000))),
    )
    usable = st.lists(st.sampled_from(pool.backends), max_size=3, unique=True)
    cluster = draw(usable) if draft.uses_cluster else []
    anywhere = bool(cluster) if draft.uses_cluster else draw(st.booleans())
    local = [b for b in draw(usable) if b.local] if draft.uses_local and anywhere else []
    return replace(
        draft,
        cluster=tuple(sorted(cluster, key=str)),
        local=tuple(sorted(local, key=str)),
        has_backends=anywhere,
    )


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


def tables(pool: Pool) -> st.SearchStrategy[Mapping[EntryKey, Entry]]:
    rows = st.tuples(*(st.none() | entries(pool, name) for name in NAMES))
    return rows.map(lambda found: {e.key: e for e in disjoint([e for e in found if e])})


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


def hosts(pool: Pool) -> st.SearchStrategy[Host]:
    """With or without a load balancer's address bound to the node."""
    return st.sampled_from([(), pool.balancers[:1]]).map(lambda bound: Host(frozenset({pool.node_ip, *bound})))


@st.composite
def packets(draw: st.DrawFn, pool: Pool, host: Host, table: Iterable[Entry] = ()) -> Packet:
    """Most of them for a frontend of `table`, if it has any; some for any address and port."""
    source = draw(st.sampled_from(Source))
    own = tuple(sorted(host.addresses))
    senders = {Source.POD: pool.pods, Source.NODE: own, Source.OUTSIDE: pool.outside}[source]
    loopback = (pool.loopback,) if source is Source.NODE else ()
    somewhere = (pool.other_node, pool.backends[0].address)
    to = draw(st.sampled_from((*pool.cluster_ips, *pool.external_ips, *pool.balancers, *own, *somewhere, *loopback)))
    port, protocol = draw(st.sampled_from((*PORTS, *NODE_PORTS, 8080))), draw(st.sampled_from(PROTOCOLS))
    frontends = [frontend for entry in table for frontend in entry.frontends()]
    aimed = draw(st.sampled_from((True, True, True, False)))
    if frontends and aimed:
        frontend = draw(st.sampled_from(frontends))
        port, protocol = frontend.port, frontend.protocol
        to = frontend.address or draw(st.sampled_from((*own, *loopback)))
    sender = pool.loopback if to == pool.loopback else draw(st.sampled_from(senders))
    return Packet(source, sender, to, port, protocol, draw(st.none() | st.sampled_from(pool.backends)))


def policy(config: Config, host: Host, pool: Pool) -> Policy:
    """What the configuration means."""
    served = host.addresses | {pool.loopback} if config.node_port_addresses is None else config.node_port_addresses
    reachable = frozenset(a for a in served if a != pool.loopback or config.localhost)
    return Policy(reachable, config.node_ip, config.detector is not None, config.masquerade_all)

"""Services drawn from small pools, and the rules that kube-proxy writes for them: for iptables, and for nftables as
Kubernetes 1.33 lays them out. Test-side and short on purpose: the product's own writers are not asked.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from hypothesis import strategies as st
from tests.model_is_kernel.topology import NODE_IP, ONE, REMOTE, TWO, UDP_PORT

CLUSTER_CIDR = "10.244.0.0/16"
ADDRESSES = ("10.96.0.20", "10.96.0.21")
EXTERNAL = "203.0.113.200"


class Endpoint(NamedTuple):
    address: str
    port: int

    @property
    def name(self) -> str:
        return f"{self.address}/{self.port}"


class Service(NamedTuple):
    """One port of a Service."""

    address: str
    port: int
    protocol: Literal["tcp", "udp"]
    endpoints: tuple[Endpoint, ...]
    node_port: int = 0  # 0: none
    external: bool = False  # has an external address
    affinity: bool = False
    ranges: tuple[str, ...] = ()  # that may use the external address; (): all

    @property
    def name(self) -> str:
        return f"{self.address.rpartition('.')[2]}-{self.protocol}-{self.port}"

    @property
    def reachable_from_outside(self) -> bool:
        return bool(self.node_port or self.external)


def endpoints(protocol: str) -> st.SearchStrategy[tuple[Endpoint, ...]]:
    ports = (UDP_PORT,) if protocol == "udp" else (8080, 9090)
    pool = [Endpoint(a, p) for a in (ONE, TWO, REMOTE, NODE_IP) for p in ports]
    some = st.lists(st.sampled_from(pool), min_size=1, max_size=3, unique=True)
    return st.one_of(some, some, some, st.just([])).map(tuple)


@st.composite
def services(draw: st.DrawFn) -> tuple[Service, ...]:
    fronts = [(a, p, proto) for a in ADDRESSES for p, proto in ((80, "tcp"), (53, "udp"))]
    drawn = draw(st.lists(st.sampled_from(fronts), min_size=1, max_size=3, unique=True))
    found = []
    for number, (address, port, protocol) in enumerate(drawn):
        one = Service(
            address,
            port,
            protocol,  # type: ignore[arg-type]
            draw(endpoints(protocol)),
            node_port=draw(st.sampled_from((0, 30080 + number))),
            external=draw(st.booleans()) and number == 0,
            affinity=draw(st.sampled_from((False, False, True))),
        )
        ranges = draw(st.sampled_from(((), (), ("203.0.113.0/24",), ("198.51.100.0/24",)))) if one.external else ()
        found.append(one._replace(ranges=ranges))
    return tuple(found)


# --- iptables --------------------------------------------------------------------------------------------------------


def iptables(drawn: Sequence[Service]) -> dict[str, dict[str, list[str]]]:
    """Rules by table and chain; the built-in chains hold the jumps."""
    nat: dict[str, list[str]] = {
        "PREROUTING": ["-j KUBE-SERVICES"],
        "OUTPUT": ["-j KUBE-SERVICES"],
        "POSTROUTING": ["-j KUBE-POSTROUTING"],
        "KUBE-MARK-MASQ": ["-j MARK --set-xmark 0x4000/0x4000"],
        "KUBE-POSTROUTING": [
            "-m mark ! --mark 0x4000/0x4000 -j RETURN",
            "-j MARK --set-xmark 0x4000/0x0",
            "-j MASQUERADE --random-fully",
        ],
        "KUBE-NODEPORTS": [],
        "KUBE-SERVICES": [],
    }
    filters: dict[str, list[str]] = {
        "INPUT": [f"-m conntrack --ctstate NEW -j {c}" for c in ("KUBE-PROXY-FIREWALL", "KUBE-EXTERNAL-SERVICES")],
        "FORWARD": [
            "-m conntrack --ctstate NEW -j KUBE-PROXY-FIREWALL",
            "-j KUBE-FORWARD",
            "-m conntrack --ctstate NEW -j KUBE-SERVICES",
            "-m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES",
        ],
        "OUTPUT": [f"-m conntrack --ctstate NEW -j {c}" for c in ("KUBE-PROXY-FIREWALL", "KUBE-SERVICES")],
        "KUBE-FORWARD": [
            "-m conntrack --ctstate INVALID -j DROP",
            "-m mark --mark 0x4000/0x4000 -j ACCEPT",
            "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        ],
        "KUBE-SERVICES": [],
        "KUBE-EXTERNAL-SERVICES": [],
        "KUBE-PROXY-FIREWALL": [],
    }
    for one in drawn:
        _iptables_service(one, nat, filters)
    nat["KUBE-SERVICES"].append("-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS")
    return {"nat": nat, "filter": filters}


def _iptables_service(one: Service, nat: dict[str, list[str]], filters: dict[str, list[str]]) -> None:
    svc, ext = f"KUBE-SVC-{one.name}", f"KUBE-EXT-{one.name}"
    port = f"-p {one.protocol} -m {one.protocol} --dport {one.port}"
    if not one.endpoints:
        reject = "-j REJECT --reject-with icmp-port-unreachable"
        filters["KUBE-SERVICES"].append(f"-d {one.address}/32 {port} {reject}")
        if one.external:
            filters["KUBE-EXTERNAL-SERVICES"].append(f"-d {EXTERNAL}/32 {port} {reject}")
        if one.node_port:
            dport = f"-p {one.protocol} -m {one.protocol} --dport {one.node_port}"
            filters["KUBE-EXTERNAL-SERVICES"].append(f"-m addrtype --dst-type LOCAL {dport} {reject}")
        return
    nat["KUBE-SERVICES"].append(f"-d {one.address}/32 {port} -j {svc}")
    if one.external:
        nat["KUBE-SERVICES"].append(f"-d {EXTERNAL}/32 {port} -j {ext}")
        if one.ranges:
            filters["KUBE-PROXY-FIREWALL"].append(f"-d {EXTERNAL}/32 {port} -j DROP")
            fw = f"KUBE-FW-{one.name}"
            nat["KUBE-SERVICES"][-1] = f"-d {EXTERNAL}/32 {port} -j {fw}"
            nat[fw] = [*(f"-s {r} -j {ext}" for r in one.ranges), '-m comment --comment "not allowed"']
    if one.node_port:
        nat["KUBE-NODEPORTS"].append(f"-p {one.protocol} -m {one.protocol} --dport {one.node_port} -j {ext}")
    if one.reachable_from_outside:
        nat[ext] = ["-j KUBE-MARK-MASQ", f"-j {svc}"]
    nat[svc] = [f"! -s {CLUSTER_CIDR} -d {one.address}/32 {port} -j KUBE-MARK-MASQ"]
    seps = [f"KUBE-SEP-{one.name}-{number}" for number in range(len(one.endpoints))]
    if one.affinity:
        nat[svc] += [f"-m recent --name {s} --rcheck --seconds 10800 --reap --rsource -j {s}" for s in seps]
    for number, sep in enumerate(seps):
        left = len(seps) - number
        chance = f"-m statistic --mode random --probability {1 / left:.11f} " if left > 1 else ""
        nat[svc].append(f"{chance}-j {sep}")
    for sep, endpoint in zip(seps, one.endpoints, strict=True):
        recent = f"-m recent --name {sep} --set --rsource " if one.affinity else ""
        to = f"{endpoint.address}:{endpoint.port}"
        nat[sep] = [
            f"-s {endpoint.address}/32 -j KUBE-MARK-MASQ",
            f"-p {one.protocol} {recent}-m {one.protocol} -j DNAT --to-destination {to}",
        ]


# --- nftables --------------------------------------------------------------------------------------------------------


def nft(drawn: Sequence[Service]) -> str:
    """The table `ip kube-proxy`."""
    maps: dict[str, list[str]] = {
        name: []
        for name in (
            "service-ips",
            "service-nodeports",
            "no-endpoint-services",
            "no-endpoint-nodeports",
            "firewall-ips",
        )
    }
    chains: list[str] = []
    hairpin: list[str] = []
    for one in drawn:
        _nft_service(one, maps, chains)
        hairpin += [f"{e.address} . {e.address} . {one.protocol} . {e.port}" for e in one.endpoints]
    ips = ", ".join(sorted({one.address for one in drawn}))
    three, two = "ipv4_addr . inet_proto . inet_service : verdict", "inet_proto . inet_service : verdict"
    sets = [
        _set("set", "cluster-ips", "ipv4_addr", [ips]),
        _set("set", "nodeport-ips", "ipv4_addr", [NODE_IP]),
        _set("set", "hairpin-connections", "ipv4_addr . ipv4_addr . inet_proto . inet_service", sorted(set(hairpin))),
        *(_set("map", name, two if "nodeports" in name else three, found) for name, found in maps.items()),
    ]
    return "table ip kube-proxy {\n" + "\n".join([*sets, *chains, _NFT]) + "\n}\n"


def _set(kind: str, name: str, types: str, found: Sequence[str]) -> str:
    elements = f"elements = {{ {', '.join(found)} }}" if found else ""
    return f"{kind} {name} {{ type {types}; {elements} }}"


def _nft_service(one: Service, maps: dict[str, list[str]], chains: list[str]) -> None:
    service, external = f"service-{one.name}", f"external-{one.name}"
    key = f"{one.protocol} . {one.port}"
    if not one.endpoints:
        maps["no-endpoint-services"].append(f"{one.address} . {key} : goto reject-chain")
        if one.external:
            maps["no-endpoint-services"].append(f"{EXTERNAL} . {key} : goto reject-chain")
        if one.node_port:
            maps["no-endpoint-nodeports"].append(f"{one.protocol} . {one.node_port} : goto reject-chain")
        return
    maps["service-ips"].append(f"{one.address} . {key} : goto {service}")
    if one.external:
        maps["service-ips"].append(f"{EXTERNAL} . {key} : goto {external}")
        if one.ranges:
            maps["firewall-ips"].append(f"{EXTERNAL} . {key} : goto firewall-{one.name}")
            chains.append(f"chain firewall-{one.name} {{ ip saddr != {{ {', '.join(one.ranges)} }} drop; }}")
    if one.node_port:
        maps["service-nodeports"].append(f"{one.protocol} . {one.node_port} : goto {external}")
    count = len(one.endpoints)
    if one.affinity:
        names = [f"endpoint-{one.name}__{e.name}" for e in one.endpoints]
        learnt = [f"affinity-{one.name}__{e.name}" for e in one.endpoints]
        for name, remembers, e in zip(names, learnt, one.endpoints, strict=True):
            chains.append(f"set {remembers} {{ type ipv4_addr; flags dynamic,timeout; timeout 3h; }}")
            to = f"meta l4proto {one.protocol} dnat to {e.address}:{e.port}"
            chains.append(f"chain {name} {{ update @{remembers} {{ ip saddr }}; {to}; }}")
        picks = ", ".join(f"{number} : goto {name}" for number, name in enumerate(names))
        known = " ".join(f"ip saddr @{r} goto {n};" for n, r in zip(names, learnt, strict=True))
        chains.append(f"chain {service} {{ {known} numgen random mod {count} vmap {{ {picks} }}; }}")
    else:
        picks = ", ".join(f"{number} : {e.address} . {e.port}" for number, e in enumerate(one.endpoints))
        to = f"dnat ip to numgen random mod {count} map {{ {picks} }}"
        chains.append(f"chain {service} {{ meta l4proto {one.protocol} {to}; }}")
    if one.reachable_from_outside:
        chains.append(f"chain {external} {{ meta mark set meta mark | 0x00004000; goto {service}; }}")


_NFT = f"""
chain reject-chain {{ reject; }}
chain firewall-check {{ ip daddr . meta l4proto . th dport vmap @firewall-ips; }}
chain service-endpoints-check {{ ip daddr . meta l4proto . th dport vmap @no-endpoint-services; }}
chain nodeport-endpoints-check {{ ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports; }}
chain cluster-ips-check {{ ip daddr @cluster-ips reject; ip daddr 10.96.0.0/16 drop; }}
chain masquerading {{
    meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
    ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
}}
chain services {{
    ip daddr @cluster-ips ip saddr != {CLUSTER_CIDR} meta mark set meta mark | 0x00004000
    ip daddr . meta l4proto . th dport vmap @service-ips
    ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
}}
chain filter-prerouting-pre-dnat {{
    type filter hook prerouting priority -110; policy accept;
    ct state new jump firewall-check
}}
chain filter-output-pre-dnat {{
    type filter hook output priority -110; policy accept;
    ct state new jump firewall-check
}}
chain filter-input {{
    type filter hook input priority 0; policy accept;
    ct state new jump nodeport-endpoints-check
    ct state new jump service-endpoints-check
}}
chain filter-forward {{
    type filter hook forward priority 0; policy accept;
    ct state new jump service-endpoints-check
    ct state new jump cluster-ips-check
}}
chain filter-output {{
    type filter hook output priority 0; policy accept;
    ct state new jump service-endpoints-check
    ct state new jump cluster-ips-check
}}
chain nat-prerouting {{ type nat hook prerouting priority -100; policy accept; jump services; }}
chain nat-output {{ type nat hook output priority -100; policy accept; jump services; }}
chain nat-postrouting {{ type nat hook postrouting priority 100; policy accept; jump masquerading; }}
"""

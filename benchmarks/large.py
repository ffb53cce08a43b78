"""What a node of a large cluster holds, as text: rules of iptables and of nftables, and the objects of the API."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from clusterip.dataplane.iptables import Config, FromCIDR, compile_entry, complete
from clusterip.services.table import Backend, Entry, PortName

BACKENDS = 10
PODS = "10.128.0.0/14"
NODE, NODE_IP = "node-1", "192.168.50.11"
LAYOUTS = {"iptables": "iptables-save.txt", "nft": "nft.txt"}


def table(services: int) -> list[Entry]:
    """Services 10.96.0.0, 10.96.0.1 ... of ten backends each; of 100 backends one is on this node."""
    return [
        Entry(
            PortName("ns", f"svc-{n}", "http"),
            "IPv4",
            "TCP",
            80,
            f"10.{96 + (n >> 16)}.{n >> 8 & 255}.{n & 255}",
            cluster=tuple(sorted(map(_backend, range(n * BACKENDS, (n + 1) * BACKENDS)), key=str)),
            has_backends=True,
            known=BACKENDS,
        )
        for n in range(services)
    ]


def _backend(number: int) -> Backend:
    return Backend(f"10.{128 + (number >> 16)}.{number >> 8 & 255}.{number & 255}", 8080, number % 100 == 0)


def iptables_save(entries: Sequence[Entry]) -> str:
    """As a proxy below large-cluster mode writes it, with its comments."""
    config = Config(node_ip=NODE_IP, detector=FromCIDR(PODS))
    return complete((compile_entry(entry, config) for entry in entries), config)


def nft_list(entries: Sequence[Entry]) -> str:
    """As `nft list ruleset` prints what kube-proxy 1.36 writes."""
    own = sorted({b.address for e in entries for b in e.cluster if b.local})
    sets = (
        _set("hairpin-connections", "ipv4_addr . ipv4_addr . inet_proto . inet_service", _hairpins(own)),
        _set("cluster-ips", "ipv4_addr", (e.cluster_ip for e in entries)),
        _set("nodeport-ips", "ipv4_addr", [NODE_IP]),
        _set("no-endpoint-services", "ipv4_addr . inet_proto . inet_service : verdict", (), "map"),
        _set("service-ips", "ipv4_addr . inet_proto . inet_service : verdict", map(_service, entries), "map"),
        _set("service-nodeports", "inet_proto . inet_service : verdict", (), "map"),
    )
    return f"table ip kube-proxy {{\n{''.join(sets)}{_CHAINS}{''.join(map(_chain, entries))}}}\n"


def _set(name: str, types: str, elements: Iterator[str] | Sequence[str] | map, kind: str = "set") -> str:
    inside = ",\n\t\t\t     ".join(elements)
    held = f"\t\telements = {{ {inside} }}\n" if inside else ""
    return f"\t{kind} {name} {{\n\t\ttype {types}\n{held}\t}}\n\n"


def _hairpins(own: Sequence[str]) -> Iterator[str]:
    return (f"{a} . {a} . tcp . 8080" for a in own)


def _service(entry: Entry) -> str:
    return f"{entry.cluster_ip} . tcp . 80 : goto {_name(entry)}"


def _name(entry: Entry) -> str:
    return f"service-ABCDEFGH-ns/{entry.name.service}/tcp/http"


def _chain(entry: Entry) -> str:
    places = ", ".join(f"{i} : {b.address} . {b.port}" for i, b in enumerate(entry.cluster))
    return (
        f"\tchain {_name(entry)} {{\n"
        f"\t\tmeta l4proto tcp dnat ip to numgen random mod {len(entry.cluster)} map {{ {places} }}\n\t}}\n\n"
    )


_CHAINS = f"""\
	chain filter-forward {{
		type filter hook forward priority filter; policy accept;
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}}

	chain filter-output {{
		type filter hook output priority filter; policy accept;
		ct state new jump service-endpoints-check
		ct state new jump cluster-ips-check
	}}

	chain nat-prerouting {{
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}}

	chain nat-output {{
		type nat hook output priority -100; policy accept;
		jump services
	}}

	chain nat-postrouting {{
		type nat hook postrouting priority srcnat; policy accept;
		jump masquerading
	}}

	chain service-endpoints-check {{
		ip daddr . meta l4proto . th dport vmap @no-endpoint-services
	}}

	chain services {{
		ip daddr @cluster-ips ip saddr != {PODS} meta mark set meta mark | 0x00004000
		ip daddr . meta l4proto . th dport vmap @service-ips
		ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
	}}

	chain masquerading {{
		meta mark & 0x00004000 != 0x00000000 meta mark set meta mark ^ 0x00004000 masquerade fully-random
		ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random
	}}

	chain cluster-ips-check {{
		ip daddr @cluster-ips reject
		ip daddr 10.96.0.0/16 drop
	}}

"""


def objects(entries: Sequence[Entry]) -> str:
    """Services and EndpointSlices as one list, in JSON."""
    items = [item for entry in entries for item in (_service_object(entry), _slice_object(entry))]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _service_object(entry: Entry) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": entry.name.service, "namespace": "ns"},
        "spec": {"clusterIP": entry.cluster_ip, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    }


def _slice_object(entry: Entry) -> dict[str, object]:
    labels = {"kubernetes.io/service-name": entry.name.service}
    endpoints = [
        {"addresses": [b.address], "conditions": {"ready": True}, "nodeName": NODE if b.local else "node-2"}
        for b in entry.cluster
    ]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{entry.name.service}-x", "namespace": "ns", "labels": labels},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints,
    }


def write(folder: Path, services: int) -> None:
    entries = table(services)
    (folder / LAYOUTS["iptables"]).write_text(iptables_save(entries))
    (folder / LAYOUTS["nft"]).write_text(nft_list(entries))
    (folder / "objects.json").write_text(objects(entries))

"""kube-proxy's nftables layout (1.36) at size, as input of `nft -f`: a chain for each Service, led to by one map.

The sets, maps and chains that all Services share are those of `nft list ruleset` on a node that it serves.
"""

import hashlib
import subprocess
from base64 import b32encode
from collections.abc import Iterable

from clusterip.kernel import netns
from clusterip.services.table import Entry
from entries import NODE_IP, PODS

_T = "ip kube-proxy"
_PLACE = "type ipv4_addr . inet_proto . inet_service"
_BASE = f"""
add table {_T} {{ comment "rules for kube-proxy" ; }}
add set {_T} hairpin-connections {{ type ipv4_addr . ipv4_addr . inet_proto . inet_service; }}
add set {_T} cluster-ips {{ type ipv4_addr; }}
add set {_T} nodeport-ips {{ type ipv4_addr; elements = {{ {NODE_IP} }}; }}
add map {_T} no-endpoint-services {{ {_PLACE} : verdict; }}
add map {_T} no-endpoint-nodeports {{ type inet_proto . inet_service : verdict; }}
add map {_T} firewall-ips {{ {_PLACE} : verdict; }}
add map {_T} service-ips {{ {_PLACE} : verdict; }}
add map {_T} service-nodeports {{ type inet_proto . inet_service : verdict; }}
add chain {_T} filter-prerouting-pre-dnat {{ type filter hook prerouting priority -110; }}
add chain {_T} filter-output-pre-dnat {{ type filter hook output priority -110; }}
add chain {_T} filter-input {{ type filter hook input priority 0; }}
add chain {_T} filter-forward {{ type filter hook forward priority 0; }}
add chain {_T} filter-output {{ type filter hook output priority 0; }}
add chain {_T} nat-prerouting {{ type nat hook prerouting priority -100; }}
add chain {_T} nat-output {{ type nat hook output priority -100; }}
add chain {_T} nat-postrouting {{ type nat hook postrouting priority 100; }}
add chain {_T} nodeport-endpoints-check
add chain {_T} service-endpoints-check
add chain {_T} firewall-check
add chain {_T} services
add chain {_T} masquerading
add chain {_T} cluster-ips-check
add chain {_T} reject-chain
add rule {_T} filter-prerouting-pre-dnat ct state new jump firewall-check
add rule {_T} filter-output-pre-dnat ct state new jump firewall-check
add rule {_T} filter-input ct state new jump nodeport-endpoints-check
add rule {_T} filter-input ct state new jump service-endpoints-check
add rule {_T} filter-forward ct state new jump service-endpoints-check
add rule {_T} filter-forward ct state new jump cluster-ips-check
add rule {_T} filter-output ct state new jump service-endpoints-check
add rule {_T} filter-output ct state new jump cluster-ips-check
add rule {_T} nat-prerouting jump services
add rule {_T} nat-output jump services
add rule {_T} nat-postrouting jump masquerading
add rule {_T} nodeport-endpoints-check ip daddr @nodeport-ips meta l4proto . th dport vmap @no-endpoint-nodeports
add rule {_T} service-endpoints-check ip daddr . meta l4proto . th dport vmap @no-endpoint-services
add rule {_T} firewall-check ip daddr . meta l4proto . th dport vmap @firewall-ips
add rule {_T} services ip daddr @cluster-ips ip saddr != {PODS} meta mark set meta mark or 0x4000
add rule {_T} services ip daddr . meta l4proto . th dport vmap @service-ips
add rule {_T} services ip daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports
add rule {_T} masquerading meta mark and 0x4000 != 0 meta mark set meta mark xor 0x4000 masquerade fully-random
add rule {_T} masquerading ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections masquerade
add rule {_T} cluster-ips-check ip daddr @cluster-ips reject
add rule {_T} cluster-ips-check ip daddr 10.96.0.0/16 drop
add rule {_T} reject-chain reject
"""


def whole(entries: Iterable[Entry]) -> str:
    return _BASE + "".join(map(added, entries))


def added(e: Entry) -> str:
    member = f"add element {_T} cluster-ips {{ {e.cluster_ip} }}\n"
    verdict = f"add element {_T} service-ips {{ {_place(e)} : goto {_chain(e)} }}\n"
    return f"add chain {_T} {_chain(e)}\n{_rule(e)}{member}{verdict}"


def removed(e: Entry) -> str:
    member = f"delete element {_T} cluster-ips {{ {e.cluster_ip} }}\n"
    verdict = f"delete element {_T} service-ips {{ {_place(e)} }}\n"
    return f"{verdict}{member}flush chain {_T} {_chain(e)}\ndelete chain {_T} {_chain(e)}\n"


def changed(e: Entry) -> str:
    """Its backends are others than before."""
    return f"flush chain {_T} {_chain(e)}\n{_rule(e)}"


def nft(node: str, text: str) -> None:
    """Load it into the namespace."""
    subprocess.run(("nsenter", f"--net={netns.path(node)}", "nft", "-f", "-"), input=text.encode(), check=True)


def _chain(e: Entry) -> str:
    full = f"{e.name.namespace}/{e.name.service}/tcp/{e.name.port}"
    return f"service-{b32encode(hashlib.sha256(full.encode()).digest())[:8].decode()}-{full}"


def _rule(e: Entry) -> str:
    ends = ", ".join(f"{i} : {b.address} . {b.port}" for i, b in enumerate(e.cluster))
    spread = f"dnat ip to numgen random mod {len(e.cluster)} map {{ {ends} }}"
    return f"add rule {_T} {_chain(e)} meta l4proto tcp {spread}\n"


def _place(e: Entry) -> str:
    return f"{e.cluster_ip} . tcp . {e.port}"

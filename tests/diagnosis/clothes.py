"""Faults in other clothes: what rows of them have in common, and how one is held against the diagnosis."""

import json
from fractions import Fraction
from typing import NamedTuple

from tests.diagnosis.dumps import (
    chain_suffix,
    nat,
    ready,
    service_rules,
    slice_of,
)

from clusterip.diagnosis.doctor import diagnose
from clusterip.diagnosis.findings import Finding
from clusterip.rulesets.recognise import read

WEB = ("default/web", "10.96.0.20", 80)
TWO = ("10.244.1.5:80", "10.244.2.6:80")


def findings(*texts: str, node: str = "") -> tuple[Finding, ...]:
    return diagnose([read(f"file-{n}", text.encode()) for n, text in enumerate(texts)], node).findings


class Row(NamedTuple):
    id: str
    object: str
    texts: tuple[str, ...]
    share: Fraction | None = None
    node: str = ""


NFT_EMPTY = """table ip kube-proxy {
	map no-endpoint-services {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.20 . tcp . 80 comment "default/web" : goto reject-chain }
	}
	chain filter-forward {
		type filter hook forward priority filter; policy accept;
		ct state new jump service-endpoints-check
	}
	chain service-endpoints-check {
		ip daddr . meta l4proto . th dport vmap @no-endpoint-services
	}
	chain reject-chain {
		reject
	}
}
"""

NFT_SERVICE = """table ip kube-proxy {
	set cluster-ips {
		type ipv4_addr
		elements = { 10.96.0.20 }
	}
	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		elements = { 10.96.0.20 . tcp . 80 : goto service-ABCDEFGH-default/web/tcp/ }
	}
	chain nat-prerouting {
		type nat hook prerouting priority dstnat; policy accept;
		jump services
	}
	chain services {
		ip daddr @cluster-ips ip saddr != 10.244.0.0/16 jump mark-for-masquerade
		ip daddr . meta l4proto . th dport vmap @service-ips
	}
	chain mark-for-masquerade {
		meta mark set meta mark | 0x00004000
	}
	chain service-ABCDEFGH-default/web/tcp/ {
		%s
	}
%s}
"""
NFT_MAP = "meta l4proto tcp dnat ip to numgen random mod 2 map { 0 : 10.244.1.5 . 80, 1 : 10.244.2.6 . 80 }"
NFT_CHAINS = (
    "numgen random mod 2 vmap { 0 : goto endpoint-A-default/web/tcp/__10.244.1.5/80, "
    "1 : goto endpoint-B-default/web/tcp/__10.244.2.6/80 }"
)
NFT_ENDPOINTS = """	chain endpoint-A-default/web/tcp/__10.244.1.5/80 {
		meta l4proto tcp dnat to 10.244.1.5:80
	}
	chain endpoint-B-default/web/tcp/__10.244.2.6/80 {
		meta l4proto tcp dnat to 10.244.2.6:80
	}
"""
IPVS_TWO = """IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn
TCP  10.96.0.20:80 rr
  -> 10.244.1.5:80                Masq    1      0          0
  -> 10.244.2.6:80                Masq    1      0          0
"""
ONE_SLICE = slice_of("web", ready("10.244.1.5"))
BOTH = slice_of("web", f"{ready('10.244.1.5')}, {ready('10.244.2.6')}")
FORWARD = '-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD'
KUBE_FORWARD = (
    "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
    "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT",
    "-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
)


def as_json(text: str) -> str:
    import yaml

    documents = [d for d in yaml.safe_load_all(text) if d]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})


WEB_RULES = nat(service_rules(*WEB, TWO))
SVC = "service default/web"
LAST_CHAIN = f"KUBE-SEP-{chain_suffix('default/webtcp10.244.2.6:80')}"
HALF, ALL = Fraction(1, 2), Fraction(1)


def named(row: Row) -> str:
    return f"{row.id} {row.object}"


def holds(row: Row) -> None:
    """The fault has the same id, object and share whatever shows it."""
    found = findings(*row.texts, node=row.node)
    alike = [f for f in found if f.id == row.id and f.object == row.object]
    assert alike, [(f.level, f.id, f.object) for f in found]
    assert alike[0].share == row.share

# ruff: noqa: E501  (a dump is as wide as its program prints it)
"""Each kind of fault in other clothes: other names and families, another dataplane, another command's output."""

import json
from fractions import Fraction
from typing import NamedTuple

import pytest
from tests.diagnosis.dumps import (
    RUNNING,
    UNREADY,
    chain_suffix,
    manifest,
    nat,
    pod,
    ready,
    save,
    service,
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

ROWS = [
    # --- selection ---
    Row("no-endpoints", SVC, (service("web", "10.96.0.20"), slice_of("web", "")), ALL),
    Row("no-endpoints", SVC, (as_json(service("web", "10.96.0.20") + slice_of("web", "")),), ALL),
    Row("no-endpoints", SVC, (NFT_EMPTY,), ALL),
    Row(
        "no-endpoints",
        "virtual server 10.96.0.20:80/tcp",
        ("TCP  10.96.0.20:80 rr\n  -> 10.244.1.5:80  Masq  0  0  0\n",),
        ALL,
    ),
    Row("no-endpoints", SVC, (service("web", "fd00::20", spec=", ipFamilies: [IPv6]"), slice_of("web", "")), ALL),
    Row(
        "selector-matches-no-pod",
        SVC,
        (service("web", "10.96.0.20", selector="App: web"), slice_of("web", ""), pod("p", "app: web", RUNNING)),
        ALL,
    ),
    Row(
        "selector-matches-no-pod",
        SVC,
        (service("web", "10.96.0.20"), slice_of("web", ""), pod("p", "app: web", RUNNING, namespace="prod")),
        ALL,
    ),
    Row("selector-matches-no-pod", SVC, (service("web", "None"), pod("p", "app: api", RUNNING)), ALL),
    Row(
        "all-endpoints-not-ready",
        SVC,
        (service("web", "10.96.0.20"), slice_of("web", ""), pod("p", "app: web", UNREADY)),
        ALL,
    ),
    Row(
        "all-endpoints-not-ready",
        SVC,
        (service("web", "10.96.0.20"), slice_of("web", "{addresses: [10.244.1.5], conditions: {ready: false}}")),
        ALL,
    ),
    Row(
        "all-endpoints-not-ready",
        SVC,
        (
            service("web", "10.96.0.20"),
            pod(
                "p",
                "app: web",
                "phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ImagePullBackOff}}}]",
            ),
        ),
        ALL,
    ),
    Row(
        "named-port-missing",
        SVC,
        (
            service("web", "10.96.0.20").replace("8080", "http"),
            pod("p", "app: web", RUNNING, "containers: [{name: c, ports: [{name: htpp, containerPort: 8080}]}]"),
        ),
        ALL,
    ),
    Row(
        "named-port-missing",
        "service default/web",
        (
            service("web", "10.96.0.20").replace("8080", "dns"),
            pod(
                "p",
                "app: web",
                RUNNING,
                "containers: [{name: c, ports: [{name: dns, containerPort: 53, protocol: UDP}]}]",
            ),
        ),
        ALL,
    ),
    Row("family-mismatch", SVC, (service("web", "fd00::20"), ONE_SLICE), ALL),
    Row(
        "family-mismatch",
        SVC,
        (
            service("web", "10.96.0.20", spec=", clusterIPs: [10.96.0.20, 'fd00::20'], ipFamilies: [IPv4, IPv6]"),
            ONE_SLICE,
        ),
        ALL,
    ),
    # --- slices ---
    Row(
        "slice-ignored",
        "slice default/web-x",
        (service("web", "10.96.0.20"), slice_of("web", ready("10.244.1.5"), "{name: http, port: 80}")),
    ),
    Row(
        "slice-ignored",
        "slice default/web-x",
        (service("web", "10.96.0.20"), slice_of("web", ready("10.244.1.5"), '{name: ""}')),
    ),
    Row(
        "slice-ignored",
        "slice default/web-x",
        (
            service("web", "10.96.0.20"),
            slice_of("web", ready("10.244.1.5"), more=', service.kubernetes.io/headless: ""'),
        ),
    ),
    Row(
        "slice-ignored",
        "slice default/wbe-x",
        (service("web", "10.96.0.20").replace("selector: {app: web}, ", ""), slice_of("wbe", ready("10.244.1.5"))),
    ),
    Row(
        "slice-ignored",
        "slice default/web-f",
        (
            service("web", "10.96.0.20"),
            ONE_SLICE,
            slice_of("web", ready("db.example.org"), suffix="f").replace("IPv4", "FQDN"),
        ),
    ),
    Row(
        "duplicate-endpoint",
        SVC,
        (service("web", "10.96.0.20"), ONE_SLICE, slice_of("web", ready("10.244.1.5"), suffix="y")),
    ),
    Row(
        "traffic-to-terminating",
        SVC,
        (
            service("web", "10.96.0.20"),
            slice_of("web", "{addresses: [10.244.1.5], conditions: {ready: false, serving: true, terminating: true}}"),
        ),
        ALL,
    ),
    Row(
        "traffic-to-terminating",
        SVC,
        (
            slice_of(
                "web",
                f"{ready('10.244.1.6')}, {{addresses: [10.244.1.5], conditions: {{ready: true, terminating: true}}}}",
            ),
        ),
        HALF,
    ),
    Row(
        "endpoints-truncated",
        SVC,
        (
            manifest(
                """
                apiVersion: v1
                kind: Endpoints
                metadata: {name: web, namespace: default, annotations: {endpoints.kubernetes.io/over-capacity: truncated}}
                subsets: [{addresses: [{ip: 10.244.1.5}], ports: [{port: 80}]}]
                """
            ),
        ),
    ),
    # --- kinds, policies, ranges ---
    Row(
        "externalname-selector",
        SVC,
        (
            manifest(
                "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: ExternalName, externalName: a.b, selector: {app: x}}}"
            ),
        ),
    ),
    Row(
        "externalname-selector",
        SVC,
        (
            manifest(
                "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: ExternalName, externalName: a.b, ports: [{port: 80, targetPort: 81}]}}"
            ),
        ),
    ),
    Row("headless-port-remap", SVC, (service("web", "None"),)),
    Row(
        "itp-local",
        SVC,
        (
            service("web", "10.96.0.20", spec=", internalTrafficPolicy: Local"),
            slice_of("web", ready("10.244.1.5", ", nodeName: n1")),
        ),
        ALL,
        "n2",
    ),
    Row(
        "itp-local",
        SVC,
        (
            service("web", "10.96.0.20", spec=", internalTrafficPolicy: Local"),
            slice_of("web", ready("10.244.1.5", ", nodeName: n1")),
            manifest("{apiVersion: v1, kind: NodeList, items: [{metadata: {name: n1}}, {metadata: {name: n2}}]}"),
        ),
        HALF,
    ),
    Row(
        "itp-local",
        SVC,
        (
            save(
                "filter",
                [
                    "-A FORWARD -m conntrack --ctstate NEW -j KUBE-SERVICES",
                    '-A KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "default/web has no local endpoints" -m tcp --dport 80 -j DROP',
                ],
            ),
        ),
        ALL,
    ),
    Row(
        "no-local-endpoints",
        SVC,
        (
            save(
                "filter",
                [
                    "-A FORWARD -m conntrack --ctstate NEW -j KUBE-EXTERNAL-SERVICES",
                    '-A KUBE-EXTERNAL-SERVICES -d 203.0.113.7/32 -p tcp -m comment --comment "default/web has no local endpoints" -m tcp --dport 80 -j DROP',
                ],
            ),
        ),
        ALL,
    ),
    Row(
        "no-local-endpoints",
        SVC,
        (
            service("web", "10.96.0.20", spec=", type: NodePort, externalTrafficPolicy: Local"),
            slice_of("web", ready("10.244.1.5", ", nodeName: ip-10-0-0-7")),
            manifest("{apiVersion: v1, kind: Node, metadata: {name: worker-1}}"),
        ),
        ALL,
    ),
    Row("affinity-refresh", SVC, (service("web", "10.96.0.20", spec=", sessionAffinity: ClientIP"),)),
    Row(
        "cidr-overlap",
        "podSubnet 10.96.0.0/11",
        (
            manifest(
                "{apiVersion: kubeadm.k8s.io/v1beta4, kind: ClusterConfiguration, networking: {podSubnet: 10.96.0.0/11, serviceSubnet: 10.96.0.0/12}}"
            ),
        ),
    ),
    Row(
        "cidr-overlap",
        "podCIDR 10.244.1.0/24 of node a",
        (
            manifest(
                "{apiVersion: v1, kind: NodeList, items: [{metadata: {name: a}, spec: {podCIDR: 10.244.1.0/24}}, {metadata: {name: b}, spec: {podCIDR: 10.244.1.0/24}}]}"
            ),
        ),
    ),
    Row(
        "cidr-overlap",
        "address 10.244.9.9",
        (WEB_RULES, "2: eth0: <UP> mtu 1500\n    inet 10.244.9.9/24 scope global eth0\n"),
    ),
    Row(
        "cidr-overlap",
        SVC,
        (
            service("web", "10.244.3.3"),
            manifest(
                "{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, clusterCIDR: 10.244.0.0/16}"
            ),
        ),
    ),
    Row(
        "dns-ip-taken",
        SVC,
        (
            service("web", "10.96.0.10"),
            manifest(
                "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, clusterDNS: [10.96.0.10]}"
            ),
        ),
    ),
    Row("dns-ip-taken", SVC, (service("web", "10.96.0.10"), service("kubernetes", "10.96.0.1", 443))),
    # --- rules against the API, in each dataplane ---
    Row("stale-endpoint", SVC, (WEB_RULES, ONE_SLICE), HALF),
    Row("stale-endpoint", SVC, (NFT_SERVICE % (NFT_MAP, ""), ONE_SLICE), HALF),
    Row("stale-endpoint", SVC, (NFT_SERVICE % (NFT_CHAINS, NFT_ENDPOINTS), ONE_SLICE), HALF),
    Row("stale-endpoint", SVC, (NFT_SERVICE % ("meta l4proto tcp dnat to 10.244.9.9:80", ""), ONE_SLICE), ALL),
    Row("stale-endpoint", SVC, (IPVS_TWO, service("web", "10.96.0.20"), ONE_SLICE), HALF),
    Row(
        "stale-endpoint",
        SVC,
        (WEB_RULES.replace("COMMIT\n", "COMMIT\n").replace(" [0:0]", " [5:300]"), as_json(ONE_SLICE)),
        HALF,
    ),
    Row("missing-endpoint", SVC, (nat(service_rules(*WEB, TWO[:1])), BOTH)),
    Row("missing-endpoint", SVC, (NFT_SERVICE % ("meta l4proto tcp dnat to 10.244.1.5:80", ""), BOTH)),
    Row("missing-endpoint", SVC, (NFT_EMPTY, ONE_SLICE), ALL),
    Row("node-drift", SVC, (WEB_RULES, nat(service_rules(*WEB, TWO[:1])), WEB_RULES)),
    Row("node-drift", SVC, (NFT_SERVICE % (NFT_MAP, ""), NFT_SERVICE % ("meta l4proto tcp dnat to 10.244.1.5:80", ""))),
    Row("node-drift", SVC, (WEB_RULES, WEB_RULES, nat(service_rules("default/api", "10.96.0.21", 80, TWO))), ALL),
    Row(
        "duplicate-backends",
        "iptables-legacy and nftables",
        (WEB_RULES, NFT_SERVICE % (NFT_MAP, "")),
    ),
    Row("stale-mode-rules", "iptables rules", (WEB_RULES, IPVS_TWO)),
    Row(
        "stale-mode-rules",
        "iptables rules",
        (
            WEB_RULES,
            NFT_SERVICE % (NFT_MAP, ""),
            'I1130 12:00:00.000001       1 server_linux.go:1] "Using nftables Proxier"\n',
        ),
    ),
    Row(
        "orphaned-rules",
        "iptables rules",
        (
            WEB_RULES,
            manifest(
                '{apiVersion: v1, kind: ConfigMap, metadata: {name: cilium-config, namespace: kube-system}, data: {kube-proxy-replacement: "true"}}'
            ),
        ),
    ),
    Row(
        "orphaned-rules",
        "iptables rules",
        (
            WEB_RULES,
            pod("coredns-1", "k8s-app: kube-dns", RUNNING, namespace="kube-system"),
            pod("cilium-x", "a: b", RUNNING, namespace="kube-system"),
        ),
    ),
    # --- rules in themselves ---
    Row(
        "reject-not-hooked",
        "filter/KUBE-SERVICES",
        (
            save(
                "filter",
                [
                    "-A INPUT -m conntrack --ctstate NEW -j KUBE-SERVICES",
                    '-A KUBE-SERVICES -d 10.96.0.20/32 -p udp -m comment --comment "default/web has no endpoints" -m udp --dport 80 -j REJECT',
                ],
            ),
        ),
        ALL,
    ),
    Row(
        "chain-missing",
        f"nat/{LAST_CHAIN}",
        (WEB_RULES.replace(f":{LAST_CHAIN} - [0:0]\n", "").replace(f"-A {LAST_CHAIN} ", "# "),),
    ),
    Row(
        "chain-missing",
        "ip kube-proxy/endpoint-B-default/web/tcp/__10.244.2.6/80",
        (NFT_SERVICE % ("goto endpoint-B-default/web/tcp/__10.244.2.6/80", ""),),
    ),
    Row(
        "unconditional-drop",
        "filter/KUBE-FIREWALL",
        (save("filter", ["-A OUTPUT -j KUBE-FIREWALL", "-A KUBE-FIREWALL -j DROP"], variant="nf_tables"),),
        ALL,
    ),
    Row(
        "unconditional-drop",
        "filter/KUBE-FIREWALL",
        (
            "-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n-N KUBE-FIREWALL\n-A INPUT -j KUBE-FIREWALL\n-A KUBE-FIREWALL -j DROP\n",
        ),
        ALL,
    ),
    Row(
        "unconditional-drop",
        "filter/KUBE-FIREWALL",
        (
            "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy accept;\n"
            "\t\tcounter packets 9 bytes 540 jump KUBE-FIREWALL\n\t}\n\tchain KUBE-FIREWALL {\n\t\tcounter packets 9 bytes 540 drop\n\t}\n}\n",
        ),
        ALL,
    ),
    Row("duplicate-rules", "nat/POSTROUTING", (save("nat", ["-A POSTROUTING -s 10.244.0.0/16 -j MASQUERADE"] * 4),)),
    Row(
        "shadowed-rule",
        SVC,
        (nat(["-A KUBE-SERVICES -d 10.96.0.0/16 -j RETURN"], service_rules(*WEB, TWO)),),
    ),
    Row(
        "shadowed-rule",
        "service default/api",
        (nat(service_rules(*WEB, TWO[:1]), service_rules("default/api", "10.96.0.20", 80, TWO[1:])),),
    ),
    Row(
        "masquerade-missing",
        SVC,
        (
            "\n".join(line for line in WEB_RULES.split("\n") if "! -s" not in line),
            'I1130 12:00:00.000001       1 server.go:1] "Defaulting to no-op detect-local" detectLocalMode="ClusterCIDR"\n',
        ),
    ),
    Row(
        "masquerade-missing",
        SVC,
        ("\n".join(x for x in (NFT_SERVICE % (NFT_MAP, "")).split("\n") if "saddr" not in x),),
    ),
    Row("masquerade-all", SVC, (WEB_RULES.replace("! -s 10.244.0.0/16 ", ""),)),
    Row("masquerade-all", SVC, ((NFT_SERVICE % (NFT_MAP, "")).replace("ip saddr != 10.244.0.0/16 ", ""),)),
    Row(
        "masquerade-all",
        "nat/KUBE-POSTROUTING",
        (
            save(
                "nat",
                [
                    "-A POSTROUTING -j KUBE-POSTROUTING",
                    '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE',
                ],
            ),
        ),
    ),
    Row(
        "double-masquerade",
        "nat/POSTROUTING",
        (
            nat(
                ["-A POSTROUTING ! -s 10.244.0.0/16 -d 10.244.0.0/16 -j MASQUERADE --random-fully"],
                service_rules(*WEB, TWO),
            ),
        ),
    ),
    Row(
        "wrong-source-address",
        SVC,
        (
            "\n".join(line for line in WEB_RULES.split("\n") if "! -s" not in line),
            "default via 10.0.2.2 dev enp0s3 proto dhcp src 10.0.2.15 metric 100\n10.244.0.0/16 via 192.168.56.1 dev enp0s8\n",
        ),
    ),
    Row(
        "coarse-probabilities",
        SVC,
        (
            nat(service_rules(*WEB, ("10.244.1.1:80", "10.244.1.2:80", "10.244.1.3:80"))).replace(
                "0.33333333349", "0.33000000000"
            ),
        ),
    ),
    Row("rounding-only", SVC, (nat(service_rules(*WEB, ("10.244.1.1:80", "10.244.1.2:80", "10.244.1.3:80"))),)),
    Row(
        "rounding-only",
        SVC,
        (
            nat(service_rules(*WEB, ("10.244.1.1:80", "10.244.1.2:80", "10.244.1.3:80"))).replace(
                "0.33333333349", "0.33332999982"
            ),
        ),
    ),
    Row("invalid-not-dropped", "filter/KUBE-FORWARD", (save("filter", [FORWARD, *KUBE_FORWARD[1:]]),)),
    Row(
        "mixed-backends",
        "iptables-legacy",
        (
            save(
                "nat",
                ["-A POSTROUTING -j KUBE-POSTROUTING"],
                variant="nf_tables",
                warning="# Warning: iptables-legacy tables present, use iptables-legacy-save to see them",
            ),
        ),
    ),
    # --- firewalls ---
    Row(
        "forward-policy-drop",
        "filter/FORWARD",
        (WEB_RULES, save("filter", [FORWARD, *KUBE_FORWARD], policy="DROP")),
        ALL,
    ),
    Row(
        "forward-policy-drop",
        "filter/FORWARD",
        (
            save(
                "filter",
                [
                    "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT",
                    "-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
                ],
                policy="DROP",
            ),
        ),
        ALL,
    ),
    Row(
        "host-firewall",
        "filter/FORWARD",
        (
            WEB_RULES,
            save("filter", [FORWARD, "-A FORWARD -j REJECT --reject-with icmp-host-prohibited", *KUBE_FORWARD]),
        ),
        ALL,
    ),
    Row(
        "host-firewall",
        "filter/ufw-reject-forward",
        (
            WEB_RULES,
            save(
                "filter",
                [
                    FORWARD,
                    "-A FORWARD -j ufw-reject-forward",
                    "-A ufw-reject-forward -j REJECT --reject-with icmp-port-unreachable",
                    *KUBE_FORWARD,
                ],
            ),
        ),
        ALL,
    ),
    Row(
        "host-firewall",
        "inet firewalld/filter_FORWARD",
        (
            WEB_RULES,
            "table inet firewalld {\n\tchain filter_FORWARD {\n\t\ttype filter hook forward priority filter + 10; policy accept;\n"
            "\t\tct state { established, related } accept\n\t\treject with icmpx admin-prohibited\n\t}\n}\n",
        ),
        ALL,
    ),
    # --- the connection table ---
    Row(
        "conntrack-blackhole",
        SVC,
        (
            WEB_RULES,
            "ipv4     2 udp      17 25 src=10.244.3.3 dst=10.96.0.20 sport=4000 dport=80 [UNREPLIED] src=10.96.0.20 dst=10.244.3.3 sport=80 dport=4000 mark=0 zone=0 use=2\n".replace(
                "udp      17", "tcp      6"
            ).replace("25 src", "110 SYN_SENT src"),
        ),
    ),
    Row(
        "conntrack-blackhole",
        SVC,
        (
            NFT_SERVICE % (NFT_MAP, ""),
            "tcp      6 110 SYN_SENT src=10.244.3.3 dst=10.96.0.20 sport=4000 dport=80 [UNREPLIED] src=10.96.0.20 dst=10.244.3.3 sport=80 dport=4000 mark=0 use=1\n",
        ),
    ),
    Row(
        "conntrack-stale-backend",
        "service default/dns",
        (
            nat(service_rules("default/dns", "10.96.0.10", 53, ("10.244.1.5:53",), "udp")),
            "udp      17 170 src=10.244.3.3 dst=10.96.0.10 sport=4000 dport=53 src=10.244.9.9 dst=10.244.3.3 sport=53 dport=4000 [ASSURED] mark=0 use=1\n",
        ),
    ),
    Row(
        "conntrack-stale-backend",
        SVC,
        (
            service("web", "10.96.0.20").replace("port: 80", "port: 80, protocol: UDP"),
            slice_of("web", ready("10.244.1.5"), '{name: "", port: 80, protocol: UDP}'),
            "udp      17 29 src=10.244.3.3 dst=10.96.0.20 sport=4000 dport=80 [UNREPLIED] src=10.244.9.9 dst=10.244.3.3 sport=80 dport=4000 mark=0 use=1\n",
        ),
    ),
    Row(
        "conntrack-wrong-service",
        SVC,
        (
            nat(service_rules(*WEB, TWO), service_rules("default/db", "10.96.0.30", 5432, ("10.244.9.9:5432",))),
            "tcp      6 110 SYN_SENT src=10.244.3.3 dst=10.96.0.20 sport=4000 dport=80 [UNREPLIED] src=10.244.9.9 dst=10.244.3.3 sport=80 dport=4000 mark=0 use=1\n",
        ),
    ),
    Row(
        "established-flows",
        SVC,
        (
            WEB_RULES,
            "tcp      6 86390 ESTABLISHED src=10.244.3.3 dst=10.96.0.20 sport=4000 dport=80 src=10.244.9.9 dst=10.244.3.3 sport=80 dport=4000 [ASSURED] mark=0 use=1\n",
        ),
    ),
    Row(
        "one-flow-one-backend",
        SVC,
        (
            WEB_RULES,
            "tcp      6 86390 ESTABLISHED src=10.244.3.3 dst=10.96.0.20 sport=4000 dport=80 src=10.244.1.5 dst=10.244.3.3 sport=80 dport=4000 [ASSURED] mark=0 use=1\n",
        ),
    ),
    Row(
        "wrong-service-port",
        SVC,
        (
            WEB_RULES,
            "tcp      6 110 SYN_SENT src=10.244.3.3 dst=10.96.0.20 sport=4000 dport=8080 [UNREPLIED] src=10.96.0.20 dst=10.244.3.3 sport=8080 dport=4000 mark=0 use=1\n",
        ),
    ),
    Row(
        "not-a-service-protocol",
        "address 10.96.0.20",
        (
            WEB_RULES,
            "icmp     1 29 src=10.244.3.3 dst=10.96.0.20 type=8 code=0 id=7 [UNREPLIED] src=10.96.0.20 dst=10.244.3.3 type=0 code=0 id=7 mark=0 use=1\n",
        ),
    ),
    Row(
        "conntrack-insert-failed",
        "conntrack table",
        ("cpu=0   \tfound=1 invalid=0 insert=0 insert_failed=9 drop=9 early_drop=0 error=0 search_restart=0\n",),
    ),
    Row(
        "conntrack-full",
        "setting net.netfilter.nf_conntrack_max",
        ("net.netfilter.nf_conntrack_count = 131072\nnet.netfilter.nf_conntrack_max = 131072\n",),
    ),
    Row(
        "conntrack-full",
        "setting net.netfilter.nf_conntrack_max",
        ("/proc/sys/net/netfilter/nf_conntrack_count:131070\n/proc/sys/net/netfilter/nf_conntrack_max:131070\n",),
    ),
    Row(
        "conntrack-full",
        "setting net.netfilter.nf_conntrack_max",
        ("[12345.678901] nf_conntrack: nf_conntrack: table full, dropping packet\n",),
    ),
    Row(
        "snat-port-is-nodeport",
        "service default/web",
        (
            service("web", "10.96.0.20", spec=", type: NodePort").replace("port: 80,", "port: 80, nodePort: 31811,"),
            "tcp      6 110 SYN_SENT src=10.244.3.3 dst=192.0.2.9 sport=4000 dport=443 [UNREPLIED] src=192.0.2.9 dst=192.168.1.7 sport=443 dport=31811 mark=0 use=1\n",
        ),
    ),
    # --- host ---
    Row(
        "br-netfilter",
        "setting net.bridge.bridge-nf-call-iptables",
        ("net.bridge.bridge-nf-call-iptables = 0\nnet.ipv4.ip_forward = 1\n",),
    ),
    Row(
        "br-netfilter",
        "setting net.bridge.bridge-nf-call-ip6tables",
        ("/proc/sys/net/bridge/bridge-nf-call-ip6tables 0\n",),
    ),
    Row(
        "rp-filter",
        "setting net.ipv4.conf.all.rp_filter",
        ("net.ipv4.conf.all.rp_filter = 1\nnet.ipv4.conf.eth0.rp_filter = 0\n",),
    ),
    Row("tcp-tw-recycle", "setting net.ipv4.tcp_tw_recycle", ("net.ipv4.tcp_tw_recycle = 1\n",)),
    Row(
        "hairpin-off",
        "bridge cni0",
        ("/sys/class/net/cni0/brif/veth1/hairpin_mode:0\n/sys/class/net/cni0/brif/veth2/hairpin_mode:1\n",),
    ),
    Row(
        "hairpin-off",
        "bridge cni0",
        (
            "5: veth1@if3: <BROADCAST,UP> mtu 1500 qdisc noqueue master cni0 state UP mode DEFAULT\n    link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff\n    veth\n    bridge_slave state forwarding priority 32 cost 2 hairpin off guard off\n",
        ),
    ),
    # --- ipvs ---
    Row(
        "ipvs-weight-zero",
        "virtual server [fd00::20]:80/tcp",
        (
            "TCP  [fd00::20]:80 rr\n  -> [fd00:244::5]:80  Masq  0  0  0\n",
            slice_of("web", ready("'fd00:244::5'")).replace("IPv4", "IPv6"),
        ),
        ALL,
    ),
    Row(
        "ipvs-weight-zero",
        SVC,
        (
            "-A -t 10.96.0.20:80 -s rr\n-a -t 10.96.0.20:80 -r 10.244.1.5:80 -m -w 0\n-a -t 10.96.0.20:80 -r 10.244.2.6:80 -m -w 1\n",
            service("web", "10.96.0.20"),
            BOTH,
        ),
    ),
    Row(
        "ipvs-persistent-quiescent",
        "virtual server 10.96.0.20:80/tcp",
        (
            "-A -t 10.96.0.20:80 -s rr -p 600\n-a -t 10.96.0.20:80 -r 10.244.1.5:80 -m -w 0\n-a -t 10.96.0.20:80 -r 10.244.2.6:80 -m -w 1\n",
            "net/ipv4/vs/expire_quiescent_template = 0\n",
        ),
    ),
    Row(
        "draining",
        "virtual server 10.96.0.20:80/tcp",
        (IPVS_TWO.replace("Masq    1      0          0\n  ->", "Masq    0      3          0\n  ->"),),
    ),
    Row(
        "ipvs-port-reuse",
        "setting net.ipv4.vs.conn_reuse_mode",
        ("net.ipv4.vs.conn_reuse_mode = 1\nnet.ipv4.vs.conntrack = 1\n",),
    ),
    Row(
        "ipvs-port-reuse",
        "setting net.ipv4.vs.conn_reuse_mode",
        (
            IPVS_TWO,
            "IPVS connection entries\npro expire state       source             virtual            destination\nTCP 01:40  TIME_WAIT   10.244.3.3:4000    10.96.0.20:80      10.244.9.9:80\n",
        ),
    ),
    Row(
        "ipvs-loopback-missing",
        "ipset KUBE-LOOP-BACK",
        (
            IPVS_TWO,
            "create KUBE-LOOP-BACK hash:ip,port,ip family inet hashsize 1024 maxelem 65536\nadd KUBE-LOOP-BACK 10.244.2.6,tcp:80,10.244.2.6\n",
            "10.244.1.5 dev cali12345 scope link\n",
        ),
    ),
    Row("ipvs-host-masquerade-missing", "setting net.ipv4.vs.conntrack", ("net.ipv4.vs.conntrack = 0\n",), ALL),
    Row(
        "ipvs-host-masquerade-missing",
        "nat/KUBE-SERVICES",
        (IPVS_TWO, nat(["-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT"])),
    ),
    Row(
        "ipvs-address-conflict",
        "interface kube-ipvs0",
        (
            "3: eth0: <UP> mtu 1500\n    inet 192.168.1.7/24 scope global eth0\n9: kube-ipvs0: <NOARP> mtu 1500\n    inet 192.168.1.7/32 scope global kube-ipvs0\n",
        ),
    ),
    # --- logs ---
    Row(
        "sync-failing",
        "kube-proxy (file-0)",
        (
            'E1130 12:00:00.000001       1 proxier.go:1] "Failed to execute iptables-restore" err="exit status 1: iptables-restore: line 7 failed\\n"\n',
        ),
    ),
    Row(
        "sync-failing",
        "kube-proxy (file-0)",
        (
            "E1130 12:00:00.000001       1 proxier.go:1] Failed to execute iptables-restore: exit status 1 (iptables-restore v1.8.4: Couldn't load match `recent':No such file or directory\n",
        ),
    ),
    Row(
        "sync-failing",
        "kube-proxy (file-0)",
        (
            '{"ts":1700000000000.1,"caller":"nftables/proxier.go:1","msg":"nftables sync failed","err":"/dev/stdin:1:1-2: Error: Could not process rule: No such file or directory"}\n',
        ),
    ),
    Row(
        "xtables-lock",
        "kube-proxy (file-0)",
        (
            "E1130 12:00:00.000001       1 proxier.go:1] Failed to execute iptables-restore: exit status 4 (Another app is currently holding the xtables lock; still 4s 0us time ahead to have a chance to grab the lock...\n",
        ),
    ),
    Row(
        "slow-sync",
        "kube-proxy (file-0)",
        ("I1130 12:00:00.000001       1 proxier.go:1] syncProxyRules took 1m2.5s\n",),
    ),
    Row(
        "proxy-not-running",
        "kube-proxy (file-0)",
        ('E1130 12:00:00.000001       1 run.go:74] "command failed" err="failed complete: unknown proxy mode"\n',),
    ),
    # --- what else shows them ---
    Row(
        "no-endpoints",
        SVC,
        (service("web", "10.96.0.20"), slice_of("web", ""), pod("p", "app: web", "phase: Succeeded")),
        ALL,
    ),
    Row(
        "stale-endpoint",
        SVC,
        (
            WEB_RULES,
            slice_of("web", f"{ready('10.244.1.5')}, {{addresses: [10.244.2.6], conditions: {{ready: false}}}}"),
        ),
        HALF,
    ),
    Row(
        "traffic-to-terminating",
        SVC,
        (
            WEB_RULES,
            slice_of(
                "web",
                f"{ready('10.244.1.5')}, {{addresses: [10.244.2.6], conditions: {{ready: false, serving: true, terminating: true}}}}",
            ),
        ),
        HALF,
    ),
    Row(
        "dns-ip-taken",
        SVC,
        (service("web", "10.96.0.10"), "nameserver 10.96.0.10\nsearch default.svc.cluster.local\noptions ndots:5\n"),
    ),
    Row(
        "cidr-overlap",
        "route 10.244.0.0/20",
        (
            WEB_RULES,
            "default via 192.0.2.1 dev eth0\n10.244.0.0/20 dev docker0 proto kernel scope link src 10.244.0.1\n",
        ),
    ),
    Row(
        "orphaned-rules",
        "iptables rules",
        (
            WEB_RULES,
            manifest("{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: cilium, namespace: kube-system}}"),
        ),
    ),
    Row(
        "ipvs-loopback-missing",
        "nat/KUBE-POSTROUTING",
        (
            IPVS_TWO,
            nat(),
            "create KUBE-LOOP-BACK hash:ip,port,ip family inet hashsize 1024 maxelem 65536\nadd KUBE-LOOP-BACK 10.244.1.5,tcp:80,10.244.1.5\n",
        ),
    ),
    Row(
        "ipvs-loopback-missing",
        "ipset KUBE-LOOP-BACK",
        (IPVS_TWO, "create KUBE-LOOP-BACK hash:ip,port,ip family inet hashsize 1024 maxelem 65536\n"),
    ),
    Row(
        "conntrack-stale-backend",
        "service default/dns",
        (
            service("dns", "10.96.0.10", 53, spec=", type: NodePort").replace(
                "port: 53,", "port: 53, protocol: UDP, nodePort: 30053,"
            ),
            slice_of("dns", ready("10.244.1.5"), '{name: "", port: 53, protocol: UDP}'),
            "udp      17 170 src=203.0.113.9 dst=192.168.1.7 sport=4000 dport=30053 src=10.244.9.9 dst=192.168.1.7 sport=53 dport=4000 [ASSURED] mark=0 use=1\n",
        ),
    ),
    Row(
        "sync-failing",
        "kube-proxy (file-0)",
        (
            '{"lastUpdated": "2026-11-30 03:00:00.1 +0000 UTC", "currentTime": "2026-11-30 03:10:00.1 +0000 UTC", "nodeEligible": true}\n',
        ),
    ),
    Row(
        "one-flow-one-backend",
        "virtual server 10.96.0.20:80/tcp",
        (IPVS_TWO.replace("Masq    1      0          0\n  ->", "Masq    1      1          0\n  ->"),),
    ),
    Row("node-drift", SVC, (WEB_RULES, WEB_RULES, nat()), ALL),
    Row("incomplete-input", "input", (WEB_RULES,)),
    Row("incomplete-input", "input", ("tcp      6 86390 ESTABLISHED src=10.244.3.3 dst=10.96.0.20 spo\n" + WEB_RULES,)),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.id} {row.object}")
def test_a_fault_in_other_clothes_has_the_same_id(row: Row) -> None:
    found = findings(*row.texts, node=row.node)
    alike = [f for f in found if f.id == row.id and f.object == row.object]
    assert alike, [(f.level, f.id, f.object) for f in found]
    assert alike[0].share == row.share


def test_a_match_that_nobody_knows_is_named_and_not_taken_for_a_fault() -> None:
    rules = save("filter", [FORWARD, "-A FORWARD -m geoip --source-country XX -j DROP", *KUBE_FORWARD])
    found = findings(WEB_RULES, rules)
    assert not [f.id for f in found if f.level == "E"]
    unknown = [f for f in found if f.id == "unknown-match"]
    assert unknown
    assert unknown[0].level == "W"
    assert "geoip" in unknown[0].message
    assert unknown[0].remedy

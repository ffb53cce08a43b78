# ruff: noqa: E501  (a dump is as wide as its program prints it)
"""Firewalls, the connection table, the host: each fault in other clothes."""

from fractions import Fraction

import pytest
from tests.diagnosis.clothes import (
    ALL,
    FORWARD,
    KUBE_FORWARD,
    NFT_MAP,
    NFT_SERVICE,
    SVC,
    TWO,
    WEB,
    WEB_RULES,
    Row,
    findings,
    holds,
    named,
)
from tests.diagnosis.dumps import (
    nat,
    ready,
    save,
    service,
    service_rules,
    slice_of,
)

ROWS = [
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
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_fault_in_other_clothes_has_the_same_id(row: Row) -> None:
    holds(row)


def test_a_match_that_nobody_knows_is_named_and_not_taken_for_a_fault() -> None:
    rules = save("filter", [FORWARD, "-A FORWARD -m geoip --source-country XX -j DROP", *KUBE_FORWARD])
    found = findings(WEB_RULES, rules)
    assert not [f.id for f in found if f.level == "E"]
    unknown = [f for f in found if f.id == "unknown-match"]
    assert unknown
    assert unknown[0].level == "W"
    assert "geoip" in unknown[0].message
    assert unknown[0].remedy


PING = (
    "icmp     1 29 src=10.244.3.3 dst=10.96.0.20 type=8 code=0 id=7 [UNREPLIED] src=10.96.0.20 dst=10.244.3.3 "
    "type=0 code=0 id=7 mark=0 use=1\n"
)
ESTABLISHED = (
    "tcp      6 86390 ESTABLISHED src=192.168.50.11 dst=192.168.50.1 sport=4000 dport=6443 src=192.168.50.1 "
    "dst=192.168.50.11 sport=6443 dport=4000 [ASSURED] mark=0 use=1\n"
)


@pytest.mark.parametrize(("entries", "told"), [("", True), (ESTABLISHED, False), (PING, True)])
def test_pings_are_spoken_of_where_somebody_pings_or_nothing_tells_whether(entries: str, told: bool) -> None:
    found = findings(WEB_RULES, entries) if entries else findings(WEB_RULES)
    assert any(f.id == "not-a-service-protocol" for f in found) is told


@pytest.mark.parametrize(
    ("flags", "here", "found"),
    [
        ("TIME_WAIT src=10.244.3.3 dst=192.168.50.12 sport=4000 dport=30080", "", []),
        ("SYN_SENT src=10.244.3.3 dst=192.168.50.12 sport=4000 dport=30080 [UNREPLIED]", "", ["conntrack-blackhole"]),
        ("SYN_SENT src=10.244.3.3 dst=192.168.50.12 sport=4000 dport=30080 [UNREPLIED]", "192.168.50.11", []),
        (
            "SYN_SENT src=10.244.3.3 dst=192.168.50.12 sport=4000 dport=30080 [UNREPLIED]",
            "192.168.50.12",
            ["conntrack-blackhole"],
        ),
    ],
    ids=["answered", "unanswered", "unanswered by another node", "unanswered here"],
)
def test_a_node_port_is_translated_by_the_node_that_has_the_address(flags: str, here: str, found: list[str]) -> None:
    exposed = service("web", "10.96.0.20").replace("port: 80", "port: 80, nodePort: 30080")
    node = (
        "apiVersion: v1\nkind: Node\nmetadata: {name: node-2}\n"
        "status: {addresses: [{type: InternalIP, address: 192.168.50.12}]}\n"
    )
    entry = f"tcp      6 110 {flags} src=192.168.50.12 dst=10.244.3.3 sport=30080 dport=4000 mark=0 use=1\n"
    own = (
        f"2: eth0: <BROADCAST,UP> mtu 1500 qdisc noop state UP\n    inet {here}/24 scope global eth0\n" if here else ""
    )
    given = (exposed, slice_of("web", ready("10.244.1.5")), node, entry, own)
    assert [f.id for f in findings(*given) if f.id == "conntrack-blackhole"] == found


ROUTE = "192.168.50.0/24 dev eth0 proto kernel scope link src 192.168.50.11\n"
PAST = (
    "tcp      6 58 SYN_SENT src=192.168.50.99 dst=10.96.0.20 sport=4000 dport=80 [UNREPLIED] src=192.168.50.12 "
    "dst=192.168.50.99 sport=80 dport=4000 mark=0 use=1\n"
)


@pytest.mark.parametrize(
    ("entry", "route", "found"),
    [
        (PAST, ROUTE, [Fraction(1, 2)]),
        (PAST, "", []),
        (PAST, ROUTE.replace("dev eth0", "via 10.0.0.1 dev eth0"), []),
        (PAST, ROUTE.replace("eth0", "cni0"), []),  # what crosses the node's own bridge it sees
        (PAST.replace(" [UNREPLIED]", ""), ROUTE, []),
        (PAST.replace("dst=192.168.50.99", "dst=192.168.50.11"), ROUTE, []),  # masqueraded
    ],
    ids=["neighbours", "no route is known", "behind a router", "on the bridge", "answered", "masqueraded"],
)
def test_answers_of_a_backend_beside_the_client_go_past_the_node(entry: str, route: str, found: list[Fraction]) -> None:
    rules = nat(service_rules(*WEB, ("192.168.50.12:80", "10.244.2.6:80")))
    given = [text for text in (rules, entry, route) if text]
    assert [f.share for f in findings(*given) if f.id == "masquerade-missing"] == found

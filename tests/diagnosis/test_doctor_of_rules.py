# ruff: noqa: E501  (a dump is as wide as its program prints it)
"""Rules against the API, in each dataplane, and rules in themselves: each fault in other clothes."""

import pytest
from tests.diagnosis.clothes import (
    ALL,
    BOTH,
    FORWARD,
    HALF,
    IPVS_TWO,
    KUBE_FORWARD,
    LAST_CHAIN,
    NFT_CHAINS,
    NFT_EMPTY,
    NFT_ENDPOINTS,
    NFT_MAP,
    NFT_SERVICE,
    ONE_SLICE,
    SVC,
    TWO,
    WEB,
    WEB_RULES,
    Row,
    as_json,
    findings,
    holds,
    named,
)
from tests.diagnosis.dumps import (
    RUNNING,
    manifest,
    nat,
    pod,
    save,
    service,
    service_rules,
)

ROWS = [
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
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_fault_in_other_clothes_has_the_same_id(row: Row) -> None:
    holds(row)


def test_rounding_is_told_to_whom_gives_rules_alone() -> None:
    """Every iptables node rounds: with anything else to look at it would be said of all of them."""
    rules = nat(service_rules(*WEB, ("10.244.1.1:80", "10.244.1.2:80", "10.244.1.3:80")))
    for more in (service("web", "10.96.0.20"), "net.ipv4.ip_forward = 1\n", "default via 192.168.50.1 dev eth0\n"):
        assert "rounding-only" in {f.id for f in findings(rules)}
        assert "rounding-only" not in {f.id for f in findings(rules, more)}


def in_ipv6(text: str) -> str:
    """The same dump as ip6tables-save prints it, of the addresses that dual-stack Services have beside."""
    for four, six in (
        ("iptables-save", "ip6tables-save"),
        ("10.244.0.0/16", "fd00:1::/32"),
        ("10.96.0.20/32", "fd00:96::20/128"),
        ("10.244.1.5/32", "fd00:1:1::5/128"),
        ("10.244.2.6/32", "fd00:1:2::6/128"),
        ("10.244.1.5:80", "[fd00:1:1::5]:80"),
        ("10.244.2.6:80", "[fd00:1:2::6]:80"),
    ):
        text = text.replace(four, six)
    return text


UNMARKED = "\n".join(line for line in WEB_RULES.split("\n") if " ! -s " not in line)


@pytest.mark.parametrize("headed", [True, False])
@pytest.mark.parametrize(
    ("four", "six", "named"),
    [
        (WEB_RULES, in_ipv6(WEB_RULES), ""),
        (UNMARKED, in_ipv6(WEB_RULES), "10.96.0.20:80/tcp"),
        (WEB_RULES, in_ipv6(UNMARKED), "[fd00:96::20]:80/tcp"),
    ],
    ids=["both marked", "IPv6 alone", "IPv4 alone"],
)
def test_two_families_in_one_file_are_told_apart(four: str, six: str, named: str, *, headed: bool) -> None:
    joined = four + six
    if not headed:
        joined = "\n".join(line for line in joined.split("\n") if not line.startswith("#"))
    found = [f.message for f in findings(joined) if f.id == "masquerade-missing"]
    assert len(found) == bool(named)
    assert all(f"No rule marks connections to {named} for" in message for message in found)


def test_a_connection_that_nobody_translated_is_no_flow_of_a_backend() -> None:
    entry = "tcp 6 29 SYN_SENT src=10.244.1.9 dst=10.96.0.20 sport=4000 dport=80 [UNREPLIED] src={} dst=10.244.1.9 sport={} dport=4000 use=1\n"
    assert "one-flow-one-backend" in {f.id for f in findings(WEB_RULES, entry.format("10.244.1.5", 80))}
    assert "one-flow-one-backend" not in {f.id for f in findings(WEB_RULES, entry.format("10.96.0.20", 80))}


def test_of_a_service_without_backends_nothing_is_said_about_masquerade() -> None:
    one = service_rules("default/db", "10.96.0.30", 80, ["10.244.1.7:80"])
    emptied = [rule for rule in one if not rule.startswith("-A KUBE-SVC")]
    unmarked = [rule for rule in one if "KUBE-MARK-MASQ" not in rule]
    assert "masquerade-missing" in {f.id for f in findings(nat(unmarked))}
    assert "masquerade-missing" not in {f.id for f in findings(nat(emptied))}

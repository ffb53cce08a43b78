"""What the golden files do not show: the other configurations and policies."""

from dataclasses import replace

import pytest

from clusterip.dataplane.iptables import Config, FromCIDR, FromInterface, compile_entry, complete
from clusterip.dataplane.iptables.config import Detector
from clusterip.rulesets.iptables import line_text, parse
from clusterip.services.table import Backend, Entry, PortName

CONFIG = Config(node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"))
HERE, THERE = Backend("10.244.1.2", 8080, local=True), Backend("10.244.2.2", 8080)
ENTRY = Entry(
    PortName("default", "web", "http"),
    "IPv4",
    "TCP",
    80,
    "10.96.0.10",
    cluster=(HERE, THERE),
    has_backends=True,
)
SVC, SVL, EXT, FW = (f"KUBE-{kind}-CDGGSHYLG3RE2FKL" for kind in ("SVC", "SVL", "EXT", "FW"))
OPEN = replace(ENTRY, node_port=30080, load_balancer_ips=("192.0.2.200", "192.0.2.201"), external_local=True)


def chain(entry: Entry, name: str, config: Config = CONFIG, table: str = "nat") -> list[str]:
    rules = parse(complete([compile_entry(entry, config)], config)).rules(table, name)
    return [line_text(name, rule).removeprefix(f"-A {name} ") for rule in rules]


def test_local_external_policy_short_circuits_what_began_here() -> None:
    lead = '-m comment --comment "'
    assert chain(replace(OPEN, local=(HERE,)), EXT) == [
        f'-s 10.244.0.0/16 {lead}pod traffic for default/web:http external destinations" -j {SVC}',
        f'{lead}masquerade LOCAL traffic for default/web:http external destinations" '
        "-m addrtype --src-type LOCAL -j KUBE-MARK-MASQ",
        f'{lead}route LOCAL traffic for default/web:http external destinations" -m addrtype --src-type LOCAL -j {SVC}',
        f"-j {SVL}",
    ]


def test_without_a_local_backend_local_external_policy_ends_in_a_drop() -> None:
    assert chain(OPEN, EXT)[-1].endswith(f"--src-type LOCAL -j {SVC}")
    dropped = chain(OPEN, "KUBE-EXTERNAL-SERVICES", table="filter")
    assert len(dropped) == 3
    assert all('comment "default/web:http has no local endpoints"' in r and r.endswith("-j DROP") for r in dropped)
    assert "-m addrtype --dst-type LOCAL -m tcp --dport 30080" in dropped[2]


@pytest.mark.parametrize(
    ("detector", "masquerade_all", "rule"),
    [
        (FromCIDR("10.244.0.0/16"), False, "! -s 10.244.0.0/16 -d 10.96.0.10/32 -p tcp"),
        (FromInterface("cip0"), False, "-d 10.96.0.10/32 ! -i cip0 -p tcp"),
        (FromInterface("veth+"), False, "-d 10.96.0.10/32 ! -i veth+ -p tcp"),
        (None, True, "-d 10.96.0.10/32 -p tcp"),
        (FromCIDR("10.244.0.0/16"), True, "-d 10.96.0.10/32 -p tcp"),
    ],
)
def test_who_is_masqueraded_at_the_cluster_ip(detector: Detector | None, masquerade_all: bool, rule: str) -> None:
    config = replace(CONFIG, detector=detector, masquerade_all=masquerade_all)
    want = f'{rule} -m comment --comment "default/web:http cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ'
    assert chain(ENTRY, SVC, config)[0] == want


def test_without_a_detector_nobody_is_masqueraded_at_the_cluster_ip() -> None:
    assert not [r for r in chain(ENTRY, SVC, replace(CONFIG, detector=None)) if "KUBE-MARK-MASQ" in r]


def test_the_masquerade_rule_stands_where_internal_policy_leads() -> None:
    both = replace(OPEN, internal_local=True, local=(HERE,))
    assert "KUBE-MARK-MASQ" in chain(both, SVL)[0]
    assert "KUBE-MARK-MASQ" not in chain(both, SVC)[0]


@pytest.mark.parametrize(("node_ip", "sources"), [("192.168.50.11", 3), ("192.168.51.11", 1), ("", 1)])
def test_a_node_within_the_source_ranges_may_come_from_the_balancers_addresses(node_ip: str, sources: int) -> None:
    restricted = replace(OPEN, source_ranges=("192.168.50.0/24",))
    rules = chain(restricted, FW, replace(CONFIG, node_ip=node_ip))
    assert [r.split()[1] for r in rules if r.endswith(EXT)] == [
        "192.168.50.0/24",
        "192.0.2.200/32",
        "192.0.2.201/32",
    ][:sources]
    assert rules[-1] == (
        '-m comment --comment "other traffic to default/web:http will be dropped by KUBE-PROXY-FIREWALL"'
    )


def test_the_health_check_node_port_is_let_in() -> None:
    checked = replace(OPEN, health_check_node_port=32000)
    want = '-p tcp -m comment --comment "default/web:http health check node port" -m tcp --dport 32000 -j ACCEPT'
    assert chain(checked, "KUBE-NODEPORTS", table="filter") == [want]


LAST = 'comment "kubernetes service nodeports; NOTE: this must be the last rule in this chain"'


@pytest.mark.parametrize(
    ("config", "want"),
    [
        (CONFIG, [f"-m comment --{LAST} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS"]),
        (
            replace(CONFIG, localhost_node_ports=False),
            [f"! -d 127.0.0.0/8 -m comment --{LAST} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS"],
        ),
        (
            Config("IPv6"),
            [f"! -d ::1/128 -m comment --{LAST} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS"],
        ),
        (
            replace(CONFIG, node_port_addresses=("192.168.50.11", "127.0.0.1")),
            [f"-d {a}/32 -m comment --{LAST} -j KUBE-NODEPORTS" for a in ("192.168.50.11", "127.0.0.1")],
        ),
        (
            replace(CONFIG, node_port_addresses=("192.168.50.11", "127.0.0.1"), localhost_node_ports=False),
            [f"-d 192.168.50.11/32 -m comment --{LAST} -j KUBE-NODEPORTS"],
        ),
    ],
)
def test_which_addresses_serve_node_ports(config: Config, want: list[str]) -> None:
    rules = parse(complete([], config)).rules("nat", "KUBE-SERVICES")
    assert [line_text("X", r).removeprefix("-A X ") for r in rules] == want


def test_node_ports_on_the_loopback_are_guarded_and_only_those() -> None:
    for config, guarded in ((CONFIG, 1), (replace(CONFIG, localhost_node_ports=False), 0), (Config("IPv6"), 0)):
        ruleset = parse(complete([], config))
        assert len(ruleset.rules("filter", "KUBE-FIREWALL")) == guarded
        assert sum("KUBE-FIREWALL" in repr(r) for r in ruleset.rules("filter", "INPUT")) == guarded


def test_a_large_cluster_goes_without_comments_on_endpoints_only() -> None:
    text = complete([compile_entry(replace(ENTRY, affinity_seconds=5), replace(CONFIG, large_cluster=True))], CONFIG)
    about_endpoints = [line for line in text.splitlines() if "KUBE-SEP-" in line and line.startswith("-A")]
    assert len(about_endpoints) == 8
    assert not any("comment" in line for line in about_endpoints)
    assert "default/web:http cluster IP" in text


def test_ipv6_rules_have_ipv6_forms() -> None:
    entry = replace(
        ENTRY, family="IPv6", cluster_ip="fd00:96::a", cluster=(Backend("fd00:1::2", 80),), affinity_seconds=5
    )
    text = complete([compile_entry(entry, Config("IPv6"))], Config("IPv6"))
    assert "--to-destination [fd00:1::2]:80" in text
    assert "--mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" in text
    assert "-d fd00:96::a/128" in text
    none = replace(entry, cluster=(), has_backends=False)
    assert "--reject-with icmp6-port-unreachable" in complete([compile_entry(none, Config("IPv6"))], Config("IPv6"))


@pytest.mark.parametrize("bit", [0, 14, 31])
def test_the_masquerade_bit_is_one_bit_everywhere(bit: int) -> None:
    text = complete([], replace(CONFIG, masquerade_bit=bit))
    mark = f"{1 << bit:#x}"
    assert text.count(f"{mark}/{mark}") == 3
    assert f"--set-xmark {mark}/0x0" in text

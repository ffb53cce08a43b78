"""Which addresses answer on node ports: the configuration says it, else the rules do, each mode in its own way."""

import pytest
from tests.diagnosis.asking import facts, nat

from clusterip.diagnosis.verify.premises import Premises, premises

OWN = ("192.168.50.11", "10.244.1.1", "fd00:50::11", "fd00:1:1::1")
PRIMARY = ("192.168.50.11", "fd00:50::11")


def served(*texts: str) -> tuple[str, ...] | None:
    return premises(facts(*texts), Premises(addresses=OWN)).node_port_addresses


def configuration(body: str) -> str:
    """`body`: YAML in its flow style."""
    head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration"
    return f"{{{head}{', ' if body else ''}{body}}}\n"


def table(name: str, family: str, kind: str, *addresses: str, table: str = "clusterip") -> str:
    elements = f"elements = {{ {', '.join(addresses)} }}" if addresses else ""
    return f"table {family} {table} {{\n\tset {name} {{\n\t\ttype {kind}\n\t\t{elements}\n\t}}\n}}\n"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mode: ebpf", PRIMARY),
        ("mode: nftables", PRIMARY),
        ("mode: iptables", None),
        ("mode: ipvs", None),
        ("", None),
        ("mode: ipvs, nodePortAddresses: [primary]", PRIMARY),
        ("mode: ebpf, nodePortAddresses: [10.0.0.0/8]", ("10.244.1.1", "fd00:50::11", "fd00:1:1::1")),
        ("mode: ipvs, nodePortAddresses: [192.168.0.0/16, 'fd00:50::/64']", PRIMARY),
        ("mode: nftables, nodePortAddresses: [0.0.0.0/0]", OWN),
    ],
)
def test_the_configuration_says_it_by_mode(body: str, expected: tuple[str, ...] | None) -> None:
    assert served(configuration(body)) == expected


def test_a_configuration_without_a_mode_is_of_the_rules_that_are_there() -> None:
    assert served(configuration(""), table("node-port-addresses", "ip", "ipv4_addr", "10.244.1.1")) == PRIMARY


def test_without_one_the_sets_of_tables_say_it_each_of_its_family() -> None:
    ours = table("node-port-addresses", "ip", "ipv4_addr", "192.168.50.11")
    assert served(ours) == ("192.168.50.11", "fd00:50::11", "fd00:1:1::1")
    six = table("node-port-addresses", "ip6", "ipv6_addr", "fd00:50::11")
    assert served(ours, six) == PRIMARY
    theirs = table("nodeport-ips", "ip", "ipv4_addr", "10.244.1.1", table="kube-proxy")
    assert served(theirs, six) == ("10.244.1.1", "fd00:50::11")


def test_an_empty_set_serves_nowhere() -> None:
    four = table("node-port-addresses", "ip", "ipv4_addr")
    assert served(four, table("node-port-addresses", "ip6", "ipv6_addr")) == ()


def test_jumps_of_iptables_name_them_or_mean_all() -> None:
    jump = "KUBE-SERVICES {} -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS"
    chains = "KUBE-SERVICES KUBE-NODEPORTS"
    assert served(nat(jump.format(""), chains=chains)) is None
    named = nat("KUBE-SERVICES -d 192.168.50.11/32 -j KUBE-NODEPORTS", chains=chains)
    assert served(named) == ("192.168.50.11", "fd00:50::11", "fd00:1:1::1")


def test_what_a_person_says_counts_first() -> None:
    told = Premises(addresses=OWN, node_port_addresses=("10.244.1.1",))
    assert premises(facts(configuration("mode: ebpf")), told).node_port_addresses == ("10.244.1.1",)


def test_each_family_is_served_at_its_own_addresses() -> None:
    told = Premises(addresses=OWN, node_port_addresses=PRIMARY)
    assert told.policy(ipv6=False).node_port_addresses == {"192.168.50.11"}
    assert told.policy(ipv6=True).node_port_addresses == {"fd00:50::11"}

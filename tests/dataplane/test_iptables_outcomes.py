"""What the walk through the chains refuses to answer, and that it takes every branch."""

import pytest

from clusterip.dataplane.flow import NotModelled
from clusterip.dataplane.iptables import Config, FromCIDR
from clusterip.dataplane.iptables.outcomes import Host, walk
from clusterip.dataplane.iptables.plane import IPTables
from clusterip.rulesets.iptables import parse
from clusterip.services.route import Delivered, Packet, Source
from clusterip.services.table import Backend, Entry, PortName


@pytest.mark.parametrize(
    "rule", ["-m limit --limit 5/min -j ACCEPT", "-j LOG", "-g KUBE-MARK-MASQ", "-m time --weekdays Sat"]
)
def test_a_rule_that_the_proxy_never_writes_is_refused_not_skipped(rule: str) -> None:
    ruleset = parse(f"*nat\n:KUBE-MARK-MASQ - [0:0]\n-A PREROUTING {rule}\nCOMMIT\n")
    with pytest.raises(NotModelled):
        walk(ruleset, Packet(Source.POD, "10.244.1.2", "10.96.0.10", 80), Host(frozenset()))


def test_every_backend_of_a_spread_is_an_outcome() -> None:
    backends = tuple(Backend(f"10.244.1.{n}", 80) for n in range(1, 9))
    entry = Entry(PortName("default", "web", ""), "IPv4", "TCP", 80, "10.96.0.10", cluster=backends, has_backends=True)
    plane = IPTables(Config(detector=FromCIDR("10.244.0.0/16")), Host(frozenset()))
    found = plane.outcomes([plane.compile(entry)], Packet(Source.OUTSIDE, "203.0.113.5", "10.96.0.10", 80))
    assert found == {Delivered(b.address, 80, True) for b in backends}

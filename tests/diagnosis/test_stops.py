"""Why a proxy's rule stops a packet is said in a sentence, whichever mode wrote it."""

from dataclasses import replace

import pytest
from tests.diagnosis.asking import ADDRESSES, ask, filtered
from tests.diagnosis.own import TWO, USUAL, WEB, ruleset

EXPOSED = replace(
    WEB,
    node_port=30080,
    external_ips=("203.0.113.7",),
    load_balancer_ips=("203.0.113.100",),
    source_ranges=("198.51.100.0/24",),
    external_local=True,
    local=(),
    cluster=TWO,
)
OWN = ruleset(EXPOSED, config=replace(USUAL, service_cidrs=("10.96.0.0/16",), node_port_addresses=("192.168.50.11",)))
OLD = filtered(
    "FORWARD -j KUBE-PROXY-FIREWALL",
    "FORWARD -j KUBE-SERVICES",
    "FORWARD -j KUBE-EXTERNAL-SERVICES",
    "KUBE-PROXY-FIREWALL -d 203.0.113.100/32 -p tcp -m tcp --dport 80 -j DROP",
    'KUBE-SERVICES -d 10.96.0.30/32 -p tcp -m comment --comment "default/db has no endpoints" -m tcp --dport 80 '
    "-j REJECT",
    'KUBE-EXTERNAL-SERVICES -d 203.0.113.7/32 -p tcp -m comment --comment "default/web has no local endpoints" -m tcp '
    "--dport 80 -j DROP",
    chains="KUBE-PROXY-FIREWALL KUBE-SERVICES KUBE-EXTERNAL-SERVICES",
)


@pytest.mark.parametrize(
    ("rules", "to", "reason", "ids"),
    [
        (OWN, "203.0.113.100:80", "203.0.113.9 is not within the Service's loadBalancerSourceRanges", []),
        (OWN, "203.0.113.7:80", "a Local traffic policy, and no backend on this node", ["no-local-endpoints"]),
        (OWN, "192.168.50.11:30080", "a Local traffic policy, and no backend on this node", ["no-local-endpoints"]),
        (OWN, "10.96.0.20:81", "nothing translates this port of the Service", ["wrong-service-port"]),
        (OWN, "10.96.9.9:80", "no Service has this address", []),
        (OLD, "203.0.113.100:80", "203.0.113.9 is not within the Service's loadBalancerSourceRanges", []),
        (OLD, "203.0.113.7:80", "a Local traffic policy, and no backend on this node", ["no-local-endpoints"]),
        (OLD, "10.96.0.30:80", "the Service has no endpoints", ["no-endpoints"]),
    ],
)
def test_the_reason_is_what_the_rule_is_for(rules: str, to: str, reason: str, ids: list[str]) -> None:
    answer = ask(rules, ADDRESSES, source="outside:203.0.113.9", to=to)
    assert answer.verdict in ("dropped", "rejected")
    assert f": {reason} (" in answer.reason
    assert [f.id for f in answer.findings if f.level == "E"] == ids


def test_a_rule_that_is_no_proxys_is_named_by_its_place() -> None:
    answer = ask(filtered("FORWARD -j DROP"), ADDRESSES, source="outside:203.0.113.9", to="10.96.0.20:80")
    assert answer.reason == "dropped: forward filter FORWARD rule 1: drop"

# ruff: noqa: E501  (a dump is as wide as its program prints it)
"""Faults of any family, by what other commands print of them: each fault in other clothes."""

import pytest
from tests.diagnosis.clothes import ALL, HALF, IPVS_TWO, SVC, WEB_RULES, Row, holds, named
from tests.diagnosis.dumps import (
    manifest,
    nat,
    pod,
    ready,
    service,
    slice_of,
)

ROWS = [
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


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_fault_in_other_clothes_has_the_same_id(row: Row) -> None:
    holds(row)

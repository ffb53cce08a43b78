# ruff: noqa: E501  (a dump is as wide as its program prints it)
"""IPVS, and logs of proxies: each fault in other clothes."""

import pytest
from tests.diagnosis.clothes import ALL, BOTH, IPVS_TWO, SVC, Row, holds, named
from tests.diagnosis.dumps import (
    nat,
    ready,
    service,
    slice_of,
)

ROWS = [
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
]


@pytest.mark.parametrize("row", ROWS, ids=named)
def test_a_fault_in_other_clothes_has_the_same_id(row: Row) -> None:
    holds(row)

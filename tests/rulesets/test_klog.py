"""Logs of kube-proxy in each form, and what they mean."""

import pytest

from clusterip.rulesets import klog, proxylog, recognise

TEXT = """\
-A KUBE-XLB-X -s  -j KUBE-SVC-X
E1024 11:40:55.597686       1 proxier.go:1546] "Failed to execute iptables-restore" err=<
\texit status 2: iptables-restore v1.8.7 (nf_tables): Chain 'KUBE-SVC-UUAZGEQE42ATFAGR' does not exist
\tError occurred at line: 367
 >
I1129 08:37:39.986065       1 proxier.go:1193] "SyncProxyRules complete" ipFamily="IPv4" elapsed="13m15.34210662s"
W1106 22:08:09.857720    5712 server.go:601] Failed to retrieve node info: nodes "10.9.57.240" not found
"""


def test_entries_keep_the_lines_that_follow() -> None:
    reading = klog.read(TEXT)
    failed, took, node = reading.values.entries
    assert reading.values.before == ("-A KUBE-XLB-X -s  -j KUBE-SVC-X",)
    assert (failed.level, failed.time, failed.source) == ("E", "1024 11:40:55.597686", "proxier.go:1546")
    assert (failed.message, failed.fields, failed.line) == ("Failed to execute iptables-restore", {"err": ""}, 2)
    assert len(failed.body) == 3
    assert took.fields == {"ipFamily": "IPv4", "elapsed": "13m15.34210662s"}
    assert node.message == 'Failed to retrieve node info: nodes "10.9.57.240" not found'


def test_what_kube_proxy_says_is_understood() -> None:
    failed, took, node = proxylog.events(klog.read(TEXT).values)
    assert isinstance(failed, proxylog.SyncFailed)
    assert (failed.program, failed.lines, failed.chains) == ("iptables-restore", (367,), ("KUBE-SVC-UUAZGEQE42ATFAGR",))
    assert not failed.locked
    assert "exit status 2" in failed.why
    assert took == proxylog.SyncTook(795.34210662, "IPv4", 6, "1129 08:37:39.986065")
    assert node == proxylog.NodeNotFound("10.9.57.240", 7)


def lines(*messages: str) -> tuple[proxylog.Event, ...]:
    text = "\n".join(f"I1129 08:37:39.986065       1 server.go:1] {message}" for message in messages)
    return proxylog.events(klog.read(text).values)


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ("Using iptables Proxier.", proxylog.ModeChosen("iptables", 1)),
        ('"Using nftables Proxier"', proxylog.ModeChosen("nftables", 1)),
        ('"Using ipvs Proxier"', proxylog.ModeChosen("ipvs", 1)),
        ('"Successfully retrieved node IP" NodeIP="10.0.0.7"', proxylog.NodeAddress("10.0.0.7", 1)),
        ('"Successfully retrieved NodeIPs" NodeIPs=["10.0.0.7"]', None),
        (
            "clusterCIDR not specified, unable to distinguish between internal and external traffic",
            proxylog.NoClusterCIDR(1),
        ),
        ('"Detect-local-mode set to ClusterCIDR, but no cluster CIDR defined"', proxylog.NoClusterCIDR(1)),
        ('FLAG: --cluster-cidr="10.244.0.0/16"', proxylog.Flag("cluster-cidr", "10.244.0.0/16", 1)),
        ("syncProxyRules took 3.5s", proxylog.SyncTook(3.5, "", 1, "1129 08:37:39.986065")),
        (
            '"Reloading service nftables data" ipFamily="IPv4" numServices=5006 numEndpoints=250011',
            proxylog.Reloading(5006, 250011, "IPv4", 1, "1129 08:37:39.986065"),
        ),
        (
            '"Error running ProxyServer" err="open /proc/sys/net/netfilter/nf_conntrack_max: permission denied"',
            proxylog.Stopped(
                "Error running ProxyServer open /proc/sys/net/netfilter/nf_conntrack_max: permission denied", 1
            ),
        ),
        ('"Starting service config controller"', None),
    ],
)
def test_each_wording_is_understood(message: str, event: proxylog.Event | None) -> None:
    assert lines(message) == (() if event is None else (event,))


def test_a_lock_that_others_hold_is_told_from_a_bad_rule() -> None:
    [event] = lines(
        "Failed to execute iptables-restore: exit status 4 (Another app is currently holding the xtables lock. "
        "Perhaps you want to use the -w option?)"
    )
    assert isinstance(event, proxylog.SyncFailed)
    assert event.locked
    assert event.lines == ()


def test_every_line_that_nft_refused_is_named() -> None:
    text = (
        'E0911 16:35:49.547707       1 proxier.go:1851] "nftables sync failed" err=<\n'
        "\t/dev/stdin:72:109-112: Error: Interface does not exist\n"
        "\tadd rule ip kube-proxy service-X ip daddr 10.0.0.1 iif != azv* jump mark-for-masquerade\n"
        "\t/dev/stdin:84:109-112: Error: Interface does not exist\n"
    )
    [event] = proxylog.events(klog.read(text).values)
    assert isinstance(event, proxylog.SyncFailed)
    assert (event.program, event.lines) == ("nft", (72, 84))


JSON = '{"ts":1700000000.5,"caller":"proxier.go:1546","msg":"Sync failed","v":0,"err":"exit status 1","wait":"30s"}'


@pytest.mark.parametrize(
    ("line", "level", "message"),
    [
        (JSON, "E", "Sync failed"),
        (f"2026-11-30T13:00:00.123Z stderr F {JSON}", "E", "Sync failed"),
        ("Nov 30 13:00:00 node-1 kube-proxy[12]: W1106 22:08:09.857720    5712 server.go:601] hello", "W", "hello"),
        ("2026-11-30T13:00:00.1Z stderr F E1106 22:08:09.857720       1 a.go:1] hello", "E", "hello"),
        ("WARN: TCP connection from 10.44.0.0:59604 blocked", "W", "TCP connection from 10.44.0.0:59604 blocked"),
        ('I1106 22:08:09.857720       1 a.go:1] "say \\"hi\\"" a="b c" d=7 e=["x" "y"]', "I", 'say "hi"'),
    ],
)
def test_what_stands_before_an_entry_does_not_hide_it(line: str, level: str, message: str) -> None:
    [entry] = klog.read(line).values.entries
    assert (entry.level, entry.message) == (level, message)


def test_fields_are_values_by_name() -> None:
    [entry] = klog.read('I1106 22:08:09.857720       1 a.go:1] "say" a="b c" d=7 e=["x" "y"]').values.entries
    assert entry.fields == {"a": "b c", "d": "7", "e": '["x" "y"]'}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h2m3.5s", 3723.5), ("350ms", 0.35), ("2m12.955796557s", 132.955796557), ("17.5µs", 0.0000175), ("9ns", 9e-9)],
)
def test_durations_are_seconds(text: str, seconds: float) -> None:
    assert proxylog.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "1x", "fast", "1h2"])
def test_what_is_no_duration_is_none(text: str) -> None:
    assert proxylog.duration(text) is None


def test_the_reply_of_healthz_is_read() -> None:
    document = {"lastUpdated": "2021-10-18", "currentTime": "2021-10-19", "nodeEligible": True}
    assert klog.healthz(document) == klog.Healthz("2021-10-18", "2021-10-19", True)
    assert klog.healthz({"status": "ok"}) is None
    assert klog.healthz([1]) is None


OURS = """\
2026-11-30 13:34:42,387 INFO proxy.sync.done family=IPv4 full=False entries=1489 rules=46160 ms=21428 revision=9190
2026-11-30 13:34:43,100 ERROR proxy.sync.failed family=IPv4 full=False error="iptables-restore: line 7 failed"
2026-11-30 13:34:44,000 W proxy.node.unknown node=node-9 reason='it isn\\'t there'
"""


def test_our_own_proxys_events_are_read_as_kube_proxys_are() -> None:
    (part,) = recognise.read("proxy.log", OURS.encode()).parts
    assert isinstance(part.values, klog.Log)
    took, failed, unknown = proxylog.events(part.values)
    assert took == proxylog.SyncTook(21.428, "IPv4", 1, "2026-11-30 13:34:42,387")
    assert isinstance(failed, proxylog.SyncFailed)
    assert (failed.program, failed.lines) == ("iptables-restore", (7,))
    assert unknown == proxylog.NodeNotFound("node-9", 3)
    assert part.values.entries[2].fields["reason"] == "it isn't there"

"""A remedy names the program that keeps the rules: one where the input tells which, both where it does not."""

import pytest
from tests.diagnosis.clothes import IPVS_TWO, NFT_MAP, NFT_SERVICE, ONE_SLICE, WEB_RULES, findings
from tests.diagnosis.dumps import RUNNING, manifest, pod, ready, slice_of
from tests.diagnosis.own import WEB, ruleset

from clusterip.diagnosis.doctor import diagnose
from clusterip.diagnosis.doctor.proxies import EITHER, KUBE_PROXY, OURS, Proxy
from clusterip.rulesets.recognise import read

KLOG = "I1130 12:00:00.000001       1 proxier.go:1] syncProxyRules took 0.5s\n"
EVENTS = "2026-11-30 12:00:00,001 INFO proxy.sync.done family=IPv4 full=False entries=1 rules=8 ms=24 revision=110\n"
CONFIG = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\n"
POD = pod("kube-proxy-x7k2p", "k8s-app: kube-proxy", RUNNING, namespace="kube-system")
OTHERS = "".join(pod(f"coredns-{n}", "k8s-app: kube-dns", RUNNING, namespace="kube-system") for n in range(2))
OWN_TABLE = ruleset(WEB)
THEIR_TABLE = NFT_SERVICE % (NFT_MAP, "")


def remedy(id_: str, *texts: str) -> str:
    (found,) = {f.remedy for f in findings(*texts) if f.id == id_}
    return found


@pytest.mark.parametrize(
    ("texts", "proxy"),
    [
        ((WEB_RULES,), EITHER),
        ((WEB_RULES, POD), KUBE_PROXY),
        ((WEB_RULES, KLOG), KUBE_PROXY),
        ((WEB_RULES, manifest("{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: kube-proxy, "
                              "namespace: kube-system}}")), KUBE_PROXY),
        ((WEB_RULES, EVENTS), OURS),
        ((WEB_RULES, CONFIG + "ebpf: {cgroup: /sys/fs/cgroup}\n"), OURS),
        ((WEB_RULES, CONFIG), EITHER),
        ((WEB_RULES, EVENTS, POD), EITHER),
        ((OWN_TABLE,), OURS),
        ((OWN_TABLE, POD), OURS),
        ((THEIR_TABLE,), KUBE_PROXY),
        ((THEIR_TABLE, EVENTS), KUBE_PROXY),
    ],
)  # fmt: skip
def test_what_restarts_the_proxy_is_of_whoever_wrote_the_rules(texts: tuple[str, ...], proxy: Proxy) -> None:
    assert remedy("stale-endpoint", *texts, ONE_SLICE) == proxy.restart()


def test_where_nothing_tells_both_are_named_in_one_sentence() -> None:
    said = remedy("stale-endpoint", WEB_RULES, ONE_SLICE)
    assert "daemonset/kube-proxy" in said
    assert "clusterip proxy" in said


def test_who_knows_the_process_says_so() -> None:
    told = Proxy("clusterip proxy", "kill 7", "tail log", "kill 7", "it is started again")
    inputs = [read(str(n), text.encode()) for n, text in enumerate((WEB_RULES, ONE_SLICE, POD))]
    (found,) = (f for f in diagnose(inputs, proxy=told).findings if f.id == "stale-endpoint")
    assert found.remedy == "kill 7   # it is started again"


def test_rules_of_our_own_proxy_need_no_pod_of_a_proxy() -> None:
    both = slice_of("web", f"{ready('10.244.1.5')}, {ready('10.244.2.6')}")
    assert [f.id for f in findings(WEB_RULES, both, OTHERS, EVENTS) if f.level == "E"] == []
    assert remedy("orphaned-rules", WEB_RULES, both, OTHERS) == EITHER.cleanup


def test_old_rules_are_taken_away_by_whoever_left_them() -> None:
    """Of a node that runs in IPVS mode."""
    assert remedy("stale-mode-rules", IPVS_TWO, WEB_RULES, EVENTS) == OURS.cleanup
    assert remedy("stale-mode-rules", IPVS_TWO, WEB_RULES, KLOG) == KUBE_PROXY.cleanup

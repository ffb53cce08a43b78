# ruff: noqa: E501  (a dump is as wide as its program prints it)
"""`clusterip doctor --move nftables`: what changes for the Services and nodes at hand, and nothing else."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from tests.dataplane.strategies import V4
from tests.diagnosis.asking import filtered, nft
from tests.diagnosis.dumps import nat, pod, service, service_rules, slice_of
from tests.diagnosis.test_verify_ipvs import CONFIG, WEB, written

from clusterip.cli import doctor
from clusterip.diagnosis.doctor import Diagnosis, diagnose
from clusterip.diagnosis.findings import Finding
from clusterip.rulesets.recognise import read
from clusterip.services.table import Backend, Entry, PortName

BACKENDS = (Backend("10.244.1.2", 8080, True), Backend("10.244.2.2", 8080))
PLAIN = replace(WEB, name=PortName("default", "web", ""), cluster=BACKENDS, node_port=0)
ENDPOINTS = "{addresses: [10.244.1.2], nodeName: node-1}, {addresses: [10.244.2.2], nodeName: node-2}"
ON_NODE_2 = "{addresses: [10.244.2.2], nodeName: node-2}"
NODE = (
    "apiVersion: v1\nkind: Node\nmetadata: {{name: {0}}}\nstatus: {{addresses: [{{type: InternalIP, address: {1}}}]}}\n"
)
NODES = f"---\n{NODE.format('node-1', '192.168.50.11')}---\n{NODE.format('node-2', '192.168.50.12')}"
OWN = "2: eth0: <UP> mtu 1500\n    inet 192.168.50.11/24 scope global eth0\n3: br0: <UP> mtu 1500\n    inet 10.244.1.1/24 scope global br0\n"


def configuration(body: str) -> str:
    return f"{{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, {body}}}\n"


def objects(spec: str = "", endpoints: str = ENDPOINTS) -> str:
    return NODES + service("web", "10.96.0.10", spec=spec) + slice_of("web", endpoints, '{name: "", port: 8080}')


def ipvs(entry: Entry = PLAIN, scheduler: str = "rr", addresses: tuple[str, ...] = (V4.node_ip,)) -> dict[str, str]:
    own = frozenset({V4.node_ip, *addresses})
    return written([entry], replace(CONFIG, scheduler=scheduler, node_addresses=addresses, host_addresses=own))


def moved(*texts: str, node: str = "node-1") -> Diagnosis:
    return diagnose([read(f"file-{n}", text.encode()) for n, text in enumerate(texts)], node, moving=True)


class Row(NamedTuple):
    id: str
    level: str
    says: str  # in the message or an evidence
    texts: tuple[str, ...]


def row(id: str, level: str, says: str, files: dict[str, str], *more: str) -> Row:
    return Row(id, level, says, (*files.values(), *more))


def changed(files: dict[str, str], name: str, old: str, new: str) -> dict[str, str]:
    assert old in files[name]
    return {**files, name: files[name].replace(old, new, 1)}


NODE_PORT = replace(PLAIN, node_port=30080)
STICKY = replace(PLAIN, affinity_seconds=600, external_ips=("198.51.100.7",))
IN_IPTABLES = nat(service_rules("default/web", "10.96.0.10", 80, ["10.244.1.2:8080", "10.244.2.2:8080"]))
NODE_PORT_SPEC = ", type: NodePort"


def with_node_port(text: str) -> str:
    return text.replace("targetPort: 8080}", "targetPort: 8080, nodePort: 30080}")


ROWS = (
    row("move-scheduler", "I", "as even in the long run", ipvs(), objects()),
    row("move-scheduler", "W", "fewest connections", ipvs(scheduler="lc"), objects()),
    row("move-scheduler", "W", "sessionAffinity: ClientIP", ipvs(scheduler="mh"), objects()),
    row("move-weights", "W", "10.244.1.2:8080 5", changed(ipvs(), "ipvsadm", "-w 1", "-w 5"), objects()),
    row("move-affinity", "I", "TCP 198.51.100.7:80", ipvs(STICKY), objects(", externalIPs: [198.51.100.7]")),
    row("move-local-policy", "W", "node-1 has no backend", ipvs(), objects(", type: NodePort, externalTrafficPolicy: Local", ON_NODE_2)),
    row("move-local-policy", "W", "for the ClusterIP", ipvs(), objects(", internalTrafficPolicy: Local", ON_NODE_2)),
    row("move-others-servers", "W", "TCP 203.0.113.80:443", changed(ipvs(), "ipvsadm", "-A", "-A -t 203.0.113.80:443 -s rr\n-A"), objects()),
    row("move-others-servers", "W", "203.0.113.0/24", ipvs(), objects(), configuration("mode: ipvs, ipvs: {excludeCIDRs: [203.0.113.0/24]}")),
    row("move-ping", "I", "10.96.0.10", ipvs(), objects()),
    row("move-node-daemons", "W", "KUBE-IPVS-FILTER", {n: t.replace("-A KUBE-IPVS-FILTER", "-A KUBE-OTHER") for n, t in ipvs().items()}, objects()),
    row("move-strict-arp", "I", "arp_ignore = 1", ipvs(), objects(), configuration("mode: ipvs, ipvs: {strictARP: true}"), "net.ipv4.conf.all.arp_ignore = 1\n"),
    row("move-timeouts", "W", "tcpTimeout 2h", ipvs(), objects(), configuration("mode: ipvs, ipvs: {tcpTimeout: 2h}")),
    row("move-settings", "I", "net.ipv4.vs.conntrack = 1", ipvs(), objects(), "net.ipv4.vs.conntrack = 1\n"),
    row("move-node-source", "I", "clusterCIDR", written([PLAIN], replace(CONFIG, detector=None)), objects()),
    row("move-node-ports", "W", "10.244.1.1 would stop answering", ipvs(NODE_PORT, addresses=(V4.node_ip, "10.244.1.1")), with_node_port(objects(NODE_PORT_SPEC))),
    row("move-node-ports", "W", "10.244.1.1 would stop answering", {}, IN_IPTABLES, with_node_port(objects(NODE_PORT_SPEC)), OWN),
    row("move-localhost-node-ports", "W", "127.0.0.1:30080 (default/web)", {}, IN_IPTABLES, with_node_port(objects(NODE_PORT_SPEC)), OWN),
    row("move-foreign-rules", "W", "--match-set KUBE-CLUSTER-IP", ipvs(), objects(), filtered("INPUT -m set --match-set KUBE-CLUSTER-IP dst,dst -j LOG")),
    row("move-foreign-rules", "W", "kube-ipvs0", ipvs(), objects(), nft('chain input {\n type filter hook input priority filter; policy accept;\n iifname "kube-ipvs0" accept\n }', "inet")),
    row("move-foreign-rules", "W", "KUBE-MARK-MASQ", {}, IN_IPTABLES.replace("-A PREROUTING", "-A MINE -j KUBE-MARK-MASQ\n-A PREROUTING", 1), objects()),
    row("move-tools", "W", "ipvsadm -Ln", ipvs(), objects(), "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: exporter, namespace: tools}\nspec: {template: {spec: {containers: [{name: c, command: [sh, -c, ipvsadm -Ln]}]}}}\n"),
    row("move-forward", "E", "would be dropped", ipvs(), objects(), pod("client", "a: b", "phase: Running, podIP: 10.244.1.9, podIPs: [{ip: 10.244.1.9}]"), filtered(forward="DROP")),
    row("move-kernel", "E", "4.19.0", ipvs(), objects(), '{"apiVersion": "clusterip/v1", "kind": "Bundle", "node": "node-1", "kernel": "4.19.0-25-amd64"}\n'),
    row("move-mode", "I", "deprecated", ipvs(), objects()),
    row("move-mode", "I", "nothing to move", {}, configuration("mode: ebpf")),
    row("move-mode", "I", "does not tell which mode", {}, objects()),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[f"{r.id}-{r.says[:20]}" for r in ROWS])
def test_what_changes_is_told_by_id_with_what_shows_it(row: Row) -> None:
    found = [f for f in moved(*row.texts).findings if f.id == row.id]
    assert {f.level for f in found} == {row.level}
    assert any(row.says in told(f) for f in found), [told(f) for f in found]


def ids(found: Diagnosis) -> set[str]:
    """What else should be given is no change."""
    return {f.id for f in found.findings} - {"incomplete-input"}


def told(finding: Finding) -> str:
    return " ".join((finding.message, finding.remedy, *(e.text for e in finding.evidence)))


def test_a_cluster_that_relies_on_nothing_has_notes_alone() -> None:
    found = moved(*ipvs(NODE_PORT).values(), with_node_port(objects(NODE_PORT_SPEC)), configuration("mode: ipvs"))
    assert ids(found) == {"move-mode", "move-scheduler", "move-ping"}
    assert {f.level for f in found.findings} == {"I"}
    assert found.exit_status == 0


def test_from_iptables_nothing_of_ipvs_is_told() -> None:
    found = moved(IN_IPTABLES, with_node_port(objects(NODE_PORT_SPEC)), OWN)
    assert ids(found) == {"move-mode", "move-node-ports", "move-localhost-node-ports"}


@pytest.mark.parametrize(
    ("texts", "gone"),
    [
        ((configuration("mode: iptables, nodePortAddresses: [0.0.0.0/0]"),), "move-node-ports"),
        ((configuration("mode: iptables, iptables: {localhostNodePorts: false}"),), "move-localhost-node-ports"),
        (("net.ipv4.conf.all.route_localnet = 0\n",), "move-localhost-node-ports"),
    ],
)
def test_what_is_configured_already_does_not_change(texts: tuple[str, ...], gone: str) -> None:
    found = moved(IN_IPTABLES, with_node_port(objects(NODE_PORT_SPEC)), OWN, *texts)
    assert gone not in {f.id for f in found.findings}
    assert found.findings


def test_faults_are_not_mixed_in_and_the_move_is_not_told_unasked() -> None:
    texts = (*ipvs().values(), objects())
    asked = diagnose([read(f"file-{n}", text.encode()) for n, text in enumerate(texts)], "node-1")
    assert not [f for f in asked.findings if f.id.startswith("move-")]
    assert all(f.id.startswith(("move-", "incomplete-input")) for f in moved(*texts).findings)


def test_the_command_says_that_these_are_changes_and_no_faults(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("node")
    for name, text in {**ipvs(), "objects": objects()}.items():
        (folder / name).write_text(text)
    done = CliRunner().invoke(doctor.command, ["--move", "nftables", str(folder), "--node", "node-1"])
    assert done.exit_code == 0
    assert "what the move changes: " in done.output
    assert "nothing is broken" not in done.output
    refused = CliRunner().invoke(doctor.command, ["--move", "ipvs", str(folder)])
    assert refused.exit_code == 2

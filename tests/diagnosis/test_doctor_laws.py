"""What holds of every diagnosis: no input breaks it, and what works is not called broken."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.diagnosis.dumps import manifest, ready, slice_of
from tests.examples import share

from clusterip.dataplane.iptables import Config, FromCIDR, compile_entry, complete
from clusterip.diagnosis.doctor import Diagnosis, diagnose
from clusterip.diagnosis.doctor.backends import entries_of
from clusterip.diagnosis.doctor.known import Key, known
from clusterip.diagnosis.findings import ORDER
from clusterip.rulesets.recognise import Recognised, read
from clusterip.services.table import FAMILIES

ROOT = Path(__file__).parents[1]
TEXTS = [path.read_text() for path in sorted((ROOT / "cases").glob("*/input.*"))]
GOLDEN = sorted(path.parent for path in (ROOT / "golden").glob("*/manifests.yaml"))


@st.composite
def mangled(draw: st.DrawFn) -> str:
    """A dump of a case with lines gone, doubled, cut off or moved."""
    lines = draw(st.sampled_from(TEXTS)).splitlines()
    for _ in range(draw(st.integers(0, 6))):
        if not lines:
            break
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["drop", "double", "cut", "move", "end"])):
            case "drop":
                del lines[at]
            case "double":
                lines.insert(at, lines[at])
            case "cut":
                lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
            case "move":
                lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
            case "end":
                del lines[at:]
    return "\n".join(lines)


@given(st.lists(mangled(), min_size=1, max_size=3), st.sampled_from(["", "node-1"]))
@settings(max_examples=share(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_damage_to_the_input_breaks_a_diagnosis(texts: Sequence[str], node: str) -> None:
    found = diagnose([read(f"file-{n}", text.encode()) for n, text in enumerate(texts)], node).findings
    assert [ORDER[f.level] for f in found] == sorted(ORDER[f.level] for f in found)
    assert all(f.share is None or 0 <= f.share <= 1 for f in found)
    assert all(f.id and f.object and f.message for f in found)


@st.composite
def clusters(draw: st.DrawFn) -> str:
    """Services of one family or both, of which each has a ready backend in each."""
    documents = []
    for number in range(draw(st.integers(1, 4))):
        families = draw(st.sampled_from([["IPv4"], ["IPv6"], ["IPv4", "IPv6"], ["IPv6", "IPv4"]]))
        addresses = [f"fd00:96::{number + 2:x}" if f == "IPv6" else f"10.96.0.{number + 2}" for f in families]
        kind = draw(st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer"]))
        node_port = f", nodePort: {31000 + number}" if kind != "ClusterIP" else ""
        affinity = draw(st.sampled_from(["None", "ClientIP"]))
        documents.append(
            manifest(
                f"""
                ---
                apiVersion: v1
                kind: Service
                metadata: {{name: s{number}, namespace: default}}
                spec:
                  type: {kind}
                  clusterIP: '{addresses[0]}'
                  clusterIPs: {addresses}
                  ipFamilies: {families}
                  sessionAffinity: {affinity}
                  ports: [{{port: 80, targetPort: 8080{node_port}}}]
                """
            )
        )
        hosts = sorted(draw(st.sets(st.integers(2, 250), min_size=1, max_size=6)))
        for family in families:
            form = "'fd00:244::{:x}'" if family == "IPv6" else "10.244.1.{}"
            endpoints = ", ".join(ready(form.format(host), ", nodeName: node-1") for host in hosts)
            made = slice_of(f"s{number}", endpoints, '{name: "", port: 8080}', suffix=family.lower())
            documents.append(made.replace("addressType: IPv4", f"addressType: {family}"))
    return "".join(documents)


def programs(objects: Recognised) -> list[Recognised]:
    """What the proxy of node-1 writes for them, one text a family."""
    all_known = known([objects], "node-1")
    ranges = {"IPv4": "10.244.0.0/16", "IPv6": "fd00:244::/56"}
    addresses = {"IPv4": "192.168.50.11", "IPv6": "fd00:50::11"}
    found = []
    for family in FAMILIES:
        config = Config(family=family, node_ip=addresses[family], detector=FromCIDR(ranges[family]))
        entries = [e for key in all_known.services for e in entries_of(all_known, Key(*key)) if e.family == family]
        text = complete((compile_entry(entry, config) for entry in entries), config)
        found.append(read(f"rules-{family}", text.encode()))
    return found


def broken(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    return [(f.id, f.object, f.message) for f in diagnosis.findings if f.level != "I"]


@given(clusters())
@settings(max_examples=share(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_our_proxy_writes_for_healthy_services_is_not_called_broken(text: str) -> None:
    objects = read("objects", text.encode())
    assert not objects.problems
    assert not broken(diagnose([objects, *programs(objects)], "node-1"))


@given(clusters())
@settings(max_examples=share(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_backend_that_goes_is_stale_in_every_family(text: str) -> None:
    """All endpoints but one of each slice removed: just the Services that had more are told of."""
    objects = read("objects", text.encode())
    before = known([objects], "node-1")
    fewer = text.splitlines()
    for n, line in enumerate(fewer):
        if line.startswith("endpoints: "):
            fewer[n] = line.split("}, {")[0].rstrip("]") + ("}" if "}, {" in line else "") + "]"
    now = read("objects", "\n".join(fewer).encode())
    told = {f.object for f in diagnose([now, *programs(objects)], "node-1").findings if f.id == "stale-endpoint"}
    assert told == {f"service {key}" for key in before.services if len(entries_of(before, key)[0].cluster) > 1}


@pytest.mark.parametrize("folder", [p for p in GOLDEN if (p / "iptables-save.txt").exists()], ids=lambda p: p.name)
@pytest.mark.parametrize("dump", ["iptables-save.txt", "nft.txt"])
def test_kube_proxys_own_rules_are_not_called_broken(folder: Path, dump: str) -> None:
    """Of a Service without a backend, or with none here, that is what is found, and nothing else."""
    files = [folder / dump, folder / "manifests.yaml"]
    texts = [path.read_bytes() for path in files if path.exists()]
    found = diagnose([read(f"file-{n}", text) for n, text in enumerate(texts)])
    allowed = {"no-endpoints", "all-endpoints-not-ready", "itp-local", "no-local-endpoints", "selector-matches-no-pod"}
    assert {f.id for f in found.findings if f.level == "E"} <= allowed


@pytest.mark.parametrize("pods", ["10.244.1.0/99", "255.255.255.255/32", "x"])
def test_a_pod_range_that_is_none_is_no_reason_to_fail(pods: str) -> None:
    saved = f"""*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-SVC-A - [0:0]
:KUBE-SEP-A - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.7/32 -p tcp -m comment --comment "a/b cluster IP" -m tcp --dport 80 -j KUBE-SVC-A
-A KUBE-SVC-A ! -s {pods} -d 10.96.0.7/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
-A KUBE-SVC-A -m comment --comment "a/b -> 10.244.1.3:80" -j KUBE-SEP-A
-A KUBE-SEP-A -p tcp -m tcp -j DNAT --to-destination 10.244.1.3:80
COMMIT
*filter
:FORWARD DROP [0:0]
-A FORWARD -m iprange --src-range 1.2.3.999-x -j ACCEPT
COMMIT
"""
    diagnose([read("save", saved.encode())], "")

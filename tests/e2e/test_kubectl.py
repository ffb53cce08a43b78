"""What a person types, word for word: the hands-on of the texts, the everyday verbs, and the mistakes."""

import json
import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

from .conftest import Cluster, app, iptables_mode, program, until

pytestmark = pytest.mark.e2e


@iptables_mode
def test_hands_on_of_the_first_text(cluster: Cluster, namespace: str) -> None:
    """A Deployment of three, exposed; its ClusterIP; KUBE-SERVICES -> KUBE-SVC with 1/3, 1/2, 1 -> KUBE-SEP."""
    k = cluster.kubectl
    k("create", "deployment", "app", "--image=clusterip/echo", "--replicas=3", "-n", namespace)
    k("expose", "deployment", "app", "--port=80", "--target-port=8080", "-n", namespace)
    k("wait", "--for=condition=Available", "deployment/app", "-n", namespace, "--timeout=60s")
    address = k("get", "service", "app", "-o", "jsonpath={.spec.clusterIP}", "-n", namespace).stdout
    assert re.fullmatch(r"10\.96\.\d+\.\d+", address)
    until(lambda: address in cluster.exec("node-1", "iptables", "-t", "nat", "-L", "KUBE-SERVICES", "-n"))
    until(lambda: len(cluster.ready(namespace, "app")) == 3)
    services = cluster.exec("node-1", "iptables", "-t", "nat", "-L", "KUBE-SERVICES", "-n")
    (chain,) = {line.split()[0] for line in services.splitlines() if f" {address} " in line}
    rules = until(lambda: three_shares(cluster.exec("node-1", "iptables", "-t", "nat", "-L", chain, "-n")), seconds=5)
    sep = rules[0].split()[0]
    dnat = cluster.exec("node-1", "iptables", "-t", "nat", "-L", sep, "-n")
    assert re.search(r"DNAT .* to:10\.244\.\d+\.\d+:8080", dnat)
    cluster.exec("client", "curl", "-s", f"http://{address}/hostname")
    node = cluster.field("pod", "client", path=".spec.nodeName")
    entry = cluster.exec(node, "conntrack", "-L", "-d", address)
    assert re.search(rf"dst={address} sport=\d+ dport=80 src=10\.244\.\d+\.\d+ .*sport=8080", entry)


def three_shares(listing: str) -> list[str] | None:
    rules = [line for line in listing.splitlines() if line.startswith("KUBE-SEP-")]
    shares = [m[1] if (m := re.search(r"probability (\S+)", line)) else "1" for line in rules]
    return rules if shares == ["0.33333333349", "0.50000000000", "1"] else None


def test_the_address_stays_while_everything_behind_it_changes(cluster: Cluster, namespace: str) -> None:
    address = app(cluster, namespace)
    k = cluster.kubectl
    k("scale", "deployment", "app", "--replicas=5", "-n", namespace)
    until(lambda: len(cluster.ready(namespace, "app")) == 5)
    pod = cluster.get("pods", "-n", namespace)["items"][0]["metadata"]["name"]
    k("delete", "pod", pod, "-n", namespace)
    until(lambda: len(cluster.ready(namespace, "app")) == 5)
    changed = k("get", "service", "app", "-n", namespace, "-o", "json").stdout
    document = json.loads(changed)
    document["metadata"]["labels"] = {"changed": "yes"}
    k("apply", "-f", "-", stdin=json.dumps(document))
    k("rollout", "restart", "deployment/app", "-n", namespace)
    k("rollout", "status", "deployment/app", "-n", namespace, "--timeout=60s")
    assert cluster.field("service", "app", "-n", namespace, path=".spec.clusterIP") == address
    refused = k("patch", "service", "app", "-n", namespace, "-p", '{"spec":{"clusterIP":"10.96.0.77"}}', check=False)
    assert refused.returncode == 1
    assert "may not change once set" in refused.stderr
    assert cluster.field("service", "app", "-n", namespace, path=".spec.clusterIP") == address


def test_everyday_verbs(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    app(cluster, namespace)
    k = cluster.kubectl
    wide = k("get", "pods", "-o", "wide", "-n", namespace).stdout
    assert wide.splitlines()[0].split()[:7] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE"]
    assert len(re.findall(r"1/1 +Running", wide)) == 3
    svc = k("get", "svc", "app", "-n", namespace).stdout.splitlines()
    assert svc[0].split() == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    assert svc[1].split()[4] == "80/TCP,80/UDP"
    slices = k("get", "endpointslices", "-n", namespace).stdout.splitlines()
    assert slices[0].split() == ["NAME", "ADDRESSTYPE", "PORTS", "ENDPOINTS", "AGE"]
    described = k("describe", "svc", "app", "-n", namespace).stdout
    assert re.search(r"Endpoints: +10\.244\.\d+\.\d+:8080", described)
    (pod, *_) = (p["metadata"]["name"] for p in cluster.get("pods", "-n", namespace)["items"])
    assert k("exec", pod, "-n", namespace, "--", "hostname").stdout.strip() == pod
    failed = k("exec", pod, "-n", namespace, "--", "sh", "-c", "exit 7", check=False)
    assert failed.returncode == 7
    assert "listening" in k("logs", pod, "-n", namespace).stdout
    k("label", "pod", pod, "colour=green", "-n", namespace)
    assert pod in k("get", "pods", "-l", "colour=green", "-o", "name", "-n", namespace).stdout
    k("annotate", "svc", "app", "note=hello", "-n", namespace)
    k(
        "patch",
        "svc",
        "app",
        "--type=json",
        "-p",
        '[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]',
        "-n",
        namespace,
    )
    assert cluster.field("svc", "app", "-n", namespace, path=".metadata.labels.a") == "b"
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/replicas: 3/replicas: 2/' \"$1\"\n")
    editor.chmod(0o755)
    os.environ["KUBE_EDITOR"] = str(editor)
    k("edit", "deployment", "app", "-n", namespace)
    until(lambda: len(cluster.ready(namespace, "app")) == 2)
    k("delete", "svc", "app", "-n", namespace)
    assert k("get", "svc", "app", "-n", namespace, check=False).returncode == 1
    until(lambda: not cluster.get("endpointslices", "-n", namespace)["items"])


def test_get_watch_prints_a_change_when_it_happens(cluster: Cluster, namespace: str) -> None:
    app(cluster, namespace, replicas=1)
    argv = [program("kubectl"), "--kubeconfig", cluster.kubeconfig, "get", "deployment", "app", "-w", "-n", namespace]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = watching.stdout
        cluster.kubectl("scale", "deployment", "app", "--replicas=2", "-n", namespace)
        until(lambda: "2/2" in lines.readline(), seconds=30)
        watching.terminate()


def service(name: str, **spec: object) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"ports": [{"port": 80}], **spec},
        }
    )


MISTAKES = {
    "an address that is taken": (service("s", clusterIP="10.96.0.1"), "provided IP is already allocated"),
    "an address outside the range": (service("s", clusterIP="192.0.2.1"), "does not match the current range"),
    "a node port outside the range": (
        service("s", type="NodePort", ports=[{"port": 80, "nodePort": 99}]),
        "provided port is not in the valid range",
    ),
    "a port that is no port": (service("s", ports=[{"port": 70000}]), "spec.ports[0].port"),
    "two ports without names": (service("s", ports=[{"port": 80}, {"port": 81}]), "spec.ports[0].name"),
    "a field that does not exist": (service("s", clusterIp="10.96.0.9"), 'unknown field "spec.clusterIp"'),
    "a string where a number belongs": (service("s", ports=[{"port": "eighty"}]), "port"),
    "half a document": ('{"apiVersion": "v1", "kind": "Service", "metadata": {"name"', "error"),
    "a kind nobody serves": (
        '{"apiVersion": "v1", "kind": "Teapot", "metadata": {"name": "x"}}',
        "no matches for kind",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_a_clear_error(cluster: Cluster, namespace: str, mistake: str) -> None:
    manifest, says = MISTAKES[mistake]
    done = cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest, check=False)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not cluster.get("services", "-n", namespace)["items"]


def test_an_image_nobody_maps_says_what_to_write_where(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("run", "mystery", "--image=example.com/mystery:1", "-n", namespace)
    until(lambda: "ErrImageNotMapped" in cluster.kubectl("get", "pods", "-n", namespace).stdout)
    assert "--images FILE" in cluster.kubectl("describe", "pod", "mystery", "-n", namespace).stdout


def test_readiness_manifest_of_the_third_text(cluster: Cluster, namespace: str) -> None:
    manifest = textwrap.dedent("""
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: ledger-api}
        spec:
          selector: {matchLabels: {app: ledger-api}}
          template:
            metadata: {labels: {app: ledger-api}}
            spec:
              containers:
              - name: api
                image: clusterip/echo
                readinessProbe:
                  httpGet:
                    path: /healthz
                    port: 8080
                  periodSeconds: 5
        """)
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=manifest)
    cluster.kubectl("expose", "deployment", "ledger-api", "--port=80", "--target-port=8080", "-n", namespace)
    until(lambda: len(cluster.ready(namespace, "ledger-api")) == 1)
    address = cluster.kubectl(
        "get", "service", "ledger-api", "-o", "jsonpath={.spec.clusterIP}", "-n", namespace
    ).stdout
    assert cluster.exec("client", "curl", "-s", "-m", "5", f"http://{address}/hostname").startswith("ledger-api-")


def test_check_and_status_tell_the_truth(cluster: Cluster, namespace: str) -> None:
    app(cluster, namespace, replicas=1)
    status = json.loads(cluster.clusterip("status", "-o", "json").stdout)
    assert status
    good = cluster.clusterip("check", check=False)
    assert good.returncode == 0, good.stdout
    cluster.kubectl("scale", "deployment", "app", "--replicas=0", "-n", namespace)
    until(lambda: not cluster.ready(namespace, "app"))
    bad = cluster.clusterip("check", check=False)
    assert f"{namespace}/app" in bad.stdout

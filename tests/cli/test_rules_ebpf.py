import json
from pathlib import Path

from click.testing import CliRunner

from clusterip.cli.rules import command

MANIFESTS = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.20
  clusterIPs: [10.96.0.20]
  ports: [{name: http, port: 80, targetPort: 8080, nodePort: 30080, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.2]}, {addresses: [10.244.2.2]}]
"""


def maps(tmp_path: Path, *options: str) -> dict[str, list[dict[str, object]]]:
    file = tmp_path / "app.yaml"
    file.write_text(MANIFESTS)
    result = CliRunner().invoke(command, ["--proxy-mode", "ebpf", "-f", str(file), *options])
    assert result.exit_code == 0, result.output
    found: dict[str, list[dict[str, object]]] = json.loads(result.stdout)
    return found


def frontends(found: dict[str, list[dict[str, object]]]) -> set[object]:
    return {s["frontend"] for s in found["services"]}


def test_the_maps_are_printed_as_json(tmp_path: Path) -> None:
    found = maps(tmp_path, "--node-ip", "192.168.50.11")
    assert frontends(found) == {"10.96.0.20:80/tcp", "127.0.0.1:30080/tcp", "192.168.50.11:30080/tcp"}
    assert {s["backend"] for s in found["slots"]} == {"10.244.1.2:8080", "10.244.2.2:8080"}


def test_node_ports_are_where_they_are_wanted(tmp_path: Path) -> None:
    found = maps(tmp_path, "--node-ip", "192.168.50.11", "--no-localhost-nodeports")
    assert frontends(found) == {"10.96.0.20:80/tcp", "192.168.50.11:30080/tcp"}
    found = maps(tmp_path, "--node-ip", "192.168.50.11", "--nodeport-addresses", "127.0.0.0/8")
    assert frontends(found) == {"10.96.0.20:80/tcp", "127.0.0.1:30080/tcp"}

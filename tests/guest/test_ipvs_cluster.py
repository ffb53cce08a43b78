"""A whole cluster in IPVS mode, as a person uses it: `clusterip` and `kubectl`, pods on two nodes, real packets.

Not part of `make test`: a dozen programs take long to start in QEMU without KVM. `make ipvs` runs it.
"""

import errno
import json
import socket
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.conftest import Cluster, until

from clusterip.kernel import netns
from clusterip.lab.state import state_of

pytestmark = pytest.mark.kernel

PATIENCE = 120.0  # seconds of the guest's clock for whatever must come true
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
spec:
  replicas: 2
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: echo
        image: clusterip/echo
        ports: [{containerPort: 8080}]
        readinessProbe:
          httpGet: {path: /healthz, port: 8080}
          periodSeconds: 1
          failureThreshold: 1
---
apiVersion: v1
kind: Service
metadata: {name: app}
spec:
  clusterIP: 10.96.0.20
  selector: {app: app}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: sticky}
spec:
  clusterIP: 10.96.0.21
  selector: {app: app}
  sessionAffinity: ClientIP
  ports: [{port: 80, targetPort: 8080}]
"""
ADDRESS, STICKY = "10.96.0.20", "10.96.0.21"


class Town(Cluster):
    """A cluster, and sockets in its namespaces: under emulation a program takes seconds only to start."""

    def space(self, where: str) -> str:
        """The network namespace of a node, or of a pod of the namespace default."""
        start = f"{self.name}.{where}" if where.startswith("node-") else f"{self.name}.pod-default-{where}-"
        return next(name for name in netns.names() if name.startswith(start))

    def http(self, where: str, address: str, what: str = "GET /hostname", port: int = 80) -> str:
        """The body of the answer, or the name of the error."""
        with netns.inside(self.space(where)):
            link = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        with link:
            link.settimeout(5)
            try:
                link.connect((address, port))
                link.sendall(f"{what} HTTP/1.0\r\n\r\n".encode())
                said = b"".join(iter(lambda: link.recv(4096), b""))
            except TimeoutError:
                return "ETIMEDOUT"
            except OSError as error:
                return errno.errorcode[error.errno or 0]
        return said.rpartition(b"\r\n\r\n")[2].decode().strip()

    def ask(self, where: str, times: int, address: str = ADDRESS) -> Counter[str]:
        """Who answers, and how often."""
        return Counter(self.http(where, address) for _ in range(times))


@dataclass(frozen=True, slots=True)
class Scene:
    town: Town
    pods: dict[str, str]  # those behind the Services: name -> address


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    town = Town(name=f"t{uuid.uuid4().hex[:6]}")
    town.clusterip("up", "--nodes", "2", "--proxy-mode", "ipvs", timeout=600)
    try:
        town.kubeconfig = town.clusterip("kubeconfig").stdout.strip()
        town.kubectl("apply", "-f", "-", stdin=MANIFEST)
        for where in ("node-1", "node-2"):
            until(lambda where=where: answered(town.ask(where, 2)), seconds=PATIENCE)  # type: ignore[misc]
        items = town.get("pods", "-l", "app=app")["items"]
        yield Scene(town, {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in items})
    finally:
        town.clusterip("down")
        assert not [space for space in netns.names() if space.startswith(f"{town.name}.")]


def answered(said: Counter[str]) -> bool:
    return len(said) == 2 and all(name.startswith("app-") for name in said)


@pytest.mark.parametrize("where", ["client", "node-1", "node-2"])
def test_backends_take_turns_for_pods_and_nodes(scene: Scene, where: str) -> None:
    assert scene.town.ask(where, 10) == dict.fromkeys(scene.pods, 5)


def test_ipvsadm_shows_what_the_third_text_says(scene: Scene) -> None:
    """`ipvsadm -L -n -t <clusterIP>:80`: the virtual server, its scheduler, and a real server for each ready pod."""
    printed = scene.town.exec("node-1", "ipvsadm", "-L", "-n", "-t", f"{ADDRESS}:80").splitlines()
    (server,) = [line for line in printed if line.startswith("TCP ")]
    assert server.split() == ["TCP", f"{ADDRESS}:80", "rr"]
    real = {tuple(line.split()[1:4]) for line in printed if line.startswith("  -> ") and "RemoteAddress" not in line}
    assert real == {(f"{address}:8080", "Masq", "1") for address in scene.pods.values()}


def test_a_pod_reaches_itself_through_its_service(scene: Scene) -> None:
    for name in scene.pods:
        assert scene.town.ask(name, 4) == dict.fromkeys(scene.pods, 2)


def test_affinity_keeps_a_client_at_one_backend(scene: Scene) -> None:
    ((name, times),) = scene.town.ask("client", 8, STICKY).items()
    assert name in scene.pods
    assert times == 8


def test_a_name_leads_to_it(scene: Scene) -> None:
    assert scene.town.exec("client", "curl", "-s", "-m", "10", "http://app/hostname").strip() in scene.pods


def test_status_names_the_mode_and_rules_print_it(scene: Scene, tmp_path: Path) -> None:
    status = json.loads(scene.town.clusterip("status", "-o", "json").stdout)
    assert [node["proxy"]["mode"] for node in status["nodes"]] == ["ipvs", "ipvs"]
    objects = tmp_path / "objects.yaml"
    objects.write_text(scene.town.kubectl("get", "services,endpointslices", "-A", "-o", "yaml").stdout)
    given = ("-f", str(objects), "--node-name", "node-1")
    command = (sys.executable, "-m", "clusterip", "rules", "--proxy-mode", "ipvs", *given)
    rules = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert f"-A -t {ADDRESS}:80 -s rr" in rules


def test_the_microscope_reads_a_node(scene: Scene) -> None:
    asked = ("node", f"{ADDRESS}:80", "--node", "node-1")
    answer = json.loads(scene.town.clusterip("trace", *asked, "-o", "json").stdout)
    assert {(o["backend"], o["probability"]) for o in answer["outcomes"]} == {
        (f"{address}:8080", "1/2") for address in scene.pods.values()
    }
    assert not scene.town.clusterip("verify", "--node", "node-1", check=False).stdout.startswith("different")


def test_who_is_unready_gets_nothing_and_nobody_ready_is_a_refusal(scene: Scene) -> None:
    town, (first, second) = scene.town, scene.pods
    tell(scene, first, "/fail")
    until(lambda: town.ask("client", 4) == {second: 4}, seconds=PATIENCE)
    tell(scene, second, "/fail")
    for where in ("client", "node-1", "node-2"):
        until(lambda where=where: town.ask(where, 2) == {"ECONNREFUSED": 2}, seconds=PATIENCE)  # type: ignore[misc]
    for name in scene.pods:
        tell(scene, name, "/ok")
    for where in ("client", "node-1", "node-2"):
        until(lambda where=where: town.ask(where, 4) == dict.fromkeys(scene.pods, 2), seconds=PATIENCE)  # type: ignore[misc]


def tell(scene: Scene, pod: str, path: str) -> None:
    scene.town.http("node-1", scene.pods[pod], f"POST {path}", 8080)


def test_a_scheduler_that_the_kernel_has_not_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    config = tmp_path / "proxy.yaml"
    config.write_text("ipvs: {scheduler: nosuch}\n")
    name = f"t{uuid.uuid4().hex[:6]}"
    command = [sys.executable, "-m", "clusterip", "up", "--name", name, "--proxy-mode", "ipvs"]
    done = subprocess.run([*command, "--proxy-config", str(config)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no scheduler 'nosuch'" in done.stderr.splitlines()[0]
    assert "--proxy-mode nftables" in done.stderr.splitlines()[1]
    assert not [space for space in netns.names() if space.startswith(name)]
    assert not state_of(name).directory.exists()

"""One cluster of three nodes for all tests of this folder, used as a person uses it: `clusterip` and `kubectl`.

CLUSTERIP_MODE says by which proxy mode: `CLUSTERIP_MODE=nftables pytest tests/e2e`.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent
MODE = os.environ.get("CLUSTERIP_MODE", "iptables")

packet_modes = pytest.mark.skipif(MODE == "ebpf", reason="looks at packets, and in eBPF mode none names the Service")
iptables_mode = pytest.mark.skipif(MODE != "iptables", reason="reads the chains of iptables mode")


def program(name: str) -> str:
    """The program beside this Python, as set-up leaves it, or the one on PATH."""
    beside = BIN / name
    return str(beside) if beside.exists() else shutil.which(name) or name


@dataclass
class Cluster:
    name: str
    kubeconfig: str = ""
    namespaces: list[str] = field(default_factory=list)

    def clusterip(self, *args: str, check: bool = True, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        command, rest = args[0], args[1:]
        return run([program("clusterip"), command, "--name", self.name, *rest], check=check, timeout=timeout)

    def kubectl(
        self, *args: str, stdin: str = "", check: bool = True, timeout: float = 120
    ) -> subprocess.CompletedProcess[str]:
        argv = [program("kubectl"), "--kubeconfig", self.kubeconfig, *args]
        return run(argv, stdin=stdin, check=check, timeout=timeout)

    def exec(self, target: str, *argv: str, check: bool = True, timeout: float = 120) -> str:
        """What a command prints in a pod ("name", "ns/name") or on a node ("node-1")."""
        return self.clusterip("exec", target, "--", *argv, check=check, timeout=timeout).stdout

    def python(self, target: str, code: str, *args: str, timeout: float = 120) -> Any:
        """Run a small program in a pod or on a node; it prints one JSON value."""
        return json.loads(self.exec(target, "python3", "-c", code, *args, timeout=timeout))

    def get(self, *args: str) -> Any:
        return json.loads(self.kubectl("get", *args, "-o", "json").stdout)

    def field(self, *args: str, path: str) -> str:
        return self.kubectl("get", *args, "-o", f"jsonpath={{{path}}}").stdout

    def ready(self, namespace: str, service: str) -> set[str]:
        """Addresses of the ready endpoints of a Service, by its slices."""
        slices = self.get("endpointslices", "-n", namespace, "-l", f"kubernetes.io/service-name={service}")
        return {
            e["addresses"][0] for s in slices["items"] for e in s.get("endpoints") or [] if e["conditions"]["ready"]
        }


def run(
    argv: list[str], *, stdin: str = "", check: bool = True, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(argv)}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def until(claim: Callable[[], Any], *, seconds: float = 30, every: float = 0.1) -> Any:
    """The first true value of `claim`, asked again and again; an assertion error says what it was at last."""
    end = time.monotonic() + seconds
    while True:
        value = claim()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s; at last: {value!r}"
        time.sleep(every)


@contextmanager
def up(*options: str) -> Iterator[Cluster]:
    """A cluster, which is taken away in the end."""
    made = Cluster(name=f"t{uuid.uuid4().hex[:6]}")
    try:
        made.clusterip("up", *options)
        made.kubeconfig = made.clusterip("kubeconfig").stdout.strip()
        yield made
    finally:
        made.clusterip("down")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    os.environ["NO_COLOR"] = "1"
    # A short resync, so that the tests about flushed rules need not wait half a minute.
    config = tmp_path_factory.mktemp("proxy") / "config.yaml"
    config.write_text(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
        + "".join(f"{mode}:\n  syncPeriod: 3s\n  minSyncPeriod: 100ms\n" for mode in ("iptables", "nftables"))
    )
    with up("--nodes", "3", "--proxy-mode", MODE, "--proxy-config", str(config)) as made:
        yield made


def with_web(cluster: Cluster) -> Cluster:
    """Two pods behind the Service default/web, ready."""
    cluster.kubectl("create", "deployment", "web", "--image=clusterip/echo", "--replicas=2")
    cluster.kubectl("expose", "deployment", "web", "--port=80", "--target-port=8080")
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    until(lambda: len(cluster.ready("default", "web")) == 2)
    return cluster


def proxy_pid(cluster: Cluster) -> int:
    """Of node-1; 0 while it does not run."""
    lines = cluster.clusterip("status").stdout.splitlines()
    (pid,) = [line.split()[4] for line in lines if line.startswith("proxy of node-1")]
    return int(pid) if pid.isdigit() else 0


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace for one test, gone afterwards with all that is in it."""
    name = f"n-{uuid.uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def app(cluster: Cluster, namespace: str, *, replicas: int = 3, name: str = "app", service: str = "") -> str:
    """A Deployment of the echo server behind a ClusterIP Service, ready; returns the ClusterIP.

    `service` is YAML added to the Service's spec, indented by two spaces.
    """
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=MANIFEST.format(name=name, replicas=replicas) + service)
    cluster.kubectl("rollout", "status", "-n", namespace, f"deployment/{name}", "--timeout=60s")
    until(lambda: len(cluster.ready(namespace, name)) == replicas)
    address = cluster.field("service", name, "-n", namespace, path=".spec.clusterIP")
    if replicas:
        until(lambda: all(reaches(cluster, node, address) for node in ("node-1", "node-2", "node-3")))
    return address


def reaches(cluster: Cluster, target: str, address: str, port: int = 80) -> bool:
    url = f"http://{address}:{port}/hostname"
    return cluster.clusterip("exec", target, "--", "curl", "-sf", "-m", "2", url, check=False).returncode == 0


MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: echo
        image: clusterip/echo
        ports: [{{containerPort: 8080}}]
        readinessProbe:
          httpGet: {{path: /healthz, port: 8080}}
          periodSeconds: 1
          failureThreshold: 1
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec:
  selector: {{app: {name}}}
  ports:
  - {{name: http, port: 80, targetPort: 8080}}
  - {{name: udp, port: 80, targetPort: 8080, protocol: UDP}}
"""

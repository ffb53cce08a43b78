"""The real kubectl against the real server: what people type, and what they see."""

import asyncio
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.apiserver.serving import Api
from tests.apiserver.test_streams import with_agent


@dataclass(frozen=True, slots=True)
class Kubectl:
    server: str
    home: Path

    async def run(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        program = shutil.which("kubectl")
        assert program, "kubectl is missing: run `make setup`"
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *(program, "--server", self.server, "--cache-dir", str(self.home / "cache"), *words),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin", "KUBE_EDITOR": "sed -i s/8080/9090/"},
        )
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        return process.returncode or 0, out.decode(), err.decode()

    async def __call__(self, line: str, stdin: str = "") -> str:
        """What it prints; it must succeed."""
        code, out, err = await self.run(*line.split(), stdin=stdin)
        assert code == 0, f"kubectl {line}: {err}"
        return out

    async def fails(self, line: str, stdin: str = "") -> str:
        """What it complains of; it must fail."""
        code, out, err = await self.run(*line.split(), stdin=stdin)
        assert code != 0, out
        return err


@pytest.fixture
async def kubectl(api: Api, tmp_path: Path) -> Kubectl:
    return Kubectl(api.url, tmp_path)


MANIFEST = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 8080, targetPort: 80}
  - {name: dns, port: 53, protocol: UDP}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {a: b}
"""


async def test_a_deployment_is_made_exposed_scaled_and_deleted(kubectl: Kubectl) -> None:
    await kubectl("create deployment app --image=clusterip/echo --replicas=3")
    assert await kubectl("expose deployment app --port=80 --target-port=8080") == "service/app exposed\n"
    address = await kubectl("get service app -o jsonpath={.spec.clusterIP}")
    assert address.startswith("10.96.")
    header, row = (await kubectl("get svc app -o wide")).splitlines()
    assert header.split() == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE", "SELECTOR"]
    assert row.split()[:5] == ["app", "ClusterIP", address, "<none>", "80/TCP"]
    described = await kubectl("describe svc app")
    assert f"IP:                       {address}" in described
    assert await kubectl("scale deployment app --replicas=5") == "deployment.apps/app scaled\n"
    assert (await kubectl("get deploy app")).splitlines()[1].split()[:2] == ["app", "0/5"]
    assert "error: Expected replicas to be 2, was 5" in await kubectl.fails(
        "scale deployment app --replicas=1 --current-replicas=2"
    )
    await kubectl("delete deployment,service app")
    assert "NotFound" in await kubectl.fails("get svc app")


async def test_apply_makes_changes_and_leaves_alone(kubectl: Kubectl) -> None:
    assert await kubectl("apply -f -", MANIFEST) == "service/web created\nconfigmap/web created\n"
    address = await kubectl("get service web -o jsonpath={.spec.clusterIP}")
    assert await kubectl("apply -f -", MANIFEST) == "service/web unchanged\nconfigmap/web unchanged\n"
    changed = MANIFEST.replace("port: 8080", "port: 81").replace("  - {name: dns, port: 53, protocol: UDP}\n", "")
    code, difference, _ = await kubectl.run("diff", "-f", "-", stdin=changed)
    assert code == 1
    assert "+    port: 81" in difference
    assert "service/web configured" in await kubectl("apply -f -", changed)
    assert await kubectl("get svc web -o jsonpath={.spec.ports[*].port}") == "81"
    assert await kubectl("get service web -o jsonpath={.spec.clusterIP}") == address
    assert "web" in await kubectl("apply -f - --dry-run=server -o name", changed)


async def test_edit_label_annotate_patch_replace(kubectl: Kubectl) -> None:
    await kubectl("apply -f -", MANIFEST)
    assert await kubectl("edit svc web") == "service/web edited\n"
    assert await kubectl("get svc web -o jsonpath={.spec.ports[0].port}") == "9090"
    await kubectl("label svc web tier=front")
    await kubectl("annotate svc web note=x")
    assert (await kubectl("get svc -l tier=front -o name")) == "service/web\n"
    assert "tier=front" in await kubectl("get svc web --show-labels")
    await kubectl('patch svc web -p {"spec":{"type":"NodePort"}}')
    assert await kubectl("get svc --field-selector spec.type=NodePort -o name") == "service/web\n"
    assert "service/web replaced" in await kubectl("replace -f -", MANIFEST)
    assert "service/web replaced" in await kubectl("replace --force -f -", MANIFEST)


async def test_create_sends_protobuf_and_is_understood(kubectl: Kubectl) -> None:
    await kubectl("create service clusterip a --tcp=80:http")
    await kubectl("create service nodeport b --tcp=80 --node-port=30080")
    await kubectl("create service externalname c --external-name=example.com")
    await kubectl("create service clusterip d --tcp=80 --clusterip=None")
    await kubectl("create configmap e --from-literal=x=y")
    await kubectl("create namespace f")
    assert await kubectl("get svc a -o jsonpath={.spec.ports[0].targetPort}") == "http"
    assert await kubectl("get svc b -o jsonpath={.spec.ports[0].nodePort}") == "30080"
    rows = {row.split()[0]: row.split()[2] for row in (await kubectl("get svc --no-headers")).splitlines()}
    assert (rows["c"], rows["d"]) == ("<none>", "None")
    assert "already exists" in await kubectl.fails("create namespace f")
    assert (await kubectl("auth can-i create services")).strip() == "yes"


async def test_watch_and_wait_see_what_happens(kubectl: Kubectl) -> None:
    await kubectl("run a --image=clusterip/echo")
    watching = asyncio.create_task(kubectl.run("get", "pods", "-w", "--request-timeout=4s"))
    waiting = asyncio.create_task(kubectl("wait --for=delete pod/a --timeout=20s"))
    await asyncio.sleep(1)
    await kubectl("label pod a x=y")
    assert (await kubectl("delete pod a")).startswith('pod "a" deleted')
    assert await waiting == "pod/a condition met\n"
    assert "timed out waiting" in await kubectl.fails("wait --for=create pod/never --timeout=1s")
    _, seen, _ = await watching
    assert [line.split()[0] for line in seen.splitlines()] == ["NAME", "a", "a", "a"]


async def test_what_there_is_can_be_asked(kubectl: Kubectl) -> None:
    rows = [line.split() for line in (await kubectl("api-resources --no-headers")).splitlines()]
    assert ["services", "svc", "v1", "true", "Service"] in rows
    assert ["endpointslices", "discovery.k8s.io/v1", "true", "EndpointSlice"] in rows
    assert {row[0] for row in rows} >= {"pods", "nodes", "servicecidrs", "ipaddresses", "leases", "deployments"}
    explained = await kubectl("explain service.spec.clusterIP")
    assert "FIELD: clusterIP <string>" in explained
    assert "apps/v1" in await kubectl("api-versions")
    assert "Server Version: v1.36.0" in await kubectl("version")
    assert "service/kubernetes" in await kubectl("get all -A")


async def test_refusals_read_as_kubectl_prints_them(kubectl: Kubectl) -> None:
    taken = MANIFEST.replace("spec:", "spec:\n  clusterIP: 10.96.0.1", 1)
    assert "provided IP is already allocated" in await kubectl.fails("apply -f -", taken)
    unknown = MANIFEST.replace("selector", "selectorr", 1)
    assert 'unknown field "spec.selectorr"' in await kubectl.fails("create -f -", unknown)
    assert 'services "none" not found' in await kubectl.fails("get svc none")
    assert "Server-side apply not available" in await kubectl.fails("apply --server-side -f -", MANIFEST)


async def test_logs_and_exec_reach_the_node(tmp_path: Path) -> None:
    async with with_agent(tmp_path) as api:
        kubectl = Kubectl(api.url, tmp_path)
        assert (await kubectl("logs a --tail=2")).splitlines()[-1] == "two"
        code, out, err = await kubectl.run("exec", "-i", "a", "--", "say", "hello", stdin="abc\n")
        assert (code, out) == (7, "say hello\nABC\n"), err

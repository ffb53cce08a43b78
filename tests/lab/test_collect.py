"""A bundle of a real node: its names, its secrets, and the commands that read it."""

import io
import json
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

SECRET = "hunter2-AbCdEf"
OBJECTS = f"""
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {{app: web}}
  annotations: {{example.com/note: {SECRET}}}
spec:
  containers:
  - name: web
    image: clusterip/echo
    env: [{{name: DB_PASSWORD, value: {SECRET}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  selector: {{app: web}}
  ports: [{{port: 80, targetPort: 8080}}]
"""


def ran(*argv: str, stdin: bytes = b"", code: int | None = 0) -> bytes:
    done = subprocess.run(argv, input=stdin, capture_output=True, timeout=180, check=False)
    assert code in (None, done.returncode), f"{argv}: {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}"
    return done.stdout


def clusterip(command: str, *argv: str, code: int | None = 0) -> bytes:
    return ran(sys.executable, "-m", "clusterip", command, *argv, code=code)


@pytest.fixture(scope="module")
def lab() -> Iterator[str]:
    name = f"c{uuid.uuid4().hex[:6]}"
    try:
        clusterip("up", "--name", name, "--nodes", "1")
        kubeconfig = clusterip("kubeconfig", "--name", name).decode().strip()
        ran("kubectl", "--kubeconfig", kubeconfig, "apply", "-f", "-", stdin=OBJECTS.encode())
        ran("kubectl", "--kubeconfig", kubeconfig, "wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
        yield name
    finally:
        clusterip("down", "--name", name)


@pytest.fixture(scope="module")
def bundle(lab: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("bundle") / "bundle.tar.gz"
    file.write_bytes(clusterip("collect", "--name", lab, "--node", "node-1"))
    return file


def contents(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
        return {member.name: inside.read() for member in tar if (inside := tar.extractfile(member))}


def test_it_holds_what_the_diagnosis_reads_and_no_secret(bundle: Path) -> None:
    files = contents(bundle.read_bytes())
    assert next(iter(files)) == "bundle.json"
    assert {"node-1/nft.txt", "node-1/ip-addr.txt", "node-1/sysctl.txt", "node-1/proxy.log"} <= files.keys()
    assert {"objects/services.json", "objects/endpointslices.json", "objects/pods.json"} <= files.keys()
    assert b"DB_PASSWORD" in files["objects/pods.json"]
    assert not [name for name, data in files.items() if SECRET.encode() in data]


def test_what_could_not_be_had_is_noted_with_the_reason(bundle: Path) -> None:
    document = json.loads(contents(bundle.read_bytes())["bundle.json"])
    missing = {file["source"]: file["missing"] for file in document["files"] if "missing" in file}
    assert missing["ipvsadm -Ln"]
    assert (document["kind"], document["node"]) == ("Bundle", "node-1")


def test_the_same_node_gives_the_same_names(lab: str, bundle: Path) -> None:
    again = clusterip("collect", "--name", lab, "--node", "node-1")
    assert list(contents(again)) == list(contents(bundle.read_bytes()))


def test_the_commands_of_the_diagnosis_read_it(bundle: Path) -> None:
    said = clusterip("verify", "--rules", str(bundle), "--node", "node-1")
    assert said.startswith(b"equal")
    answer = clusterip("trace", "pod:10.244.1.200", "web.default:80", "--rules", str(bundle), "-o", "json")
    assert json.loads(answer)["verdict"] == "delivered"
    diagnosis = clusterip("doctor", str(bundle), "--node", "node-1", "-o", "json", code=None)
    assert {given["kind"] for given in json.loads(diagnosis)["inputs"]} >= {"iptables-save", "manifests", "ip addr"}


def test_the_live_node_is_equal_to_what_its_api_says(lab: str) -> None:
    assert clusterip("verify", "--name", lab, "--node", "node-1").startswith(b"equal")


def test_a_rule_taken_out_of_the_bundle_is_found(bundle: Path, tmp_path: Path) -> None:
    for name, data in contents(bundle.read_bytes()).items():
        if name.endswith(("nft-save.txt", ".json", "ip-addr.txt")):
            kept = [line for line in data.splitlines() if b"default/web cluster IP" not in line]
            (tmp_path / name.replace("/", "-")).write_bytes(b"\n".join(kept) + b"\n")
    said = clusterip("verify", "--rules", str(tmp_path), "--node", "node-1", code=1)
    assert b"missing  service default/web" in said

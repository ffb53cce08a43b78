"""IPVS mode, as a person meets it. `make ipvs` runs it, where the kernel has IPVS or in the guest."""

import json
import subprocess
from pathlib import Path

import pytest

from clusterip.kernel import netns
from clusterip.lab.state import state_of

from .conftest import MODE, Cluster, app, program

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(MODE != "ipvs", reason="its cluster has to be in IPVS mode")]


def backends(cluster: Cluster, namespace: str) -> set[str]:
    return {f"{address}:8080" for address in cluster.ready(namespace, "app")}


def test_ipvsadm_shows_what_the_third_text_says(cluster: Cluster, namespace: str) -> None:
    """`ipvsadm -L -n -t <clusterIP>:80`: the virtual server, its scheduler, and a real server for each ready pod."""
    address = app(cluster, namespace)
    printed = cluster.exec("node-1", "ipvsadm", "-L", "-n", "-t", f"{address}:80").splitlines()
    (server,) = [line for line in printed if line.startswith("TCP ")]
    assert server.split() == ["TCP", f"{address}:80", "rr"]
    real = {tuple(line.split()[1:4]) for line in printed if line.startswith("  -> ") and "RemoteAddress" not in line}
    assert real == {(backend, "Masq", "1") for backend in backends(cluster, namespace)}


def test_status_names_the_mode_and_rules_print_it(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    address = app(cluster, namespace)
    status = json.loads(cluster.clusterip("status", "-o", "json").stdout)
    assert {node["proxy"]["mode"] for node in status["nodes"]} == {"ipvs"}
    objects = tmp_path / "objects.yaml"
    objects.write_text(cluster.kubectl("get", "services,endpointslices", "-A", "-o", "yaml").stdout)
    given = ("-f", str(objects), "--node-name", "node-1")
    command = (program("clusterip"), "rules", "--proxy-mode", "ipvs", *given)
    rules = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert f"-A -t {address}:80 -s rr" in rules


def test_the_microscope_reads_a_node(cluster: Cluster, namespace: str) -> None:
    asked = ("node", f"{app(cluster, namespace)}:80", "--node", "node-1")
    answer = json.loads(cluster.clusterip("trace", *asked, "-o", "json").stdout)
    assert {(o["backend"], o["probability"]) for o in answer["outcomes"]} == {
        (backend, "1/3") for backend in backends(cluster, namespace)
    }
    assert cluster.clusterip("verify", "--node", "node-1").returncode == 0


def test_a_scheduler_that_the_kernel_has_not_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    config = tmp_path / "proxy.yaml"
    config.write_text("ipvs: {scheduler: nosuch}\n")
    refused = Cluster(name="t-nosuch")
    done = refused.clusterip("up", "--proxy-mode", "ipvs", "--proxy-config", str(config), check=False)
    assert done.returncode == 1
    assert "no scheduler 'nosuch'" in done.stderr.splitlines()[0]
    assert "--proxy-mode nftables" in done.stderr.splitlines()[1]
    assert not [space for space in netns.names() if space.startswith(refused.name)]
    assert not state_of(refused.name).directory.exists()

"""The page for people whose ClusterIP does not answer: each of its commands works on a node as it is written."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import BIN, Cluster, app

pytestmark = pytest.mark.e2e

PAGE = Path(__file__).parents[2] / "docs" / "not-answering.md"
# Here the answer is no, with status 1: nothing was to delete; a ping goes nowhere.
_SAY_NO = re.compile(r"conntrack -D |clusterip trace \S+ icmp:")


def commands() -> list[str]:
    lines = PAGE.read_text().splitlines()
    return [line.strip() for line in lines if re.match(r" {4,6}[A-Za-z]", line)]


@pytest.fixture
def web(cluster: Cluster) -> Iterator[Cluster]:
    app(cluster, "default", name="web")
    yield cluster
    cluster.kubectl("delete", "deployment/web", "service/web", "--wait=false")


def test_the_page_has_commands() -> None:
    assert len(commands()) > 30


def test_every_command_of_the_page_works_on_a_node(web: Cluster, tmp_path: Path) -> None:
    typed = commands()
    # On a node the API server is where nodes reach it.
    reached = re.sub(r"https://127\.0\.0\.1:\d+", "https://192.168.50.1:6443", Path(web.kubeconfig).read_text())
    (tmp_path / "kubeconfig").write_text(reached)
    head = [f"cd {tmp_path}", f"export PATH={BIN}:$PATH KUBECONFIG=$PWD/kubeconfig CLUSTERIP_NAME={web.name}"]
    script = [line for n, command in enumerate(typed) for line in (command, f'printf "\\n@ {n} $?\\n"')]
    said = web.exec("node-1", "bash", "-c", "exec 2>&1\n" + "\n".join([*head, *script]), timeout=300)
    status = {int(n): int(s) for n, s in re.findall(r"^@ (\d+) (\d+)$", said, re.MULTILINE)}
    failed = {typed[n]: s for n, s in status.items() if s and not (s == 1 and _SAY_NO.search(typed[n]))}
    assert not failed
    assert "Traceback" not in said
    assert status.keys() == set(range(len(typed)))


def test_nothing_is_broken_on_a_node_that_works(web: Cluster) -> None:
    done = web.clusterip("doctor", "--node", "node-1", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing is broken" in done.stdout


def test_every_finding_of_the_page_is_one_that_doctor_gives() -> None:
    source = PAGE.parents[1] / "src" / "clusterip" / "diagnosis"
    code = "\n".join(path.read_text() for path in source.rglob("*.py"))
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+)+)`", PAGE.read_text())) - {"kube-proxy", "kube-ipvs"}
    assert not [id_ for id_ in named if f'"{id_}"' not in code]

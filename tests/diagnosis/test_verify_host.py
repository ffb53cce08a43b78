"""What the host does to packets that the rules deliver: remarked on, where it was read, and no part of the verdict."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.diagnosis.dumps import manifest

from clusterip.cli.verify import command
from clusterip.diagnosis.facts import merge
from clusterip.diagnosis.verify.host import remarks
from clusterip.rulesets import recognise

GOLDEN = Path(__file__).parent.parent / "golden"
WEB = GOLDEN / "02-two-named-ports"  # backends 10.244.2.7 and 10.244.3.9
ROUTES = """
default via 192.168.50.1 dev eth0
10.244.2.0/24 dev cip0 proto kernel scope link src 10.244.2.1
10.244.3.0/24 via 192.168.50.13 dev eth0
192.168.50.0/24 dev eth0 proto kernel scope link src 192.168.50.12
"""
POD = manifest(
    """
    apiVersion: v1
    kind: Pod
    metadata: {name: web-1, namespace: demo}
    spec: {nodeName: node-b, containers: [{name: web, image: web}]}
    status: {phase: Running, podIP: 10.244.2.7, podIPs: [{ip: 10.244.2.7}]}
    """
)


def said(*texts: str, live: bool = False) -> tuple[str, ...]:
    files = [(WEB / "manifests.yaml").read_text(), *texts]
    read = [recognise.read(f"file-{n}", data.encode()) for n, data in enumerate(files)]
    return remarks(merge(read), "node-b", live=live)


def without(network: str) -> str:
    return "".join(f"{line}\n" for line in ROUTES.splitlines() if not line.startswith(network))


@pytest.mark.parametrize("texts", [(), ("net.ipv4.ip_forward = 1\n", ROUTES, POD)], ids=["nothing read", "all is well"])
def test_nothing_is_said_of_what_was_not_read_or_is_well(texts: tuple[str, ...]) -> None:
    assert said(*texts) == ()


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("net.ipv4.ip_forward", ["net.ipv4.ip_forward is 0: this host forwards no packet of IPv4"]),
        ("net.ipv6.conf.all.forwarding", []),  # no backend has such an address
    ],
)
def test_forwarding_that_is_off_is_told_of_the_family_that_has_backends(setting: str, told: list[str]) -> None:
    assert [one.partition(", so")[0] for one in said(f"{setting} = 0\nnet.core.somaxconn = 4096\n")] == told


@pytest.mark.parametrize(
    ("routes", "told"),
    [
        (without("default").replace("10.244.3.0/24", "10.245.3.0/24"), "no route leads to 10.244.3.9"),
        (without("10.244.3"), None),  # the default route may know the way to another node's pods
        (
            without("10.244.2"),
            "only the default route via 192.168.50.1 dev eth0 leads to 10.244.2.7, a pod of this node",
        ),
        (without("10.244.3") + "blackhole 10.244.3.0/24\n", "the route blackhole 10.244.3.0/24 leads to 10.244.3.9"),
    ],
)
def test_a_route_that_lacks_is_told_with_the_backends_it_should_lead_to(routes: str, told: str | None) -> None:
    assert said(routes, POD) == ((f"{told}: what the rules send there does not arrive",) if told else ())


def test_where_other_tables_are_asked_nothing_is_said_of_routes() -> None:
    rules = "0:\tfrom all lookup local\n100:\tfrom 10.244.0.0/16 lookup 42\n32766:\tfrom all lookup main\n"
    assert said(without("default").replace("10.244.3", "10.245.3"), POD, rules) == ()


def test_a_node_that_should_be_in_ebpf_mode_and_has_nothing_of_it_is_told_where_it_was_looked_for() -> None:
    config = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ebpf\n"
    assert said(config) == ()
    (one,) = said(config, live=True)
    assert one.startswith("the proxy's configuration says ebpf, and nothing of that mode is here")
    assert said(config.replace("ebpf", "nftables"), live=True) == ()


def ran(settings: Path, *more: str) -> Result:
    given = ["--rules", str(WEB / "nft.txt"), "--rules", str(settings), "-f", str(WEB / "manifests.yaml")]
    known = ["-f", str(GOLDEN / "kubernetes.yaml"), "--node", "node-a", "--node-ip", "10.200.0.1"]
    return CliRunner().invoke(command, [*given, *known, *more])


def test_the_rules_stay_equal_and_the_remark_has_a_command_that_tells_more(tmp_path: Path) -> None:
    settings = tmp_path / "sysctl.txt"
    settings.write_text("net.ipv4.ip_forward = 0\nnet.core.somaxconn = 4096\n")
    found = ran(settings)
    assert (found.exit_code, found.stdout.split()[0]) == (0, "equal")
    assert "for every packet the rules do what the API says" in found.stdout
    *_, remark, see = found.stdout.splitlines()
    assert remark.startswith("remark  net.ipv4.ip_forward is 0")
    assert see == f"  see     clusterip doctor {WEB / 'nft.txt'} {settings} " + " ".join(
        str(f) for f in (WEB / "manifests.yaml", GOLDEN / "kubernetes.yaml")
    )
    document = json.loads(ran(settings, "-o", "json").stdout)
    assert (document["verdict"], len(document["remarks"])) == ("equal", 1)
    settings.write_text("net.ipv4.ip_forward = 1\nnet.core.somaxconn = 4096\n")
    assert "remark" not in ran(settings).stdout

"""What `clusterip rules --proxy-mode ipvs` prints: the inputs of four programs, as our readers understand them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from clusterip.cli.rules import command
from clusterip.dataplane.ipvs import Config, compile_entry, document, sets
from clusterip.dataplane.node import FromCIDR
from clusterip.rulesets import ipset, iptables, ipvs
from clusterip.services.table import Backend, Entry, Family, PortName

CONFIG = Config(node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"), node_addresses=("192.168.50.11",))
ENTRY = Entry(
    PortName("shop", "web", "http"),
    "IPv4",
    "TCP",
    80,
    "10.96.0.10",
    node_port=30080,
    external_ips=("198.51.100.7",),
    load_balancer_ips=("192.0.2.200",),
    source_ranges=("0.0.0.0/0", "203.0.113.5/32"),
    external_local=True,
    affinity_seconds=10800,
    health_check_node_port=32000,
    cluster=(Backend("10.244.1.2", 8080, True), Backend("10.244.2.2", 8080)),
    local=(Backend("10.244.1.2", 8080, True),),
    has_backends=True,
)
GOLDEN = Path(__file__).parent / "golden"


def parts(text: str) -> dict[str, str]:
    blocks = text.split("# --- ")[1:]
    return {name: body.strip("\n") + "\n" for name, _, body in (block.partition(" ---\n") for block in blocks)}


@pytest.mark.parametrize("name", ["balancer", "plain"])
def test_the_document_is_what_it_was_when_it_was_read_by_a_person(name: str) -> None:
    entry = ENTRY if name == "balancer" else Entry(ENTRY.name, "IPv4", "SCTP", 80, "10.96.0.10")
    assert document.complete([compile_entry(entry, CONFIG)], CONFIG) == (GOLDEN / f"{name}.txt").read_text()


def test_each_part_is_read_without_a_doubt() -> None:
    found = parts(document.complete([compile_entry(ENTRY, CONFIG)], CONFIG))
    assert list(found) == ["ipset restore", "iptables-restore", "ipvsadm -R", "ip -batch -"]
    services, told = ipvs.read(found["ipvsadm -R"]), ipset.read(found["ipset restore"])
    assert not services.problems
    assert not told.problems
    assert len(told.values.sets) == len(sets.SETS)
    cluster = services.values.get("TCP", "10.96.0.10", 80)
    assert cluster is not None
    assert (cluster.scheduler, cluster.persistent, len(cluster.servers)) == ("rr", 10800, 2)
    assert iptables.parse(found["iptables-restore"]).rules("filter", "KUBE-IPVS-FILTER")


def test_a_range_of_everything_is_two_halves_as_ipset_knows_no_such_network() -> None:
    members = {m.text for m in compile_entry(ENTRY, CONFIG).members if m.kind == sets.SOURCE_CIDR}
    where = "192.0.2.200,tcp:80"
    assert members == {f"{where},0.0.0.0/1", f"{where},128.0.0.0/1", f"{where},203.0.113.5"}


@pytest.mark.parametrize("kind", sets.SETS, ids=lambda kind: kind.name)
def test_names_of_ipv6_are_cut_where_the_kernel_cuts_and_stay_apart(kind: sets.SetKind) -> None:
    name = sets.name(kind, Config(family="IPv6"))
    assert name.startswith("KUBE-6-")
    assert len(name) <= 31
    assert [k for k in sets.SETS if sets.name(k, Config(family="IPv6")) == name] == [kind]


@pytest.mark.parametrize("scheduler", ["rr", "mh"])
@pytest.mark.parametrize(("family", "address"), [("IPv4", "10.96.0.10"), ("IPv6", "fd00:96::a")])
def test_the_command_prints_them(scheduler: str, family: Family, address: str) -> None:
    text = f"""
apiVersion: v1
kind: Service
metadata: {{name: web, namespace: shop}}
spec: {{clusterIP: "{address}", ports: [{{port: 80}}]}}
"""
    argv = ["-f", "-", "--proxy-mode", "ipvs", "--ipvs-scheduler", scheduler, "--family", family]
    done = CliRunner().invoke(command, argv, input=text, catch_exceptions=False)
    assert done.exit_code == 0
    listed = ipvs.read(parts(done.stdout)["ipvsadm -R"]).values
    found = listed.get("TCP", address, 80)
    assert found is not None
    assert (found.scheduler, found.flags) == (scheduler, ("mh-port",) if scheduler == "mh" else ())

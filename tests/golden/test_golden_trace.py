"""The same question, asked of kube-proxy's iptables rules, of its nftables rules and of the specification."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from clusterip.diagnosis.facts import Facts, merge
from clusterip.diagnosis.question import Client, Target
from clusterip.diagnosis.trace import Tracer
from clusterip.rulesets import recognise
from clusterip.services.resolve import NodeContext, resolve
from clusterip.services.route import Delivered, Dropped, Outcome, Packet, Passed, Policy, Rejected, Source, route
from clusterip.services.table import Entry, Frontend, FrontendKind

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.glob("*/manifests.yaml"))
PROGRAMS = ("iptables-save.txt", "nft.txt")

NODE_IP = "10.200.0.1"
OWN_POD = "10.244.0.200"  # one that is no backend
OUTSIDE = "203.0.113.9"
IP_ADDR = f"""1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000
    inet 127.0.0.1/8 scope host lo
2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP group default qlen 1000
    inet {NODE_IP}/24 scope global eth0
""".encode()
SOURCES = {"pod": Source.POD, "node": Source.NODE, "outside": Source.OUTSIDE}


def facts(*files: Path, address: bool = True) -> Facts:
    read = [recognise.read(file.name, file.read_bytes()) for file in files]
    return merge([*read, recognise.read("ip-addr", IP_ADDR)] if address else read)


def entries(folder: Path) -> list[Entry]:
    objects = facts(HERE / "kubernetes.yaml", folder / "manifests.yaml", address=False)
    node = NodeContext("node-a", "zone-1")
    return [e for service in objects.services for e in resolve(service, objects.slices, node, "IPv4")]


def own_backends(table: Iterable[Entry]) -> list[str]:
    """Pods of this node that are backends themselves."""
    found = {b.address for e in table for b in (*e.cluster, *e.local) if b.local}
    return sorted(found - {NODE_IP})


def traced(tracer: Tracer, client: Client, address: str, frontend: Frontend) -> frozenset[Outcome]:
    walked = tracer.walk(client, Target(frontend.protocol.lower(), address, frontend.port))
    found: set[Outcome] = set()
    for one in walked.found:
        match one.verdict:
            case "delivered":
                host, _, port = one.backend.rpartition(":")
                found.add(Delivered(host, int(port), one.branch.packet.source_rewritten))
            case "rejected":
                found.add(Rejected())
            case "dropped":
                found.add(Dropped())
            case "passed":
                found.add(Passed())
            case "unknown":
                pytest.fail(one.branch.note)
    assert not any(c.kind != "affinity" for one in walked.found for c in one.branch.when)
    return frozenset(found)


def as_the_kernel_does(wanted: frozenset[Outcome], client: Client) -> frozenset[Outcome]:
    """A packet that came by an interface and ends on the node meets no postrouting: nothing masquerades it."""
    if client.kind == "node":
        return wanted
    return frozenset(
        Delivered(o.address, o.port, False) if isinstance(o, Delivered) and o.address == NODE_IP else o for o in wanted
    )


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_rules_send_every_client_where_the_specification_does(folder: Path, program: str) -> None:
    table = entries(folder)
    tracer = Tracer(facts(folder / program))
    clients = [Client("pod", OWN_POD), Client("node", NODE_IP), Client("outside", OUTSIDE)]
    clients += [Client("pod", address) for address in own_backends(table)]
    policy = Policy(frozenset({NODE_IP}), NODE_IP)
    for entry in table:
        for frontend in entry.frontends():
            address = frontend.address or NODE_IP
            for client in clients:
                packet = Packet(SOURCES[client.kind], client.address, address, frontend.port, frontend.protocol)
                wanted = as_the_kernel_does(route(table, packet, policy), client)
                if unhooked(program, entry, frontend, client):
                    wanted = frozenset({Passed()})
                assert traced(tracer, client, address, frontend) == wanted, (entry.name, frontend, client)


def unhooked(program: str, entry: Entry, frontend: Frontend, client: Client) -> bool:
    """kube-proxy's iptables rules refuse external addresses of empty Services in INPUT and FORWARD alone."""
    external = frontend.kind in (FrontendKind.EXTERNAL_IP, FrontendKind.LOAD_BALANCER)
    return program == "iptables-save.txt" and external and client.kind == "node" and not entry.has_backends


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_both_programs_give_equal_shares(folder: Path) -> None:
    one, other = (Tracer(facts(folder / program)) for program in PROGRAMS)
    client = Client("pod", OWN_POD)
    for entry in entries(folder):
        target = Target(entry.protocol.lower(), entry.cluster_ip, entry.port)
        shares = {r.backend: r.branch.probability for r in one.walk(client, target).found if not r.remembered}
        others = {r.backend: r.branch.probability for r in other.walk(client, target).found if not r.remembered}
        assert shares.keys() == others.keys()
        assert sum(shares.values()) == sum(others.values()) == 1
        assert all(abs(shares[b] - others[b]) < 2**-30 for b in shares)

"""`clusterip verify` of a live node in IPVS mode: equal to its API, and not once somebody has done damage."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.guest.world import CONFIG, NODE, ONE, TWO, VIP, World, world

from clusterip.diagnosis.facts import merge
from clusterip.diagnosis.verify.premises import Premises, premises
from clusterip.diagnosis.verify.report import Verification
from clusterip.diagnosis.verify.verify import verify_table
from clusterip.kernel.run import run
from clusterip.kernel.snapshot import snapshot
from clusterip.rulesets import recognise
from clusterip.services.table import Entry, PortName

pytestmark = pytest.mark.kernel
WEB = Entry(PortName("shop", "web", ""), "IPv4", "TCP", 80, VIP, cluster=(ONE, TWO), has_backends=True, node_port=30080)
LOCAL = replace(
    WEB,
    name=PortName("shop", "local", ""),
    cluster_ip="10.96.0.21",
    node_port=30081,
    local=(ONE,),
    external_local=True,
    affinity_seconds=600,
    load_balancer_ips=("192.0.2.200",),
    source_ranges=("203.0.113.0/24",),
)
NOBODY = replace(
    WEB, name=PortName("shop", "nobody", ""), cluster_ip="10.96.0.22", cluster=(), has_backends=False, node_port=0
)
TABLE = [WEB, LOCAL, NOBODY]


@pytest.fixture
async def node() -> AsyncIterator[World]:
    async with world() as found:
        yield found


async def verified(node: World) -> Verification:
    said = await snapshot(node.netns("node"))
    facts = merge([recognise.read(s.name, s.output) for s in said if s.output.strip()])
    told = Premises(node="node-1", node_port_addresses=(NODE,))
    found = premises(facts, told)
    assert found.pod_networks == ("10.244.0.0/16",)
    return verify_table(facts, TABLE, replace(found, addresses=(NODE, "10.244.1.1")), ipv6=False)


DAMAGE = {
    f"ipvsadm -d -t {VIP}:80 -r {ONE.address}:8080": ("shop/web", "missing-backend"),
    "ipset del KUBE-CLUSTER-IP 10.96.0.21,tcp:80": ("shop/local", "rejected"),
    "iptables -t nat -F KUBE-POSTROUTING": ("shop/web", "masquerade"),
}


async def test_a_live_node_is_equal_until_it_is_damaged(node: World) -> None:
    """All damage at once: a guest is slow to start programs, and a look at a node starts many."""
    await node.load(*TABLE, config=replace(CONFIG, host_addresses=frozenset({NODE, "10.244.1.1"})))
    before = await verified(node)
    assert (before.differences, before.unproven) == ((), ())
    for damage in DAMAGE:
        await run(damage.split(), netns=node.netns("node"))
    found = {(d.object.removeprefix("service "), d.kind) for d in (await verified(node)).differences}
    assert set(DAMAGE.values()) <= found

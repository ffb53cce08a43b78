"""A node without a backend of a Local policy: an error where connections are lost by it, else a note."""

import pytest
from tests.diagnosis.clothes import findings
from tests.diagnosis.dumps import HOOKED, manifest, pod, ready, save, service, service_rules, slice_of

from clusterip.diagnosis.findings import Finding

DROP = (
    '-A KUBE-EXTERNAL-SERVICES -p tcp -m comment --comment "default/web has no local endpoints" -m addrtype '
    "--dst-type LOCAL -m tcp --dport 30080 -j DROP"
)
DROP_ADDRESS = (
    '-A KUBE-EXTERNAL-SERVICES -d 192.168.50.12/32 -p tcp -m comment --comment "default/web has no local endpoints" '
    "-m tcp --dport 80 -j DROP"
)
DROP_INTERNAL = (
    '-A KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "default/web has no local endpoints" -m tcp '
    "--dport 80 -j DROP"
)
NAT = save("nat", [*HOOKED, *service_rules("default/web", "10.96.0.20", 80, ["10.244.1.5:80"])])
LOCAL = ", type: NodePort, externalTrafficPolicy: Local"
BALANCED = ", type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 32000"
ON_ONE = slice_of("web", ready("10.244.1.5", ", nodeName: node-1"))
NODES = manifest(
    """
    apiVersion: v1
    kind: NodeList
    items:
    - {metadata: {name: node-1}, status: {addresses: [{type: InternalIP, address: 192.168.50.11}]}}
    - {metadata: {name: node-2}, status: {addresses: [{type: InternalIP, address: 192.168.50.12}]}}
    """
)
OWN_ADDRESS = "2: eth0: <UP> mtu 1500\n    inet 192.168.50.12/24 scope global eth0\n"


def forwarded(*rules: str) -> str:
    hooks = [f"-A FORWARD -m conntrack --ctstate NEW -j KUBE-{chain}SERVICES" for chain in ("", "EXTERNAL-")]
    return save("filter", [*hooks, *rules])


def dropped_beside(address: str, node: str) -> tuple[str, ...]:
    """The Service with one backend, by its slice on `node`, and the rule of node-2 that drops."""
    one = slice_of("web", ready(address, f", nodeName: {node}"))
    return service("web", "10.96.0.20", spec=LOCAL), one, NODES, forwarded(DROP)


def told(id_: str, *texts: str, node: str = "node-2") -> Finding:
    """The one finding of this id: two would be the same said twice."""
    found = [f for f in findings(*texts, node=node) if f.id == id_]
    assert len(found) == 1, [(f.object, f.message) for f in found]
    return found[0]


@pytest.mark.parametrize(
    ("texts", "level", "says"),
    [
        # as the policy says
        ((service("web", "10.96.0.20", spec=LOCAL), ON_ONE, NODES), "I", "backends are on node-1"),
        ((service("web", "10.96.0.20", spec=LOCAL), ON_ONE, NODES, forwarded(DROP)), "I", "have to be sent there"),
        ((service("web", "10.96.0.20", spec=BALANCED), ON_ONE, NODES, forwarded(DROP)), "I", "health check node port"),
        ((NAT, forwarded(DROP)), "I", "other nodes have backends"),
        ((NAT, forwarded(DROP_ADDRESS)), "I", "packets to 192.168.50.12:80/tcp"),
        # lost
        (
            (service("web", "10.96.0.20", spec=LOCAL + ", externalIPs: [192.168.50.12]"), ON_ONE, NODES),
            "E",
            "192.168.50.12, an address of the Service, is node-2's own",
        ),
        ((NAT, forwarded(DROP, DROP_ADDRESS), OWN_ADDRESS), "E", "192.168.50.12 is this node's own address"),
        (
            (NAT, forwarded(DROP_ADDRESS), OWN_ADDRESS, OWN_ADDRESS.replace(".12", ".11")),
            "I",
            "This is what the policy says",
        ),
        ((NAT, forwarded(f"[7:420] {DROP}")), "E", "has counted 7"),
        ((forwarded(DROP),), "E", "No backend of the Service is known"),
        ((service("web", "10.96.0.20", spec=LOCAL), slice_of("web", ready("10.244.1.5")), NODES), "E", "says its node"),
        (
            dropped_beside("10.244.2.5", "node-2"),
            "E",
            "10.244.2.5 is on this node by its slice",
        ),
        (
            dropped_beside("10.244.1.5", "node-x"),
            "E",
            "nodes that the API does not have (node-x)",
        ),
    ],
)
def test_what_comes_from_outside_to_a_node_without_a_backend_is_lost_or_meant_to_be(
    texts: tuple[str, ...], level: str, says: str
) -> None:
    found = told("no-local-endpoints", *texts)
    assert found.level == level
    assert says in found.message


def test_a_nodes_own_address_is_no_fault_of_another_node() -> None:
    objects = (service("web", "10.96.0.20", spec=LOCAL + ", externalIPs: [192.168.50.12]"), ON_ONE, NODES)
    assert told("no-local-endpoints", *objects, node="node-2").level == "E"
    assert told("no-local-endpoints", *objects, node="").level == "E"
    assert "no-local-endpoints" not in {f.id for f in findings(*objects, node="node-1")}


@pytest.mark.parametrize(("node", "level"), [("node-2", "I"), ("ip-10-0-0-2", "E")])
def test_a_node_that_the_api_has_got_since_the_proxy_asked_for_it_is_not_misnamed(node: str, level: str) -> None:
    log = f'W1130 12:00:00.000001       1 server.go:601] Failed to retrieve node info: nodes "{node}" not found\n'
    given = (service("web", "10.96.0.20", spec=LOCAL), ON_ONE, NODES, forwarded(DROP), log)
    assert told("no-local-endpoints", *given, node="").level == level


def test_a_load_balancer_is_asked_as_it_asks() -> None:
    found = told("no-local-endpoints", service("web", "10.96.0.20", spec=BALANCED), ON_ONE, NODES, forwarded(DROP))
    assert found.remedy.startswith("curl -i http://192.168.50.12:32000/ ")


def running(node: str, more: str = "") -> str:
    return pod("asker", "app: asker", "phase: Running", f"nodeName: {node}, containers: [{{name: c}}]{more}")


@pytest.mark.parametrize("rules", [(), (NAT, forwarded(DROP_INTERNAL))], ids=["objects", "rules"])
@pytest.mark.parametrize(
    ("pods", "level"),
    [
        ("", "E"),  # nothing tells who runs there
        (running("node-2"), "E"),
        (running("node-1"), "I"),
        (running("node-2", ", hostNetwork: true"), "I"),
        (running("node-2").replace("Running", "Succeeded"), "I"),
    ],
    ids=["not told", "there", "elsewhere", "host network", "over"],
)
def test_an_internal_policy_is_a_fault_where_pods_run_that_may_ask(
    rules: tuple[str, ...], pods: str, level: str
) -> None:
    objects = (service("web", "10.96.0.20", spec=", internalTrafficPolicy: Local"), ON_ONE, NODES)
    assert told("itp-local", *objects, *rules, *((pods,) if pods else ())).level == level

"""Local traffic policies that leave a node without a backend, and whether connections are lost by it. Pure.

externalTrafficPolicy: Local is there to drop what comes from outside to a node without a backend: a load balancer asks
each node's health check node port, and leaves such a node out. So this is a note, in most clusters on most nodes. It is
an error where connections are lost for certain:

- no backend counts for any node: the slices name nodes that the API does not have, or none; or this node's proxy takes
  itself for another one than the slices say;
- an external address of the Service is the node's own, so that nobody can choose another node for it;
- no backend is known anywhere, by the API or by the rules;
- the rule that drops has counted packets.

internalTrafficPolicy: Local has nobody who leaves a node out: its clients are the pods of the node itself. It is an
error where such pods run, or where it is not known which run there; a note where there is none but on the host's
network.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from fractions import Fraction

from clusterip.diagnosis.doctor.backends import service_object
from clusterip.diagnosis.doctor.hostfacts import node_addresses
from clusterip.diagnosis.doctor.known import Key, Known
from clusterip.diagnosis.findings import ORDER, Evidence, Finding, shortened
from clusterip.diagnosis.packet import socket
from clusterip.model import objects as o
from clusterip.services.resolve import is_served

NAMED = 5  # nodes
INTERNAL, EXTERNAL = "itp-local", "no-local-endpoints"  # ids of findings


def find(known: Known) -> Iterator[Finding]:
    """As the API's objects alone tell it."""
    for key, service in known.services.items():
        ready = [
            (e, s)
            for s in known.slices_of.get(key, ())
            for e in s.endpoints or ()
            if e.conditions.ready is not False and e.addresses
        ]
        if not is_served(service) or not ready:
            continue
        on = {e.node_name or "" for e, _ in ready}
        if service.spec.internal_traffic_policy == "Local":
            yield from _internal(known, key, on)
        if service.spec.external_traffic_policy == "Local" and service.spec.type in ("NodePort", "LoadBalancer"):
            yield from _external(known, key, service, on)


def once(by_api: Iterable[Finding], by_rules: Iterable[Finding]) -> Iterator[Finding]:
    """Of one policy of a Service the API's objects and a node's rules both tell: the worse of the two, and of two alike
    that of the rules, for they show what happens. All other findings are left as they are."""
    by_api, by_rules = list(by_api), list(by_rules)
    worst: dict[tuple[str, str], Finding] = {}
    for f in (*by_rules, *by_api):
        if f.id in (INTERNAL, EXTERNAL) and ORDER[f.level] < ORDER[worst.setdefault(_policy(f), f).level]:
            worst[_policy(f)] = f
    yield from (f for f in by_api if worst.get(_policy(f), f) is f)
    yield from (f for f in by_rules if worst.get(_policy(f), f).level == f.level)


def _policy(f: Finding) -> tuple[str, str]:
    return f.id, f.object.partition(":")[0]


def nodes_of(known: Known) -> set[str]:
    """All that are known to be there."""
    return {*known.nodes, *([known.node] if known.node else ()), *(p.spec.node_name for p in known.pods)} - {""}


# --- internal ---------------------------------------------------------------------------------------------------------


def has_clients(known: Known, node: str) -> bool:
    """Whether pods run there that may ask a ClusterIP; also where nothing tells."""
    if not known.pods or not node:
        return True
    return any(p.spec.node_name == node and not p.spec.host_network and not p.status.ended for p in known.pods)


def _internal(known: Known, key: Key, on: set[str]) -> Iterator[Finding]:
    wanted = {known.node} if known.node else nodes_of(known)
    without = sorted(wanted - on)
    if not without:
        return
    lost = [node for node in without if has_clients(known, node)]
    evidence = (known.evidence("Service", key, "internalTrafficPolicy: Local"),)
    message = f"internalTrafficPolicy: Local, and {_named(lost or without)} no backend: "
    if not lost:
        message += (
            "no pod runs there that would ask, but for those on the host's network. This is what the policy says."
        )
        yield Finding(INTERNAL, "I", service_object(key), message, evidence)
        return
    message += f"clients there are dropped, whatever backends run on {', '.join(sorted(on - {''})) or 'other nodes'}."
    share = Fraction(len(lost), sum(has_clients(known, node) for node in wanted))
    yield Finding(INTERNAL, "E", service_object(key), message, evidence, share, patch(key, "internalTrafficPolicy"))


def _named(nodes: Sequence[str]) -> str:
    return f"{shortened(nodes, NAMED)} {'has' if len(nodes) == 1 else 'have'}"


def patch(key: Key, policy: str) -> str:
    """What takes the policy away."""
    remedy = f'kubectl patch service {key.name} -n {key.namespace} -p \'{{"spec":{{"{policy}":"Cluster"}}}}\'   # or '
    if policy == "internalTrafficPolicy":
        return remedy + "run a backend on every node (a DaemonSet)"
    return remedy + "send clients to nodes with a backend"


# --- external ---------------------------------------------------------------------------------------------------------


def _external(known: Known, key: Key, service: o.Service, on: set[str]) -> Iterator[Finding]:
    strange = sorted(name for name in on if name and known.nodes and name not in known.nodes)
    said: tuple[Evidence, ...] = (known.evidence("Service", key, "externalTrafficPolicy: Local"),)
    if strange:
        message = "externalTrafficPolicy: Local, and the slices name nodes that the API does not have "
        message += f"({', '.join(strange)}): no proxy takes these backends for its own, so every node drops what comes "
        message += "from outside."
        said += tuple(known.evidence("Node", Key("", name), f"node {name}") for name in list(known.nodes)[:NAMED])
        share = Fraction(1) if set(strange) == on else None
        remedy = "start the kubelet and the proxy with one name for the node: --hostname-override=$(NODE_NAME)"
        yield Finding(EXTERNAL, "E", service_object(key), message, said, share, remedy)
    elif on == {""}:
        message = "externalTrafficPolicy: Local, and no endpoint in the slices says its node: no proxy takes them "
        message += "for its own, so every node drops what comes from outside."
        remedy = "write nodeName: to each endpoint of the slices"
        yield Finding(EXTERNAL, "E", service_object(key), message, said, Fraction(1), remedy)
    elif mine := _own_without(known, service, on):
        address, node, place = mine
        message = f"externalTrafficPolicy: Local, and {address}, an address of the Service, is {node}'s own, which has "
        message += f"no backend: what comes to it from outside is dropped. Backends are on {', '.join(sorted(on))}."
        remedy = patch(key, "externalTrafficPolicy")
        yield Finding(EXTERNAL, "E", service_object(key), message, (*said, place), None, remedy)
    elif known.node and known.node not in on:
        message = f"externalTrafficPolicy: Local, and {known.node} has no backend: what comes from outside to this "
        message += f"node is dropped. {by_design(known, key, on)}"
        yield Finding(EXTERNAL, "I", service_object(key), message, said, None, to_see(known, key))


def _own_without(known: Known, service: o.Service, on: Collection[str]) -> tuple[str, str, Evidence] | None:
    """An address that clients outside are given, and whose own it is, of a node without a backend: the one that was
    asked about, or any."""
    ingress = (i.ip for i in service.status.load_balancer.ingress or ())
    for address in (*service.spec.external_ips, *ingress):
        node, place = owner(known, address) or ("", Evidence(""))
        if node and node not in on and known.node in ("", node):
            return address, node, place
    return None


def owner(known: Known, address: str) -> tuple[str, Evidence] | None:
    """The node that has it for itself, by its name; "" of the one that the files are of; None: nothing tells."""
    found = node_addresses(known).get(address)
    if found is None:
        return None
    whose, place = found
    if whose != "this node":
        return whose.removeprefix("node "), place
    several = len({source.file for source in known.interfaces}) > 1  # of several nodes, and nothing tells which
    return None if several else (known.node, place)


def by_design(known: Known, key: Key, on: Collection[str]) -> str:
    """Why it is no fault that a node without a backend drops. `on`: the nodes that have some, as far as is known."""
    where = f"backends are on {', '.join(sorted(on))}" if on else "other nodes have backends"
    if _health_check(known, key):
        return f"This is what the policy says: {where}, and a load balancer knows by the health check node port."
    return f"This is what the policy says: {where}, and clients have to be sent there."


def _health_check(known: Known, key: Key) -> int:
    """The node port; 0: there is none."""
    service = known.services.get(key)
    return service.spec.health_check_node_port or 0 if service else 0


def to_see(known: Known, key: Key) -> str:
    """What shows that the load balancer can know; "" where nothing is there to ask."""
    port = _health_check(known, key)
    node = known.nodes.get(known.node)
    address = next((a.address for a in node.status.addresses if a.type == "InternalIP"), "") if node else ""
    if not port or not address:
        return ""
    return f"curl -i http://{socket(address, port)}/   # 503 from a node without a backend, 200 from one that has some"

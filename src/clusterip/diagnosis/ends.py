"""What becomes of a packet that the rules deliver: findings about the backend's end of the way. Pure."""

from collections.abc import Iterator

from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.diagnosis.nobody import by_address, nobody_at
from clusterip.diagnosis.outcomes import Reached
from clusterip.diagnosis.question import addresses
from clusterip.diagnosis.sockets import gives_back, is_connected
from clusterip.diagnosis.subject import cost, name
from clusterip.diagnosis.walked import Walked


def nobody(walked: Walked) -> Iterator[Finding]:
    """Of the outcomes those where nobody is at the backend's address."""
    delivered = [one for one in walked.found if one.verdict == "delivered"]
    if not delivered:
        return
    pods = by_address(walked.facts.pods, {one.branch.packet.destination for one in delivered})
    gone: dict[str, list[Reached]] = {}
    for one in delivered:
        why = nobody_at(one.branch.packet.destination, pods, walked.facts.nodes)
        gone.setdefault(why, []).append(one)
    for why, lost in gone.items():
        if why:
            yield Finding("endpoint-without-pod", "E", name(walked), f"{why}: nobody answers", (), cost(lost))


def off_the_pods_link(walked: Walked) -> Iterator[Finding]:
    """A pod of this node that is reached by the way to everybody else: it is not there."""
    here = walked.facts.node
    own = {a for p in walked.facts.pods if here and p.spec.node_name == here for a in addresses(p)}
    lost: dict[str, list[Reached]] = {}
    for one in walked.found:
        to = one.branch.packet.destination
        route = walked.hooks.surroundings.route(to)
        if one.verdict == "delivered" and to in own and route and route.network.endswith("/0"):
            lost.setdefault(f"{route.interface} {route.via}", []).append(one)
    for ones in lost.values():
        backends = ", ".join(r.backend for r in ones[:3])
        message = (
            f"{backends} runs on this node, and the node's default route leads to it: its pods' link has lost its "
        )
        message += "address or its route"
        yield Finding("no-route-to-pod", "E", name(walked), message, (), cost(ones), "ip addr; ip route")


def without_the_way_back(walked: Walked) -> Iterator[Finding]:
    """Datagrams of a socket that was given a backend, and nothing gives their answers the Service's address."""
    packet, hooks = walked.packet, walked.facts.hooks
    sent = [r for r in walked.found if r.verdict == "delivered" and is_connected(r)]
    if packet.protocol != "udp" or not sent or gives_back(packet, hooks):
        return
    message = f"no program of eBPF mode is attached at {'recvmsg6' if packet.ipv6 else 'recvmsg4'}: answers come from "
    message += "the backend's address, and a client whose socket is not connected, as a resolver's, drops them"
    evidence = (Evidence(f"attached: {', '.join(sorted(hooks or ())) or 'none'}"),)
    yield Finding("ebpf-detached", "E", name(walked), message, evidence, cost(sent))

"""What a proxy means by a rule that stops a packet, as its place tells: kube-proxy's rules, and ours. Pure."""

from clusterip.dataplane.nftables.chains import REFUSE
from clusterip.dataplane.nftables.config import TABLE
from clusterip.diagnosis.walk.branch import Fired

_KUBE_PROXY = "kube-proxy"


def no_endpoints(fired: Fired) -> bool:
    """The Service has no usable backend on any node."""
    nft = (fired.table.rpartition(" ")[2], fired.chain) in ((TABLE, REFUSE), (_KUBE_PROXY, "reject-chain"))
    return (nft or fired.chain in ("KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES")) and fired.effect.startswith("reject")


def no_local_endpoints(fired: Fired) -> bool:
    """A Local policy, and no backend on this node."""
    if fired.effect != "drop":
        return False
    if fired.table.endswith(TABLE):
        return "-local-" in fired.chain or fired.chain.endswith("/local") or fired.chain == "services"
    return fired.chain == "KUBE-EXTERNAL-SERVICES"


def outside_source_ranges(fired: Fired) -> bool:
    """The client is in none of the load balancer's source ranges."""
    by_nft = fired.chain.startswith("admission-" if fired.table.endswith(TABLE) else "firewall-")
    return by_nft or fired.chain == "KUBE-PROXY-FIREWALL" or fired.chain.startswith("KUBE-FW-")


def no_translation(fired: Fired) -> bool:
    """Nothing has translated what was sent to a Service's address."""
    return fired.chain in ("check-cluster-ips", "cluster-ips-check")


def meaning(fired: Fired) -> str:
    """In a sentence's words; "": its place does not tell."""
    if no_endpoints(fired):
        return "the Service has no endpoints"
    if no_local_endpoints(fired):
        return "a Local traffic policy, and no backend on this node"
    if outside_source_ranges(fired):
        return f"{fired.before.source} is not within the Service's loadBalancerSourceRanges"
    if no_translation(fired):
        refused = fired.effect.startswith("reject")
        return "nothing translates this port of the Service" if refused else "no Service has this address"
    return ""

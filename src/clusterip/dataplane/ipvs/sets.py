"""The ipsets, by kube-proxy's names.

The order of `SETS` is the order in which members come, and the reverse of that in which they go. First those that
guard (a packet that is in them is refused, or passed over by the masquerade), then those that let in: so a packet is
never let in before what restricts it stands. Source: kube-proxy's IPVS mode.
"""

from typing import NamedTuple

from clusterip.dataplane.ipvs.config import Config
from clusterip.services.table import Protocol

_MAX_NAME = 31  # characters: IPSET_MAXNAMELEN less the final zero, include/uapi/linux/netfilter/ipset/ip_set.h


class SetKind(NamedTuple):
    name: str  # of IPv4
    type: str
    directions: str  # how a rule asks for it: one a dimension
    guards: bool = False

    @property
    def is_bitmap(self) -> bool:
        return self.type.startswith("bitmap")


ADDRESSES = SetKind("KUBE-IPVS-IPS", "hash:ip", "dst", guards=True)
SOURCE_CIDR = SetKind("KUBE-LOAD-BALANCER-SOURCE-CIDR", "hash:ip,port,net", "dst,dst,src", guards=True)
SOURCE_IP = SetKind("KUBE-LOAD-BALANCER-SOURCE-IP", "hash:ip,port,ip", "dst,dst,src", guards=True)
FIREWALL = SetKind("KUBE-LOAD-BALANCER-FW", "hash:ip,port", "dst,dst", guards=True)
LOOP_BACK = SetKind("KUBE-LOOP-BACK", "hash:ip,port,ip", "dst,dst,src", guards=True)
BALANCER_LOCAL = SetKind("KUBE-LOAD-BALANCER-LOCAL", "hash:ip,port", "dst,dst", guards=True)
NODE_PORT_LOCAL_TCP = SetKind("KUBE-NODE-PORT-LOCAL-TCP", "bitmap:port", "dst", guards=True)
NODE_PORT_LOCAL_UDP = SetKind("KUBE-NODE-PORT-LOCAL-UDP", "bitmap:port", "dst", guards=True)
NODE_PORT_LOCAL_SCTP = SetKind("KUBE-NODE-PORT-LOCAL-SCTP-HASH", "hash:ip,port", "dst,dst", guards=True)
CLUSTER_IP = SetKind("KUBE-CLUSTER-IP", "hash:ip,port", "dst,dst")
EXTERNAL_IP = SetKind("KUBE-EXTERNAL-IP", "hash:ip,port", "dst,dst")
EXTERNAL_IP_LOCAL = SetKind("KUBE-EXTERNAL-IP-LOCAL", "hash:ip,port", "dst,dst")
BALANCER = SetKind("KUBE-LOAD-BALANCER", "hash:ip,port", "dst,dst")
NODE_PORT_TCP = SetKind("KUBE-NODE-PORT-TCP", "bitmap:port", "dst")
NODE_PORT_UDP = SetKind("KUBE-NODE-PORT-UDP", "bitmap:port", "dst")
NODE_PORT_SCTP = SetKind("KUBE-NODE-PORT-SCTP-HASH", "hash:ip,port", "dst,dst")
HEALTH_CHECK = SetKind("KUBE-HEALTH-CHECK-NODE-PORT", "bitmap:port", "dst")

SETS = (
    ADDRESSES,
    SOURCE_CIDR,
    SOURCE_IP,
    FIREWALL,
    LOOP_BACK,
    BALANCER_LOCAL,
    NODE_PORT_LOCAL_TCP,
    NODE_PORT_LOCAL_UDP,
    NODE_PORT_LOCAL_SCTP,
    CLUSTER_IP,
    EXTERNAL_IP,
    EXTERNAL_IP_LOCAL,
    BALANCER,
    NODE_PORT_TCP,
    NODE_PORT_UDP,
    NODE_PORT_SCTP,
    HEALTH_CHECK,
)
RANK = {kind: rank for rank, kind in enumerate(SETS)}
NODE_PORTS: dict[Protocol, tuple[SetKind, SetKind]] = {  # those of Local policy, and all
    "TCP": (NODE_PORT_LOCAL_TCP, NODE_PORT_TCP),
    "UDP": (NODE_PORT_LOCAL_UDP, NODE_PORT_UDP),
    "SCTP": (NODE_PORT_LOCAL_SCTP, NODE_PORT_SCTP),
}


class Member(NamedTuple):
    kind: SetKind
    text: str  # as `ipset save` prints it: "10.96.0.10,tcp:80"


def name(kind: SetKind, config: Config) -> str:
    return f"KUBE-6-{kind.name.removeprefix('KUBE-')}"[:_MAX_NAME] if config.ipv6 else kind.name


def create(kind: SetKind, config: Config) -> str:
    """The line of `ipset restore` that declares the set, with the options that `ipset save` prints."""
    if kind.is_bitmap:
        return f"create {name(kind, config)} {kind.type} range 0-65535"
    family = "inet6" if config.ipv6 else "inet"
    return f"create {name(kind, config)} {kind.type} family {family} hashsize 1024 maxelem 65536"

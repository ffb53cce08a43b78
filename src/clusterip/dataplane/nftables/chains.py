"""The chains: fixed ones, those that a number of backends calls for, and those that belong to one Service port. Pure.

Chains are values of `rulesets.nft`; they are written as `nft list` prints them, so that what is read back is equal.
"""

import hashlib
import ipaddress
from collections.abc import Iterable
from typing import Literal

from clusterip.dataplane.nftables.config import Config
from clusterip.dataplane.node import FromCIDR, FromInterface
from clusterip.rulesets.nft import values as v
from clusterip.services.table import Backend, Entry, Protocol

CLUSTER_IPS, NODE_PORT_ADDRESSES, HAIRPINS = "cluster-ips", "node-port-addresses", "hairpins"
SERVICE_IPS, NODE_PORTS = "service-ips", "node-ports"
NO_ENDPOINTS, NO_ENDPOINT_NODE_PORTS = "no-endpoints", "no-endpoint-node-ports"
ENDPOINTS, LOCAL_ENDPOINTS = "endpoints", "local-endpoints"
NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS = "node-port-endpoints", "node-port-local-endpoints"

_ENDPOINTS = {  # by: of a node port, local ones only
    (False, False): ENDPOINTS,
    (False, True): LOCAL_ENDPOINTS,
    (True, False): NODE_PORT_ENDPOINTS,
    (True, True): NODE_PORT_LOCAL_ENDPOINTS,
}

CLIENTS = "clients-"  # how names of sets begin that the kernel fills: the clients of a sticky backend
REFUSE = "refuse"  # the chain that answers: there is nobody here
DROP = v.Drop()
NUMBERS = 65536  # of endpoints that one frontend may have, in the type of the maps' keys
MAX_CLIENTS = 65535  # that a sticky backend remembers: the kernel's own limit for a set that rules fill
MAX_NAME = 255  # bytes: NFT_NAME_MAXLEN less the final zero, include/uapi/linux/netfilter/nf_tables.h


class Words:
    """The expressions of one family."""

    def __init__(self, config: Config) -> None:
        self.ip: Literal["ip", "ip6"] = "ip6" if config.ipv6 else "ip"
        self.saddr, self.daddr = v.Payload(self.ip, "saddr"), v.Payload(self.ip, "daddr")
        self.protocol, self.dport = v.Meta("l4proto"), v.Payload("th", "dport")
        self.service = v.Concat((self.daddr, self.protocol, self.dport))
        self.node_port = v.Concat((self.protocol, self.dport))
        self.address_type = "ipv6_addr" if config.ipv6 else "ipv4_addr"

    def network(self, cidr: str) -> v.Address | v.Prefix:
        network = ipaddress.ip_network(cidr)
        whole = network.prefixlen == network.max_prefixlen
        address = str(network.network_address)
        return v.Address(address) if whole else v.Prefix(address, network.prefixlen)


def goto(target: str) -> v.Verdict:
    return v.Goto(target) if target else DROP


# --- sets and maps ---------------------------------------------------------------------------------------------------


def sets(config: Config) -> tuple[v.Set, ...]:
    """The fixed ones, without size and elements."""
    w = Words(config)
    service = (w.address_type, "inet_proto", "inet_service")
    number = f"numgen random mod {NUMBERS}"
    backend = (f"{w.ip} daddr", "th dport")
    served = config.served_addresses
    return (
        v.Set(CLUSTER_IPS, (w.address_type,)),
        *((v.Set(NODE_PORT_ADDRESSES, (w.address_type,)),) if served is not None else ()),
        v.Set(HAIRPINS, (w.address_type, w.address_type)),
        v.Set(SERVICE_IPS, service, ("verdict",)),
        v.Set(NODE_PORTS, service[1:], ("verdict",)),
        v.Set(NO_ENDPOINTS, service, ("verdict",)),
        v.Set(NO_ENDPOINT_NODE_PORTS, service[1:], ("verdict",)),
        *(
            v.Set(name, (f"{w.ip} daddr", "meta l4proto", "th dport", number), backend, typeof=True)
            for name in (ENDPOINTS, LOCAL_ENDPOINTS)
        ),
        *(
            v.Set(name, ("meta l4proto", "th dport", number), backend, typeof=True)
            for name in (NODE_PORT_ENDPOINTS, NODE_PORT_LOCAL_ENDPOINTS)
        ),
    )


# --- fixed chains ----------------------------------------------------------------------------------------------------


def fixed(config: Config) -> tuple[v.Chain, ...]:
    w = Words(config)
    return (
        v.Chain(REFUSE, (v.Rule((v.Reject(),)),)),
        *_checks(config, w),
        _services(config, w),
        _masquerading(config, w),
        *_hooks(config),
    )


def _hooks(config: Config) -> tuple[v.Chain, ...]:
    def new(*chains: str) -> tuple[v.Rule, ...]:
        return tuple(v.Rule((v.Match(v.Ct("state"), "", v.Word("new")), v.Jump(chain))) for chain in chains)

    # A packet that connection tracking cannot place would reach the client with the backend's address as its source.
    invalid = (v.Rule((v.Match(v.Ct("state"), "", v.Word("invalid")), DROP)),) if config.drop_invalid else ()
    onward = new("check-services", "check-cluster-ips")
    return (
        v.Chain("filter-input", new("check-node-ports", "check-services"), v.Hook("filter", "input", 0)),
        v.Chain("filter-forward", (*invalid, *onward), v.Hook("filter", "forward", 0)),
        v.Chain("filter-output", onward, v.Hook("filter", "output", 0)),
        v.Chain("nat-prerouting", (v.Rule((v.Jump("services"),)),), v.Hook("nat", "prerouting", -100)),
        v.Chain("nat-output", (v.Rule((v.Jump("services"),)),), v.Hook("nat", "output", -100)),
        v.Chain("nat-postrouting", (v.Rule((v.Jump("masquerading"),)),), v.Hook("nat", "postrouting", 100)),
    )


def _checks(config: Config, w: Words) -> tuple[v.Chain, ...]:
    """What becomes of packets that were sent to no backend."""
    unused = (v.Rule((v.Match(w.daddr, "", w.network(cidr)), DROP)) for cidr in config.service_cidrs)
    ports = (*_served(config, w), v.VerdictMap(w.node_port, v.SetName(NO_ENDPOINT_NODE_PORTS)))
    return (
        v.Chain("check-services", (v.Rule((v.VerdictMap(w.service, v.SetName(NO_ENDPOINTS)),)),)),
        v.Chain("check-node-ports", (v.Rule(ports),)),
        v.Chain(
            "check-cluster-ips",
            (v.Rule((v.Match(w.daddr, "", v.SetName(CLUSTER_IPS)), v.Reject()), "no such port"), *unused),
        ),
    )


def _served(config: Config, w: Words) -> tuple[v.Statement, ...]:
    """To an address that serves node ports."""
    if config.served_addresses is not None:
        return (v.Match(w.daddr, "", v.SetName(NODE_PORT_ADDRESSES)),)
    loopback = v.Address("::1") if config.ipv6 else v.Prefix("127.0.0.0", 8)
    return (v.Match(v.Fib(("daddr",), "type"), "", v.Word("local")), v.Match(w.daddr, "!=", loopback))


def _services(config: Config, w: Words) -> v.Chain:
    to_service = v.Match(w.daddr, "", v.SetName(CLUSTER_IPS))
    mark = _mark(config)
    masquerade: tuple[v.Rule, ...] = ()
    if config.masquerade_all:
        masquerade = (v.Rule((to_service, mark)),)
    elif config.detector is not None:
        masquerade = (v.Rule((to_service, _pods(config, w, "!="), mark)),)
    ports = (*_served(config, w), v.VerdictMap(w.node_port, v.SetName(NODE_PORTS)))
    return v.Chain("services", (*masquerade, v.Rule((v.VerdictMap(w.service, v.SetName(SERVICE_IPS)),)), v.Rule(ports)))


def _masquerading(config: Config, w: Words) -> v.Chain:
    mark, bit = v.Meta("mark"), v.Number(config.mark)
    masquerade = v.Nat("masquerade", flags=("fully-random",))
    marked = v.Match(v.Binary("&", mark, bit), "==", bit)
    same = v.Match(v.Concat((w.saddr, w.daddr)), "", v.SetName(HAIRPINS))
    return v.Chain(
        "masquerading",
        (
            v.Rule((marked, v.Mangle(mark, v.Binary("^", mark, bit)), masquerade)),
            v.Rule((v.Match(v.Ct("status"), "", v.Word("dnat")), same, masquerade)),
        ),
    )


def _mark(config: Config) -> v.Mangle:
    return v.Mangle(v.Meta("mark"), v.Binary("|", v.Meta("mark"), v.Number(config.mark)))


def _pods(config: Config, w: Words, operator: Literal["", "!="]) -> v.Match:
    """The packet is, or with "!=" is not, a pod's."""
    match config.detector:
        case FromCIDR(cidr):
            return v.Match(w.saddr, operator, w.network(cidr))
        case FromInterface(pattern):
            name = pattern[:-1] + "*" if pattern.endswith("+") else pattern
            return v.Match(v.Meta("iifname"), operator, v.Quoted(name))
        case None:
            raise AssertionError("without a detector there is nothing to ask")


# --- chains that are there while something leads to them -------------------------------------------------------------


def pick(config: Config, count: int, *, node_port: bool, local: bool) -> v.Chain:
    """To one of `count` endpoints of whatever frontend the packet is for."""
    w = Words(config)
    endpoints = _ENDPOINTS[node_port, local]
    frontend = w.node_port if node_port else w.service
    key = v.Concat((*frontend.parts, v.Numgen("random", count)))
    rule = v.Rule((v.Nat("dnat", v.Lookup(key, v.SetName(endpoints)), family=w.ip),))
    return v.Chain(f"{'node-' if node_port else ''}{'local-' if local else ''}pick-{count}", (rule,))


def external(config: Config, name: str, to: str) -> v.Chain:
    """From outside, to any backend, which must answer through this node."""
    return v.Chain(name, (v.Rule((_mark(config),)), v.Rule((goto(to),))))


def external_local(config: Config, name: str, to: str, to_local: str) -> v.Chain:
    """From outside to local backends only. What began on this node met no load balancer that knows of the policy:
    any backend will do."""
    w = Words(config)
    own = v.Match(v.Fib(("saddr",), "type"), "", v.Word("local"))
    pods = (v.Rule((_pods(config, w, ""), goto(to))),) if config.detector is not None else ()
    rules = (*pods, v.Rule((own, _mark(config), goto(to))), v.Rule((goto(to_local),)))
    return v.Chain(name, rules)


def admission(config: Config, name: str, sources: Iterable[str], to: str) -> v.Chain:
    """From these ranges only."""
    w = Words(config)
    allowed = (v.Rule((v.Match(w.saddr, "", w.network(source)), goto(to))) for source in sources)
    return v.Chain(name, (*allowed, v.Rule((DROP,))))


def identity(entry: Entry) -> str:
    """What names of its own chains and sets go on with. Parts of a Service's name hold no slash."""
    name = entry.name
    return f"{name.namespace}/{name.service}/{entry.protocol.lower()}/{name.port}"


def _of_backend(entry: Entry, backend: Backend) -> str:
    return f"{identity(entry)}__{backend.address.replace(':', '.')}/{backend.port}"


def clients(config: Config, entry: Entry, backend: Backend) -> v.Set:
    """The clients that a sticky backend has had within the timeout."""
    timeout = _seconds(entry.affinity_seconds)
    # The kernel changes no set's timeout: another one is another set.
    name = _fitting(f"{CLIENTS}{_of_backend(entry, backend)}/{timeout}")
    kind = (Words(config).address_type,)
    return v.Set(name, kind, flags=("dynamic", "timeout"), timeout=timeout, size=MAX_CLIENTS)


def _fitting(name: str) -> str:
    """Only where the names of Service, namespace and port are as long as they may be, and the backend's address is
    long, too, is one cut."""
    if len(name) <= MAX_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: MAX_NAME - len(digest) - 1]}_{digest}"


def _seconds(total: int) -> str:
    """As nft writes it: "3h", "1m30s"."""
    minutes, seconds = divmod(total, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def sticky_endpoint(config: Config, entry: Entry, backend: Backend) -> v.Chain:
    """Two rules, so that a client that finds the set full is still served."""
    w = Words(config)
    remember = v.Update("update", clients(config, entry, backend).name, w.saddr)
    protocol = v.Match(w.protocol, "", _protocol(entry.protocol))
    to = v.Nat("dnat", v.Address(backend.address), v.Number(backend.port))
    return v.Chain(f"endpoint-{_of_backend(entry, backend)}", (v.Rule((remember,)), v.Rule((protocol, to))))


def _protocol(protocol: Protocol) -> v.Word:
    return v.Word(protocol.lower())


def sticky(config: Config, entry: Entry, backends: tuple[Backend, ...], name: str) -> v.Chain:
    """The backend that the client had last, or any. Rule i of the lots is reached only if those before it were not
    drawn, so it is drawn one time in n - i; the last always."""
    w = Words(config)
    ends = [(b, v.Goto(f"endpoint-{_of_backend(entry, b)}")) for b in backends]
    known = (v.Rule((v.Match(w.saddr, "", v.SetName(clients(config, entry, b).name)), end)) for b, end in ends)
    lots = [v.Rule((v.Match(v.Numgen("random", len(ends) - i), "", v.Number(0)), e)) for i, (_, e) in enumerate(ends)]
    lots[-1] = v.Rule((ends[-1][1],))
    return v.Chain(name, (*known, *lots))

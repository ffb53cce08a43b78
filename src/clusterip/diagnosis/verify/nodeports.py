"""Which of the node's addresses answer on node ports: as the proxy's configuration says, else as its rules have it."""

import ipaddress
from collections.abc import Iterable, Iterator, Sequence

from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.walk.surroundings import is_network, within
from clusterip.model.status import Object
from clusterip.rulesets.iptables import values as v
from clusterip.rulesets.nft import values as n

_PRIMARY = "primary"  # in nodePortAddresses: the node's own address of each family
_SETS = ("nodeport-ips", "node-port-addresses")  # kube-proxy's, and ours
_TABLES = ("kube-proxy", "clusterip")


def served_addresses(facts: Facts, addresses: Sequence[str]) -> tuple[str, ...] | None:
    """`addresses`: of the node, that by which its proxy knows it first. None: all of them."""
    for given in reversed(facts.given):
        if given.manifest.kind == "KubeProxyConfiguration":
            return _configured(given.manifest.document, addresses, tables=_writes_tables(facts))
    return _ruled(facts, addresses)


def _configured(document: Object, addresses: Sequence[str], *, tables: bool) -> tuple[str, ...] | None:
    """`tables`: there are some of nftables mode, in case the configuration leaves the mode open."""
    wanted = [str(w) for w in document.get("nodePortAddresses") or ()]
    mode = document.get("mode") or ("nftables" if tables else "iptables")
    if wanted == [_PRIMARY] or (not wanted and mode in ("nftables", "ebpf")):
        return _primary(addresses)
    networks = [w for w in wanted if is_network(w)]
    if not networks:
        return None
    families = {ipaddress.ip_network(w, strict=False).version for w in networks}
    # A family of which no range is named is served everywhere.
    found = [a for a in addresses if _version(a) not in families or any(within(a, w) for w in networks)]
    return tuple(found)


def _primary(addresses: Iterable[str]) -> tuple[str, ...]:
    first: dict[int, str] = {}
    for address in addresses:
        first.setdefault(_version(address), address)
    return tuple(first.values())


def _ruled(facts: Facts, addresses: Sequence[str]) -> tuple[str, ...] | None:
    """A family of which the rules tell nothing is served everywhere."""
    told: dict[int, set[str] | None] = {}
    for version, found in (*_of_iptables(facts), *_of_tables(facts)):
        before = told.get(version, set())
        told[version] = None if before is None or found is None else before | found
    if all(found is None for found in told.values()):
        return None
    served = [a for a in addresses if (found := told.get(_version(a))) is None or a in found]
    others = {a for found in told.values() for a in found or ()} - set(addresses)
    return (*served, *sorted(others))


def _of_iptables(facts: Facts) -> Iterator[tuple[int, set[str] | None]]:
    """By family; None: all."""
    for given in facts.iptables:
        for rule in given.ruleset.rules("nat", "KUBE-SERVICES"):
            if rule.target == v.Jump("KUBE-NODEPORTS"):
                named = [m.network for m in rule.matches if isinstance(m, v.Destination) and not m.negated]
                yield 6 if given.ipv6 else 4, {network.partition("/")[0] for network in named} if named else None


def _of_tables(facts: Facts) -> Iterator[tuple[int, set[str] | None]]:
    for rules in facts.nft:
        for table in rules.ruleset:
            sets = [table.sets[name] for name in _SETS if name in table.sets]
            if sets:
                elements = (e.key for found in sets for e in found.elements)
                yield 6 if table.family == "ip6" else 4, {k.text for k in elements if isinstance(k, n.Address)}


def _writes_tables(facts: Facts) -> bool:
    return any(table.name in _TABLES for rules in facts.nft for table in rules.ruleset)


def _version(address: str) -> int:
    return 6 if ":" in address else 4

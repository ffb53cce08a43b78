"""Whose source address is rewritten: too few, too many, twice. Pure."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_network

from clusterip.dataplane.nftables.config import TABLE
from clusterip.diagnosis.doctor.hostfacts import route_to
from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.diagnosis.doctor.programmed import Frontend, Programmed, asked, service_name, share_list
from clusterip.diagnosis.doctor.programmed_nft import asks_source
from clusterip.diagnosis.findings import Evidence, Finding, Level
from clusterip.diagnosis.walk.surroundings import is_network, within
from clusterip.rulesets import proxylog
from clusterip.rulesets.iptables import line_text
from clusterip.rulesets.iptables import values as ipt
from clusterip.rulesets.iptables.saved import Saved
from clusterip.rulesets.nft import values as nft

MARK = "KUBE-MARK-MASQ"
_CONFIG = "set clusterCIDR (the pods' range) in the proxy's configuration, and restart it"


def find(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    for source in known.iptables:
        yield from _of_iptables(known, source, [p for p in programs if _is_of(p, source)])
        yield from _twice(source)
        yield from _everything(source)
    for rules in known.nft:
        yield from _of_nft(known, rules, [p for p in programs if p.file == rules.file and p.form == "nftables"])


def _is_of(p: Programmed, source: Sourced[Saved]) -> bool:
    """One file may hold both families, and both variants, one after the other."""
    own = (p.form, p.file, p.variant) == ("iptables", source.file, source.values.variant)
    return own and (":" in p.frontend.address) == (source.values.family == "ip6")


def _of_iptables(known: Known, source: Sourced[Saved], programs: Sequence[Programmed]) -> Iterator[Finding]:
    nat = source.values.ruleset.tables.get("nat")
    if nat is None or MARK not in nat.chains:
        return
    marked: dict[Frontend, tuple[bool, Evidence, str]] = {}  # whether clients of every source are
    for chain in nat.chains.values():
        if chain.name.startswith(("KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-")) or chain.name == "KUBE-NODEPORTS":
            continue
        for number, rule in enumerate(chain.rules):
            if not isinstance(rule.target, ipt.Jump) or rule.target.chain != MARK:
                continue
            frontend = asked(rule)
            if frontend.address and frontend.port:
                some = any(not _names_frontend(m) for m in rule.matches)
                place = source.rule("nat", chain.name, number, line_text(chain.name, rule))
                marked[frontend] = (not some, place, service_name(rule.comment))
    internal = [p for p in programs if p.internal and p.frontend.address and p.shares]  # else nobody would answer
    all_sources = [(f, place, name) for f, (everybody, place, name) in marked.items() if everybody
                   if f in {p.frontend for p in internal}]  # fmt: skip
    if all_sources:
        yield _too_many(all_sources)
    without = [p for p in internal if p.frontend not in marked]
    if without:
        yield from _too_few(known, source.file, without)


def _names_frontend(match: ipt.Match) -> bool:
    return isinstance(match, (ipt.Destination, ipt.IPProtocol, ipt.Ports, ipt.Comment))


def _too_many(found: Sequence[tuple[Frontend, Evidence, str]]) -> Finding:
    frontend, place, name = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    message = f"Everything sent to {frontend}{more} is masqueraded, pods' connections as well: backends see a node's "
    message += "address instead of the client's, and a NetworkPolicy that allows pods by their labels does not match."
    remedy = "set iptables.masqueradeAll: false and clusterCIDR in the proxy's configuration, and restart it"
    return Finding(
        "masquerade-all", "W", f"service {name}" if name else f"frontend {frontend}", message, (place,), None, remedy
    )


def _too_few(known: Known, file: str, without: Sequence[Programmed]) -> Iterator[Finding]:
    """That nothing is marked harms clients which are no pods; only the log tells that it is not meant."""
    told = [
        (log, e) for log in known.logs for e in proxylog.events(log.values) if isinstance(e, proxylog.NoClusterCIDR)
    ]
    flagged = [c for c in known.of_kind("KubeProxyConfiguration") if not c.values.document.get("clusterCIDR")]
    first = without[0]
    more = f" (and {len(without) - 1} more)" if len(without) > 1 else ""
    message = f"No rule marks connections to {first.frontend}{more} for masquerade. A client that is not a pod (this "
    message += "host by another interface, a second network) keeps its source address; unless the backend's node has "
    message += "a route back through this one, the answer goes past it and is not translated back. Backends: "
    message += f"{share_list(first.shares)}. A proxy writes such rules only when it knows the pods' range"
    pods = _range(first)
    message += f"; here they look like {pods}." if pods else "."
    evidence = [first.place]
    evidence += [log.at(e.line, "clusterCIDR not specified: pods cannot be told from others") for log, e in told[:1]]
    evidence += [c.at(c.values.line, "KubeProxyConfiguration: clusterCIDR is not set") for c in flagged[:1]]
    level: Level = "E" if told or flagged else "W"
    yield Finding("masquerade-missing", level, first.object, message, tuple(evidence), None, _CONFIG)
    yield from _wrong_source(known, without)


def _range(p: Programmed) -> str:
    """The /16 that all backends are in."""
    ranges = {f"{b.rpartition(':')[0]}/16" for b in p.shares if "[" not in b}
    networks = {ip_network(r, strict=False) for r in ranges if is_network(r)}
    return str(networks.pop()) if len(networks) == 1 else ""


def _wrong_source(known: Known, without: Sequence[Programmed]) -> Iterator[Finding]:
    """The host takes the source of the route to the ClusterIP, and leaves by the route to the backend."""
    for p in without:
        there = route_to(known, p.frontend.address)
        for backend in p.shares:
            leaves = route_to(known, backend.rpartition(":")[0].strip("[]"))
            if not (there and leaves and there.device and leaves.device) or there.device == leaves.device:
                continue
            message = f"This host's connections to {p.frontend} take the source address of {there.device} "
            message += f"({there.source or 'its'} route to the ClusterIP), are sent to {backend}, and leave by "
            message += f"{leaves.device} with that address: the answer comes back by another way, or not at all."
            remedy = f"ip route add {p.frontend.address}/32 dev {leaves.device}   # or {_CONFIG}"
            yield Finding("wrong-source-address", "E", p.object, message, (there.place, leaves.place), None, remedy)
            return


# --- nftables ---------------------------------------------------------------------------------------------------------


def _of_nft(known: Known, source: Sourced[nft.Ruleset], programs: Sequence[Programmed]) -> Iterator[Finding]:
    for table in source.values:
        own = table.name == TABLE
        six = table.family == "ip6"
        internal = [
            p
            for p in programs
            if p.frontend.address and (":" in p.frontend.address) == six and (p.internal if own else _by_kube_proxy(p))
        ]
        if table.name == "kube-proxy" or own:
            yield from _of_table(known, source, table, internal)


def _by_kube_proxy(p: Programmed) -> bool:
    return p.chain.startswith("service-") and "goto service-" in p.place.text


def _of_table(
    known: Known, source: Sourced[nft.Ruleset], table: nft.Table, internal: Sequence[Programmed]
) -> Iterator[Finding]:
    everybody, some = _marks(table, "services")
    if some or not internal:
        return
    lacking = []
    for p in internal:
        all_of_it, of_some = _marks(table, p.chain)
        if all_of_it or everybody:
            yield _too_many([(p.frontend, p.place, p.name)])
            return
        if not of_some:
            lacking.append(p)
    if lacking:
        yield from _too_few(known, source.file, lacking)


def _marks(table: nft.Table, chain: str) -> tuple[bool, bool]:
    """Whether the chain marks for masquerade whatever the source is, and whether by what it is."""
    everybody = some = False
    for rule in table.rules(chain):
        if not any(isinstance(s, nft.Mangle) or (isinstance(s, nft.Jump) and s.chain == "mark-for-masquerade")
                   for s in rule.statements):  # fmt: skip
            continue
        asks = [s for s in rule.statements if isinstance(s, nft.Match) and asks_source(s.left)]
        some |= bool(asks)
        everybody |= not asks
    return everybody, some


# --- twice ------------------------------------------------------------------------------------------------------------


def _twice(source: Sourced[Saved]) -> Iterator[Finding]:
    """Another program's rule for what comes from no pod and goes to one, beside kube-proxy's own."""
    for table in source.values.ruleset:
        own = _masquerading(table, ours=True)
        foreign = [
            (name, number, rule) for name, number, rule in _masquerading(table, ours=False) if _from_no_pod_to_one(rule)
        ]
        if not (own and foreign):
            continue
        name, number, rule = foreign[0]
        mine, at, kube = own[-1]
        message = f"Two rules masquerade what this host sends to a pod by a Service: {name} rule {number + 1} and "
        message += f"{mine} rule {at + 1}. The nat table is asked once for each connection, so the first wins; but "
        message += "over VXLAN the outer packet may be rewritten as well, and with checksum offload some kernels then "
        message += "send a wrong checksum: the connection comes about after 63 s (1+2+4+8+16+32), or not."
        evidence = (
            source.rule(table.name, name, number, line_text(name, rule)),
            source.rule(table.name, mine, at, line_text(mine, kube)),
        )
        remedy = "ethtool -K flannel.1 tx-checksum-ip-generic off   # or a kernel from 5.6.13, 5.4.41, 4.19.123, "
        remedy += "4.14.181 on"
        yield Finding("double-masquerade", "W", f"nat/{name}", message, evidence, None, remedy)


def _masquerading(table: ipt.Table, *, ours: bool) -> list[tuple[str, int, ipt.Rule]]:
    return [
        (name, number, rule)
        for name, chain in table.chains.items()
        if name.startswith("KUBE-") == ours
        for number, rule in enumerate(chain.rules)
        if isinstance(rule.target, (ipt.Masquerade, ipt.SNAT))
    ]


def _from_no_pod_to_one(rule: ipt.Rule) -> bool:
    sources = [m for m in rule.matches if isinstance(m, ipt.Source)]
    destinations = [m for m in rule.matches if isinstance(m, ipt.Destination) and not m.negated]
    return any(s.negated for s in sources) and any(
        s.network == d.network or _inside(d.network, s.network) for s in sources for d in destinations
    )


def _inside(inner: str, outer: str) -> bool:
    return within(inner.partition("/")[0], outer)


def _everything(source: Sourced[Saved]) -> Iterator[Finding]:
    """KUBE-POSTROUTING masquerades without asking for the mark: its match was lost on the way."""
    nat = source.values.ruleset.tables.get("nat")
    jumps = [r.target.chain for r in nat.rules("POSTROUTING") if isinstance(r.target, ipt.Jump)] if nat else []
    if nat is None or "KUBE-POSTROUTING" not in jumps:
        return
    asked = False
    for number, rule in enumerate(nat.rules("KUBE-POSTROUTING")):
        asked |= any(isinstance(m, (ipt.Mark, ipt.InSet)) for m in rule.matches)
        if (
            isinstance(rule.target, ipt.Masquerade)
            and not asked
            and not any(not isinstance(m, ipt.Comment) for m in rule.matches)
        ):
            message = "KUBE-POSTROUTING masquerades every packet: the match for the mark was lost, as when one "
            message += "version of iptables saves what another wrote. Backends see no client's address."
            place = source.rule("nat", "KUBE-POSTROUTING", number, line_text("KUBE-POSTROUTING", rule))
            remedy = "iptables -t nat -F KUBE-POSTROUTING   # the proxy writes it anew; use one version of iptables"
            yield Finding("masquerade-all", "W", "nat/KUBE-POSTROUTING", message, (place,), None, remedy)
            return

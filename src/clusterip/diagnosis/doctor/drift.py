"""What the programs hold against what the API says, and the programs against each other. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from clusterip.diagnosis.doctor import proxies
from clusterip.diagnosis.doctor.backends import Wanted, equal_shares, wanted
from clusterip.diagnosis.doctor.known import Key, Known
from clusterip.diagnosis.doctor.programmed import GRID, UNIT, Form, Frontend, Programmed, share_list, share_text
from clusterip.diagnosis.findings import Evidence, Finding


def find(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    variants = _both_variants(programs)
    yield from _against_api(known, programs)
    yield from _duplicates(known, programs, variants)
    if not variants:
        yield from _between_nodes(known, programs)


# --- against the API --------------------------------------------------------------------------------------------------


def _against_api(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    """A ready backend is missing only if no program of the node sends to it; what sockets ask counts apart, as no rule
    mends it for them."""
    wants: dict[Key, Mapping[str, Wanted]] = {}
    used: defaultdict[tuple[str, Frontend, bool], set[str]] = defaultdict(set)
    for p in programs:
        used[p.name, p.frontend, p.form == "ebpf"] |= {b for b, share in p.shares.items() if share}
    told: set[tuple[str, str, str]] = set()
    for p in programs:
        key = p.key
        if not key.name:
            continue
        if key not in wants:
            wants[key] = wanted(known, key)
        six = _is_six(p)
        found = wants[key].get(p.port_name)
        if found is None or six is None:
            if found is None and wants[key] and p.shares and not wants[key].keys() & {p.port_name}:
                yield from _once(told, _port_gone(known, p))
            continue
        found = found.of_family(six=six)
        stale = {b: share for b, share in p.shares.items() if b not in found.held and share}
        if stale:
            yield from _once(told, _stale(known, p, stale, found.usable))
        unusable = {b: s for b, s in p.shares.items() if s and b in found.held and b not in found.usable}
        if unusable and not _of_this_node(p):
            yield from _once(told, _unusable(known, p, unusable, found))
        # A server of weight 0 is there: why it gets nothing is another question.
        missing = [b for b in found.usable if b not in used[p.name, p.frontend, p.form == "ebpf"] and b not in p.shares]
        if missing and found.exact and not _of_this_node(p):
            yield from _once(told, _missing(known, p, missing, found.usable))


def _is_six(p: Programmed) -> bool | None:
    """None: of a node port that leads nowhere nothing tells."""
    if p.frontend.address:
        return ":" in p.frontend.address
    return next((b.startswith("[") for b in p.shares), None)


def _once(told: set[tuple[str, str, str]], finding: Finding) -> Iterator[Finding]:
    """A Service port has several frontends, and each would say the same."""
    at = (finding.id, finding.object, finding.evidence[0].file if finding.evidence else "")
    if at not in told:
        told.add(at)
        yield finding


def _of_this_node(p: Programmed) -> bool:
    """A Local policy's chain holds this node's backends alone."""
    return p.of_this_node or p.chain.startswith(("KUBE-SVL-", "KUBE-XLB-", "external-"))


def _whose(p: Programmed) -> str:
    if p.form == "ebpf":
        return "The maps of eBPF mode"
    return f"The rules (iptables {p.variant})" if p.variant else "The rules"


def _stale(known: Known, p: Programmed, stale: Mapping[str, Fraction], usable: Sequence[str]) -> Finding:
    share = sum(stale.values(), Fraction(0))
    message = f"{_whose(p)} send {percent(share)} of new connections of {p.frontend} to {', '.join(stale)}, "
    message += f"which no slice holds. Rules: {share_list(p.shares)}; API: "
    message += f"{equal_shares(usable) or 'no usable backend'}. The proxy is not applying updates."
    evidence = (p.place, *(Evidence(f"{backend} {share_text(part)}") for backend, part in stale.items()))
    return Finding("stale-endpoint", "E", p.object, message, evidence, share, _restart(known, p))


def _unusable(known: Known, p: Programmed, unusable: Mapping[str, Fraction], found: Wanted) -> Finding:
    share = sum(unusable.values(), Fraction(0))
    going = all(b in found.going for b in unusable)
    what = "which is shutting down" if going else "which is not ready"
    message = f"{_whose(p)} send {percent(share)} of new connections of {p.frontend} to {', '.join(unusable)}, {what} "
    message += f"by its slice. Rules: {share_list(p.shares)}; API: {equal_shares(found.usable) or 'no usable backend'}."
    if going:
        return Finding("traffic-to-terminating", "W", p.object, message, (p.place,), share, _restart(known, p))
    return Finding("stale-endpoint", "E", p.object, message, (p.place,), share, _restart(known, p))


def _restart(known: Known, p: Programmed) -> str:
    return proxies.by(known, p.writer).restart()


def _port_gone(known: Known, p: Programmed) -> Finding:
    share = sum(p.shares.values(), Fraction(0))
    message = f"The rules send {p.frontend} to {', '.join(p.shares)}, and no slice of the Service has a port of this "
    message += "name."
    return Finding("stale-endpoint", "E", p.object, message, (p.place,), share, _restart(known, p))


def _missing(known: Known, p: Programmed, missing: Sequence[str], usable: Sequence[str]) -> Finding:
    message = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} ready in the slices, and the rules for "
    message += f"{p.frontend} do not use {'it' if len(missing) == 1 else 'them'}: "
    lost = 1 - sum(p.shares.values(), Fraction(0))
    if lost > Fraction(GRID, UNIT):
        message += f"{percent(lost)} of new connections reach no backend."
    else:
        message += f"{len(usable) - len(missing)} of {len(usable)} backends get all connections."
    if len(missing) == len(usable):
        message = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} ready in the slices, and the rules "
        message += f"for {p.frontend} use none of the ready backends."
    share = lost if lost > Fraction(GRID, UNIT) else None
    return Finding("missing-endpoint", "E", p.object, message, (p.place,), share, _restart(known, p))


def percent(share: Fraction) -> str:
    value = float(share * 100)
    return f"{value:.0f} %" if value == int(value) else f"{value:.2f} %"


# --- both iptables variants, two proxies ------------------------------------------------------------------------------


def _both_variants(programs: Sequence[Programmed]) -> bool:
    """Whether these are programs of one node: one of each iptables variant, or of several modes. Sockets have rules
    beneath in any case."""
    rules = [p for p in programs if p.form != "ebpf"]
    forms = {(p.form, p.variant or "legacy" if p.form == "iptables" else "") for p in rules}
    files = {p.file for p in rules}
    return len(forms) > 1 and len(files) >= 1 and len(forms) >= len(files)


def _duplicates(known: Known, programs: Sequence[Programmed], variants: bool) -> Iterator[Finding]:
    held: defaultdict[str, list[Programmed]] = defaultdict(list)
    for p in programs:
        if p.form not in ("ipvs", "ebpf"):
            held["iptables-" + (p.variant or "legacy") if p.form == "iptables" else p.form].append(p)
    if not variants or len(held) < 2:
        return
    names = sorted(held)
    first = {name: {p.frontend: p for p in several} for name, several in held.items()}
    shared = set.intersection(*(set(of) for of in first.values()))
    differing = [f for f in shared if len({frozenset(first[n][f].shares.items()) for n in names}) > 1]
    message = f"Service rules are in {' and in '.join(names)}. The nat hook that was registered first rewrites the "
    message += "destination, and the other never sees the connection as it was"
    message += (
        f": {len(differing)} of {len(shared)} frontends that both hold go elsewhere in the two." if shared else "."
    )
    evidence = []
    for frontend in sorted(differing)[:3] or sorted(shared)[:1]:
        for name in names:
            p = first[name][frontend]
            evidence.append(Evidence(f"{name}: {frontend} -> {share_list(p.shares)}", p.place.file, p.place.line))
    for name in names if not evidence else ():
        evidence.append(held[name][0].place)
    remedy = "iptables-legacy-save | grep -v KUBE | iptables-legacy-restore   # if the proxy writes the other "
    remedy += "variant; or restart the node"
    if "nftables" in held:
        writers = {p.writer for of in held.values() for p in of}
        proxy = proxies.by(known, writers.pop()) if len(writers) == 1 else known.proxy
        remedy = proxy.cleanup
    yield Finding("duplicate-backends", "E", " and ".join(names), message, tuple(evidence), None, remedy)


# --- nodes against each other -----------------------------------------------------------------------------------------


class _Plane(NamedTuple):
    """Programs that can be compared: what one holds, each other node's should."""

    form: Form
    variant: str
    six: bool


def _between_nodes(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    nodes: defaultdict[_Plane, dict[str, None]] = defaultdict(dict)
    for source in known.iptables:  # a node may have lost every rule of Services
        if "nat" in source.values.ruleset.tables and source.values.told_by != "listing":
            nodes[_Plane("iptables", source.values.variant, source.values.family == "ip6")][source.file] = None
    held: defaultdict[tuple[_Plane, Frontend], dict[str, Programmed]] = defaultdict(dict)
    for p in programs:
        plane = _Plane(p.form, p.variant, ":" in p.frontend.address)
        if p.frontend.address and not _of_this_node(p):
            nodes[plane][p.file] = None
            held[plane, p.frontend][p.file] = p
    for (plane, frontend), of_node in sorted(held.items(), key=lambda item: item[0]):
        backends = {f: frozenset(of_node[f].shares) if f in of_node else None for f in nodes[plane]}
        if len(set(backends.values())) > 1:
            yield _drift(known, frontend, of_node, backends)


def _drift(
    known: Known, frontend: Frontend, of_node: Mapping[str, Programmed], backends: Mapping[str, frozenset[str] | None]
) -> Finding:
    sets = list(backends.values())
    usual = max(sets, key=lambda s: (sets.count(s), len(s or ())))
    odd = [f for f, s in backends.items() if s != usual]
    lacking = sorted({b for f in odd for b in (usual or frozenset()) - (backends[f] or frozenset())})
    extra = sorted({b for f in odd for b in (backends[f] or frozenset()) - (usual or frozenset())})
    parts = [f"misses {', '.join(lacking)}"] if lacking else []
    parts += [f"still has {', '.join(extra)}"] if extra else []
    message = f"{len(odd)} of {len(backends)} nodes ({', '.join(odd)}) {' and '.join(parts) or 'differs'} for "
    proxy = proxies.by(known, next(iter(of_node.values())).writer)
    message += f"{frontend}: {proxy.name} there is not syncing."
    evidence = []
    for f in backends:
        if f not in of_node:
            evidence.append(Evidence(f"{frontend} is not there", f))
            continue
        evidence.append(Evidence(f"{frontend} -> {share_list(of_node[f].shares)}", f, of_node[f].place.line))
    first = next(iter(of_node.values()))
    worst = max((_lost(of_node.get(f), usual) for f in odd), default=Fraction(0))
    remedy = f"{proxy.logs}   # on that node; then restart {proxy.name} there"
    return Finding("node-drift", "E", first.object, message, tuple(evidence), worst or None, remedy)


def _lost(p: Programmed | None, usual: frozenset[str] | None) -> Fraction:
    """Of new connections from this node: those to what other nodes do not have; all where nothing is left."""
    if p is None or not any(p.shares.values()):
        return Fraction(1)
    return sum((s for b, s in p.shares.items() if b not in (usual or frozenset())), Fraction(0))

"""The kernel's leaves against one expectation: equal, or the clients for whom they differ."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from clusterip.diagnosis.verify.chain import TooMany
from clusterip.diagnosis.verify.expected import Expectation
from clusterip.diagnosis.verify.flow import TOLERANCE, Socket
from clusterip.diagnosis.verify.report import Kind
from clusterip.diagnosis.verify.sources import Clients, Sources, address_of, both, joined, kind_of, split
from clusterip.diagnosis.verify.ways import Leaf
from clusterip.services.route import Delivered, Dropped, Passed, Rejected, Source

_ENOUGH_POINTS, _MOST_POINTS = 512, 16384  # clients of one frontend that are compared one by one


class Fate(NamedTuple):
    """What becomes of a packet."""

    verdict: str
    target: Socket | None = None
    masqueraded: bool | None = None  # None: it makes no difference


Fates: TypeAlias = dict[Fate, Fraction]


class Mismatch(NamedTuple):
    kind: Kind
    client: int
    share: Fraction  # of this client's connections
    api: str
    kernel: str
    kinds: tuple[Source, ...] = ()  # of clients that have it


def mismatches(leaves: Sequence[Leaf], expected: Expectation, seconds: int, clients: Clients) -> list[Mismatch]:
    """`leaves` hang on nothing unknown. `seconds`: the affinity's; 0: none."""
    own = [(sources, leaf) for leaf in leaves if (sources := both(leaf.sources, expected.sources))]
    fresh = [(s, leaf) for s, leaf in own if leaf.remembered is None]
    found = [] if agrees(fresh, expected, clients) else _told_apart(fresh, expected, clients)
    return found or _of_affinity(own, expected, seconds)


# --- at once --------------------------------------------------------------------------------------------------------


def agrees(own: Sequence[tuple[Sources, Leaf]], expected: Expectation, clients: Clients) -> bool:
    backends = {Socket(o.address, o.port): o for o in expected.outcomes if isinstance(o, Delivered)}
    if not backends:
        wanted = {_fate(o).verdict for o in expected.outcomes} | ({"passed"} if expected.may_pass else set())
        return all(leaf.verdict in wanted for _, leaf in own)
    number = len(backends)
    parts: dict[Socket, list[Sources]] = {}
    for sources, leaf in own:
        target = leaf.target
        if leaf.verdict != "delivered" or target is None or not leaf.weight.is_one_in(number):
            return False
        backend = backends.get(target)
        if backend is None:
            return False
        if not leaf.here and leaf.masqueraded != backend.masqueraded and not _is_own_call(sources, leaf, clients):
            return False
        lone = target.address in expected.near and not leaf.here and not leaf.masqueraded
        if lone and both(sources, clients.at(target.address)):
            return False
        parts.setdefault(target, []).append(sources)
    return len(parts) == number and all(joined(found) == expected.sources for found in parts.values())


def _is_own_call(sources: Sources, leaf: Leaf, clients: Clients) -> bool:
    """Masqueraded because the backend calls itself."""
    return leaf.masqueraded and leaf.target is not None and not split(sources, clients.at(leaf.target.address))[1]


def _fate(outcome: object) -> Fate:
    match outcome:
        case Delivered(address, port, masqueraded):
            return Fate("delivered", Socket(address, port), masqueraded)
        case Rejected():
            return Fate("rejected")
        case Dropped():
            return Fate("dropped")
    assert isinstance(outcome, Passed)
    return Fate("passed")


# --- client by client -----------------------------------------------------------------------------------------------


def _told_apart(own: Sequence[tuple[Sources, Leaf]], expected: Expectation, clients: Clients) -> list[Mismatch]:
    """One of each kind of mismatch, for the widest range of clients that has it."""
    found: dict[Kind, Mismatch] = {}
    for number, client in enumerate(_points(own, expected, clients)):
        if number > _ENOUGH_POINTS and found:
            break
        if number > _MOST_POINTS:
            raise TooMany(f"more than {_MOST_POINTS} ranges of clients are treated in ways of their own")
        kernel = kernel_fates(own, client)
        for one in compared(kernel, wanted(expected, client, clients), client):
            if one.kernel == "passed" and expected.may_pass:
                continue
            before = found.get(one.kind)
            kinds = tuple(dict.fromkeys((*(before.kinds if before else ()), kind_of(client))))
            found[one.kind] = (before or one)._replace(kinds=kinds)
    return list(found.values())


def _points(own: Sequence[tuple[Sources, Leaf]], expected: Expectation, clients: Clients) -> Iterator[int]:
    """Clients among whom every way of being treated has one: a range begins where something changes."""
    edges = {first for sources, _ in own for first, _ in sources} | {first for first, _ in expected.sources}
    edges |= {last + 1 for sources, _ in own for _, last in sources}
    for outcome in expected.outcomes:
        if isinstance(outcome, Delivered):
            edges |= {edge for at, _ in clients.at(outcome.address) for edge in (at, at + 1)}
    ordered = sorted(edges)
    inside: list[tuple[int, int]] = []
    for first, last in zip(ordered, [*ordered[1:], ordered[-1] + 1] if ordered else [], strict=True):
        if both(((first, first),), expected.sources):
            inside.append((first, last - 1))
    # The widest first: a witness that stands for many. Within it not the address of a network itself.
    for first, last in sorted(inside, key=lambda r: r[0] - r[1]):
        yield first + 1 if last > first else first


def kernel_fates(own: Iterable[tuple[Sources, Leaf]], client: int) -> Fates:
    found: Fates = defaultdict(Fraction)
    at = ((client, client),)
    for sources, leaf in own:
        if both(at, sources):
            target = leaf.target if leaf.verdict == "delivered" else None
            masqueraded = None if leaf.here or target is None else leaf.masqueraded
            found[Fate(leaf.verdict, target, masqueraded)] += leaf.weight.value
    return dict(found)


def wanted(expected: Expectation, client: int, clients: Clients) -> Fates:
    """Of one client, all outcomes alike."""
    address = address_of(client, ipv6=clients.ipv6)
    fates = [_fate(o) for o in expected.outcomes]
    share = Fraction(1, len(fates))
    return {f._replace(masqueraded=True) if f.target and f.target.address == address else f: share for f in fates}


def compared(kernel: Fates, api: Fates, client: int) -> Iterator[Mismatch]:
    """What is different for one client."""
    said, done = told(api), told(kernel)
    backends = {f.target: f for f in api if f.target}
    reached: dict[Socket, Fraction] = defaultdict(Fraction)
    for fate, share in kernel.items():
        if fate.target:
            reached[fate.target] += share
    if not backends:
        yield from _undelivered(kernel, api, client)
        return
    losses = {k: sum((s for f, s in kernel.items() if f.verdict == verdict), Fraction(0)) for verdict, k in _LOSSES}
    losses["stale-backend"] = sum((s for t, s in reached.items() if t not in backends), Fraction(0))
    yield from (Mismatch(kind, client, lost, said, done) for kind, lost in losses.items() if lost)
    absent = [b for b in backends if b not in reached]
    off = [abs(s - api[backends[t]]) for t, s in reached.items() if t in backends]
    if not any(losses.values()):  # which leave no backend its share
        if absent:
            yield Mismatch("missing-backend", client, Fraction(len(absent), len(backends)), said, done)
        elif any(one > TOLERANCE for one in off):
            yield Mismatch("share", client, sum(off, Fraction(0)) / 2, said, done)
    wrong = [
        (f, s)
        for f, s in kernel.items()
        if f.target in backends and {f.masqueraded, backends[f.target].masqueraded} == {True, False}
    ]
    if wrong:
        yield Mismatch("masquerade", client, sum((s for _, s in wrong), Fraction(0)), said, done)


_LOSSES: tuple[tuple[str, Kind], ...] = (("passed", "missing"), ("dropped", "dropped"), ("rejected", "rejected"))


def _undelivered(kernel: Fates, api: Fates, client: int) -> Iterator[Mismatch]:
    """Where nothing should be delivered."""
    verdicts = {f.verdict for f in api}
    if delivered := sum((s for f, s in kernel.items() if f.verdict == "delivered"), Fraction(0)):
        yield Mismatch("extra", client, delivered, told(api), told(kernel))
    if other := sum((s for f, s in kernel.items() if f.verdict not in {*verdicts, "delivered"}), Fraction(0)):
        kind: Kind = "missing" if other == 1 and all(f.verdict == "passed" for f in kernel) else "verdict"
        yield Mismatch(kind, client, other, told(api), told(kernel))


def told(fates: Fates) -> str:
    """ "1/2 10.244.0.3:80, 1/2 10.244.0.4:80 masqueraded", "rejected"."""
    if not fates:
        return "nothing"
    parts = []
    for fate, share in sorted(fates.items(), key=lambda item: (item[0].verdict, str(item[0].target))):
        what = str(fate.target) if fate.target else fate.verdict
        masqueraded = " masqueraded" if fate.masqueraded else ""
        parts.append(f"{'' if share == 1 else fraction(share) + ' '}{what}{masqueraded}")
    shown = parts if len(parts) <= 12 else [*parts[:11], f"and {len(parts) - 11} more"]
    return ", ".join(shown)


def fraction(share: Fraction) -> str:
    """Exact where it is short."""
    near = share.limit_denominator(10000)
    return str(near) if abs(near - share) <= TOLERANCE else f"{float(share):.6f}"


# --- affinity -------------------------------------------------------------------------------------------------------


def _of_affinity(own: Sequence[tuple[Sources, Leaf]], expected: Expectation, seconds: int) -> list[Mismatch]:
    """A client that was sent to a backend is noted where the next packet is looked up, for as long as the API says."""
    remembered = [(s, leaf) for s, leaf in own if leaf.remembered is not None]
    delivered = [(s, leaf) for s, leaf in own if leaf.remembered is None and leaf.target is not None]
    if not delivered:
        return []
    client = _first(expected.sources)
    if not seconds:
        if not remembered:
            return []
        return [_affinity(client, Fraction(1), "no affinity", remembered)]
    leads: dict[str, set[tuple[int, Socket | None]]] = defaultdict(set)
    for _, leaf in remembered:
        if leaf.remembered is not None:
            leads[leaf.remembered.name].add((leaf.remembered.seconds, leaf.target))
    for sources, leaf in delivered:
        if not any(leads.get(name) == {(seconds, leaf.target)} for name in leaf.noted):
            return [_affinity(_first(sources), leaf.weight.value, f"affinity of {seconds} s", remembered)]
    return []


def _affinity(client: int, share: Fraction, said: str, remembered: Sequence[tuple[Sources, Leaf]]) -> Mismatch:
    done = _told_memory(remembered) if remembered else "no affinity"
    return Mismatch("affinity", client, share, said, done, (kind_of(client),))


def _first(sources: Sources) -> int:
    first, last = max(sources, key=lambda r: r[1] - r[0])
    return first + 1 if last > first else first


def _told_memory(remembered: Sequence[tuple[Sources, Leaf]]) -> str:
    found = sorted({(leaf.remembered.seconds, str(leaf.target)) for _, leaf in remembered if leaf.remembered})
    return "affinity of " + ", ".join(f"{seconds} s to {target}" for seconds, target in found[:4])

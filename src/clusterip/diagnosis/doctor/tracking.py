"""What conntrack remembers against what the rules and the API say now: an entry overrules the rules. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from clusterip.diagnosis.doctor.backends import wanted
from clusterip.diagnosis.doctor.hostfacts import Leaving, neighbours, node_addresses
from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.diagnosis.doctor.programmed import Frontend, Programmed, names_by_address, share_list
from clusterip.diagnosis.findings import Evidence, Finding, shortened
from clusterip.diagnosis.packet import ICMP, socket
from clusterip.rulesets.conntrack import Entries, Entry

NAMED = 5  # entries that are shown as evidence of one finding
# Of TCP: a new connection that hangs on its entry; it is made anew only once the entry is gone.
OPENING = frozenset({"SYN_SENT", "SYN_SENT2", "SYN_RECV"})


@dataclass(frozen=True, slots=True)
class Listener:
    """A frontend, as it stands now."""

    frontend: Frontend
    name: str
    backends: frozenset[str]  # of rules and API together
    shown: str


def listeners(known: Known, programs: Iterable[Programmed]) -> dict[Frontend, Listener]:
    found: dict[Frontend, Listener] = {}
    for p in programs:
        known_before = found.get(p.frontend)
        backends = frozenset(b for b, share in p.shares.items() if share) | (
            known_before.backends if known_before else frozenset()
        )
        found[p.frontend] = Listener(p.frontend, p.name, backends, share_list(p.shares))
    for frontend, name in names_by_address(known).items():
        namespace, _, rest = name.partition("/")
        service, _, port = rest.partition(":")
        key = next((k for k in known.services if k == (namespace, service)), None)
        wants = wanted(known, key).get(port) if key else None
        if wants is None:
            found.setdefault(frontend, Listener(frontend, name, frozenset(), ""))
            continue
        # What the API says now counts, also where the rules are old: their difference is told elsewhere.
        shown = ", ".join(wants.usable) or "no usable backend"
        found[frontend] = Listener(frontend, name, wants.held, shown)
    return found


def find(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    serving = listeners(known, programs)
    at_address: defaultdict[str, list[Listener]] = defaultdict(list)
    for listener in serving.values():
        if listener.frontend.address:
            at_address[listener.frontend.address].append(listener)
    for source in known.conntrack:
        yield from _of_services(known, source, serving)
        yield from _strangers(source, serving, at_address)


def _of_services(known: Known, source: Sourced[Entries], serving: Mapping[Frontend, Listener]) -> Iterator[Finding]:
    own = node_addresses(known)
    here = _addresses_here(known, source.file)
    untranslated: defaultdict[Frontend, list[Entry]] = defaultdict(list)
    past: defaultdict[Frontend, list[Entry]] = defaultdict(list)
    elsewhere: defaultdict[tuple[Frontend, str], list[Entry]] = defaultdict(list)
    for entry in source.values.entries:
        frontend = _frontend(entry, serving, own)
        if frontend is None or entry.event == "DESTROY":
            continue
        listener = serving[frontend]
        backend = socket(entry.reply.source, entry.reply.source_port)
        if backend == socket(entry.original.destination, entry.original.destination_port):
            # A node port that answers is another node's, and silence of one may be its policy: that one translates it.
            if frontend.address or (entry.unreplied and (here is None or entry.original.destination in here)):
                untranslated[frontend].append(entry)
        elif entry.unreplied and entry.reply.destination == entry.original.source and _beside(known, entry):
            past[frontend].append(entry)
        elif listener.backends and backend not in listener.backends:
            elsewhere[frontend, backend].append(entry)
    for frontend, entries in past.items():
        yield _past(known, source, serving[frontend], entries)
    for frontend, entries in untranslated.items():
        if serving[frontend].backends:
            yield _blackhole(source, serving[frontend], entries)
    owners = _owners(known, serving)
    for (frontend, backend), entries in elsewhere.items():
        opening = [e for e in entries if e.protocol != "tcp" or e.state in OPENING]
        owner = owners.get(backend.rpartition(":")[0].strip("[]"), "")
        if owner == serving[frontend].name.partition(":")[0]:
            owner = ""
        if opening and owner:
            yield _wrong_service(source, serving[frontend], backend, owner, opening)
        elif opening:
            yield _stale(source, serving[frontend], backend, opening)
        open_ = [e for e in entries if e.protocol == "tcp" and e.state == "ESTABLISHED"]
        if open_:
            yield _open(source, serving[frontend], backend, open_)


def _beside(known: Known, entry: Entry) -> tuple[Leaving, ...]:
    return neighbours(known, entry.original.source, entry.reply.source)


def _past(known: Known, source: Sourced[Entries], listener: Listener, entries: Sequence[Entry]) -> Finding:
    """Its share is of connections from such clients."""
    first = entries[0]
    routes = _beside(known, first)
    there = [b for b in listener.backends if neighbours(known, first.original.source, b.rpartition(":")[0].strip("[]"))]
    share = Fraction(len(there), len(listener.backends)) if there else None
    message = f"{_clients(entries)} reached {listener.frontend} through this node, and the backend "
    message += f"({socket(first.reply.source, first.reply.source_port)}) is a neighbour of the client behind "
    message += f"{routes[0].device}: its answers go straight to the client, past this node, so nothing translates "
    message += "them back, and the client refuses them."
    evidence = (*_lines(source, entries), *(r.place for r in routes))
    remedy = f"iptables -t nat -A POSTROUTING -o {routes[0].device} -m conntrack --ctstate DNAT -s "
    remedy += f"{first.original.source} -j MASQUERADE   # or clusterCIDR in the proxy's configuration, so that it does"
    return Finding("masquerade-missing", "E", _object(listener), message, evidence, share, remedy)


def _addresses_here(known: Known, file: str) -> frozenset[str] | None:
    """Of the node whose connections these are; None: not told. What belongs to one node stands in one folder."""
    folder = file.rpartition("/")[0]
    given = [i for i in known.interfaces if i.file.rpartition("/")[0] == folder]
    if len({i.file for i in given}) != 1:
        return None
    return frozenset(a.address for i in given for one in i.values.interfaces for a in one.addresses)


def _frontend(entry: Entry, serving: Mapping[Frontend, Listener], own: Collection[str]) -> Frontend | None:
    """Whom it was for: a Service's address and port, or a node port on an address of a node."""
    address, port = entry.original.destination, entry.original.destination_port
    exact = Frontend(entry.protocol, address, port)
    if exact in serving:
        return exact
    node_port = Frontend(entry.protocol, "", port)
    rewritten = entry.reply.source != address
    return node_port if port and node_port in serving and (address in own or (rewritten and not own)) else None


def _owners(known: Known, serving: Mapping[Frontend, Listener]) -> dict[str, str]:
    """A backend's address -> the Service, or the pod, that has it now."""
    found = {ip.ip: f"pod {p.metadata.namespace}/{p.metadata.name}" for p in known.pods for ip in p.status.pod_ips}
    for listener in serving.values():
        for backend in listener.backends:
            found[backend.rpartition(":")[0].strip("[]")] = listener.name.partition(":")[0]
    return found


def _lines(source: Sourced[Entries], entries: Sequence[Entry]) -> tuple[Evidence, ...]:
    return tuple(source.at(e.line, entry_text(e)) for e in entries[:NAMED])


def entry_text(e: Entry) -> str:
    """ "udp 10.12.0.14:43145 -> 10.15.240.10:53 [UNREPLIED], answered by 10.15.240.10:53, 29 s left"."""
    one, two = e.original, e.reply
    text = f"{e.protocol} {e.state} ".replace("  ", " ") if e.state else f"{e.protocol} "
    text += f"{socket(one.source, one.source_port)} -> {socket(one.destination, one.destination_port)}"
    text += " [UNREPLIED]" if e.unreplied else ""
    text += f", answered by {socket(two.source, two.source_port)}"
    return text + (f", {e.timeout} s left" if e.timeout is not None else "")


def _object(listener: Listener) -> str:
    return f"service {listener.name}" if listener.name else f"frontend {listener.frontend}"


def _clients(entries: Sequence[Entry]) -> str:
    return shortened([socket(e.original.source, e.original.source_port) for e in entries], 3)


def _delete(entry: Entry, more: str) -> str:
    one = entry.original
    family = "-f ipv6 " if ":" in one.destination else ""
    to = f"--orig-dst {one.destination} --orig-port-dst {one.destination_port}"
    return f"conntrack -D {family}-p {entry.protocol} {to} {more}"


def _blackhole(source: Sourced[Entries], listener: Listener, entries: Sequence[Entry]) -> Finding:
    first = entries[0]
    count = "An entry" if len(entries) == 1 else f"{len(entries)} entries"
    message = f"{count} of {listener.frontend} {'is' if len(entries) == 1 else 'are'} not translated, though the "
    message += f"Service has backends ({listener.shown}). Packets from {_clients(entries)} leave for the ClusterIP "
    message += "itself and are lost, and each refreshes the entry; from a new port a packet arrives. Such entries "
    message += "come from the time when there was no backend."
    remedy = _delete(first, f"--reply-src {first.original.destination}")
    return Finding("conntrack-blackhole", "E", _object(listener), message, _lines(source, entries), None, remedy)


def _stale(source: Sourced[Entries], listener: Listener, backend: str, entries: Sequence[Entry]) -> Finding:
    first = entries[0]
    message = f"{backend} is no backend of {listener.frontend} any more, and {len(entries)} "
    message += f"entr{'y holds' if len(entries) == 1 else 'ies hold'} it. Packets from {_clients(entries)} keep going "
    message += f"there until the entry expires, and each refreshes it; from a new port they go to {listener.shown}."
    more = f"--reply-src {first.reply.source}"
    more += f" --state {first.state}" if first.state else ""
    return Finding(
        "conntrack-stale-backend", "E", _object(listener), message, _lines(source, entries), None, _delete(first, more)
    )


def _wrong_service(
    source: Sourced[Entries], listener: Listener, backend: str, owner: str, entries: Sequence[Entry]
) -> Finding:
    message = f"{len(entries)} entr{'y' if len(entries) == 1 else 'ies'} of {listener.frontend} lead to {backend}, an "
    message += f"address that belongs to {owner} now: {_clients(entries)} speak to somebody else. The Service's "
    message += f"backends are {listener.shown}."
    remedy = _delete(entries[0], f"--reply-src {entries[0].reply.source}")
    return Finding("conntrack-wrong-service", "E", _object(listener), message, _lines(source, entries), None, remedy)


def _open(source: Sourced[Entries], listener: Listener, backend: str, entries: Sequence[Entry]) -> Finding:
    message = f"{len(entries)} open connection{'s stay' if len(entries) > 1 else ' stays'} at {backend}, which is no "
    message += f"backend of {listener.frontend} any more. Rules choose for new connections only: these go on, or hang "
    message += f"if the pod is gone, until one side closes. New ones go to {listener.shown}. This is not a fault of "
    message += "the rules."
    return Finding("established-flows", "I", _object(listener), message, _lines(source, entries))


# --- what no Service port claims --------------------------------------------------------------------------------------


def _strangers(
    source: Sourced[Entries], serving: Mapping[Frontend, Listener], at_address: Mapping[str, Sequence[Listener]]
) -> Iterator[Finding]:
    wrong: defaultdict[Frontend, list[Entry]] = defaultdict(list)
    pings: list[Entry] = []
    for entry in source.values.entries:
        here = at_address.get(entry.original.destination)
        if not here or not entry.unreplied:
            continue
        if entry.protocol in ICMP or entry.protocol == "icmpv6":
            pings.append(entry)
            continue
        port = entry.original.destination_port
        # The same number with another protocol may be the client's own trial; only a number nobody serves is plain.
        if port and all(listener.frontend.port != port for listener in here):
            wrong[Frontend(entry.protocol, entry.original.destination, port)].append(entry)
    for frontend, entries in wrong.items():
        yield _wrong_port(source, frontend, at_address[frontend.address], entries)
    if pings:
        yield _pinged(source, at_address[pings[0].original.destination][0].frontend, pings)


def _wrong_port(
    source: Sourced[Entries], frontend: Frontend, here: Sequence[Listener], entries: Sequence[Entry]
) -> Finding:
    ports = ", ".join(f"{x.frontend.port}/{x.frontend.protocol}" for x in here)
    name = here[0].name.partition(":")[0]
    message = (
        f"{_clients(entries)} sent to {frontend}; the address belongs to {name or 'a Service'}, which has {ports}. "
    )
    message += "Other ports are translated by nothing: refused or lost, as the dataplane has it."
    remedy = f"kubectl get service -A -o wide | grep {frontend.address}   # and use one of its ports"
    object_ = f"service {name}" if name else f"address {frontend.address}"
    return Finding("wrong-service-port", "E", object_, message, _lines(source, entries), None, remedy)


def _pinged(source: Sourced[Entries], frontend: Frontend, pings: Sequence[Entry]) -> Finding:
    message = f"A ping of {frontend.address} has no answer and proves nothing: a ClusterIP is translated for the "
    message += "Service's own protocol and port alone. This is not a fault."
    remedy = f"nc -vz{'u' if frontend.protocol == 'udp' else ''} {frontend.address} {frontend.port}"
    evidence = _lines(source, pings)
    return Finding("not-a-service-protocol", "I", f"address {frontend.address}", message, evidence, None, remedy)

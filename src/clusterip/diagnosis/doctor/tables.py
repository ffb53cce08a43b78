"""The connection table as a whole: lost inserts, full, hoards of half-closed connections, ports that clash. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from clusterip.diagnosis.doctor.hostfacts import setting
from clusterip.diagnosis.doctor.known import Known, Sourced
from clusterip.diagnosis.doctor.programmed import Frontend, Programmed, share_list
from clusterip.diagnosis.doctor.tracking import entry_text
from clusterip.diagnosis.findings import Evidence, Finding
from clusterip.diagnosis.packet import socket
from clusterip.rulesets.conntrack import Entries, Entry
from clusterip.rulesets.iptables.values import Masquerade

CLOSE_WAIT = "net.netfilter.nf_conntrack_tcp_timeout_close_wait"
KERNELS_CLOSE_WAIT = 60  # seconds: the kernel's own; a proxy sets an hour
HOARD = 3  # entries in CLOSE_WAIT, if they are half of all TCP ones
MAX, COUNT = "net.netfilter.nf_conntrack_max", "net.netfilter.nf_conntrack_count"
NAMED = 5


def find(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    yield from _insert_failed(known, programs)
    yield from _full(known)
    yield from _one_of_ipvs(known)
    ports = {p.frontend.port: p.object for p in programs if not p.frontend.address}
    ports |= {
        port.node_port: f"service {key}"
        for key, s in known.services.items()
        for port in s.spec.ports or ()
        if port.node_port
    }
    served = {p.frontend: p for p in programs}
    for source in known.conntrack:
        yield from _close_wait(known, source)
        yield from _collisions(source)
        yield from _node_ports(source, ports)
        yield from _one_flow(source, served)


def _insert_failed(known: Known, programs: Sequence[Programmed]) -> Iterator[Finding]:
    for source in known.statistics:
        failed = [c for c in source.values.cpus if c.values.get("insert_failed")]
        if not failed:
            continue
        total = source.values.total("insert_failed")
        on = ", ".join(f"{c.values['insert_failed']} on cpu {c.cpu}" for c in failed)
        message = f"{total} connections were lost as their entry was inserted ({on}): two packets of one socket, each "
        message += "translated on its own, claimed the same answer's way. Typical are the A and AAAA questions of one "
        message += "lookup; the second is lost, and the resolver asks again after 5 s."
        affected = {p.object: p for p in programs if p.frontend.protocol == "udp" and len(p.shares) > 1}
        if affected:
            shown = "; ".join(
                f"{name.removeprefix('service ')} ({share_list(p.shares)})" for name, p in affected.items()
            )
            message += f" Services with UDP ports and several backends: {shown}."
        if _draws_in_order(known):
            message += " Masquerading draws source ports in order here (no --random-fully), which makes clashes "
            message += "likelier."
        evidence = tuple(
            source.at(c.line, f"cpu={c.cpu} insert_failed={c.values['insert_failed']} drop={c.values.get('drop', 0)}")
            for c in failed[:NAMED]
        )
        first = next(iter(affected), "conntrack table")
        remedy = "a DNS cache on each node (NodeLocal DNSCache), or options single-request-reopen in pods' "
        remedy += "resolv.conf (dnsConfig), or a kernel from 5.0 on"
        yield Finding("conntrack-insert-failed", "W", first, message, evidence, None, remedy)


def _draws_in_order(known: Known) -> bool:
    targets = [
        rule.target
        for source in known.iptables
        for rule in source.values.ruleset.rules("nat", "KUBE-POSTROUTING")
        if isinstance(rule.target, Masquerade)
    ]
    return bool(targets) and not any(t.random_fully for t in targets)


def _full(known: Known) -> Iterator[Finding]:
    most, said = setting(known, MAX)
    count, counted = setting(known, COUNT)
    if not count:
        count = sum(len(s.values.entries) for s in known.conntrack)
        counted = (Evidence(f"{count} entries listed", known.conntrack[0].file),) if count else ()
    early = sum(s.values.total("early_drop") for s in known.statistics)
    logged = [p for p in known.problems if "nf_conntrack" in p.why and "table full" in p.why]
    if not (most and count >= most) and not early and not logged:
        return
    evidence = [
        *said,
        *counted,
        *(Evidence(p.why.removeprefix("cannot be read: "), p.file, p.line) for p in logged[:1]),
    ]
    for source in known.statistics:
        for cpu in source.values.cpus:
            if cpu.values.get("early_drop"):
                evidence.append(source.at(cpu.line, f"cpu={cpu.cpu} early_drop={cpu.values['early_drop']}"))
    if most and count >= most:
        message = f"The connection table is full: {count} of {most} entries. The first packet of every new connection "
        message += "is dropped until one expires."
    elif logged:
        message = "The kernel says that its connection table is full: the first packet of every new connection is "
        message += "dropped until an entry expires."
    else:
        message = f"The connection table was full: {early} entries were thrown out early to make room (early_drop)."
    wanted = max(2 * (most or 131072), 262144)
    remedy = f"sysctl -w {MAX}={wanted}   # the proxy sets it at its start: conntrack.maxPerCore, conntrack.min"
    yield Finding("conntrack-full", "E", f"setting {MAX}", message, tuple(evidence), None, remedy)


def _close_wait(known: Known, source: Sourced[Entries]) -> Iterator[Finding]:
    tcp = [e for e in source.values.entries if e.protocol == "tcp"]
    waiting = [e for e in tcp if e.state == "CLOSE_WAIT" and (e.timeout or 0) > KERNELS_CLOSE_WAIT]
    if len(waiting) < HOARD or 2 * len(waiting) < len(tcp):
        return
    seconds, said = setting(known, CLOSE_WAIT)
    longest = max(e.timeout or 0 for e in waiting)
    message = f"{len(waiting)} of {len(tcp)} TCP entries are in CLOSE_WAIT, with up to {longest} s left: one side "
    message += "closed, the other never did, and only the timer removes the entry. "
    message += (
        f"The timer is {seconds} s ({CLOSE_WAIT})"
        if seconds is not None
        else "The timer is longer than the kernel's 60 s"
    )
    message += "; a proxy sets an hour unless told otherwise. netstat does not show these: they are the node's "
    message += "memory of connections between others."
    evidence = tuple(source.at(e.line, entry_text(e)) for e in waiting[:NAMED]) + said
    remedy = "set conntrack.tcpCloseWaitTimeout in the proxy's configuration (5m), and find the peer that does not "
    remedy += "close"
    yield Finding("conntrack-close-wait", "W", "conntrack table", message, evidence, None, remedy)


def _collisions(source: Sourced[Entries]) -> Iterator[Finding]:
    """One client port, twice to one backend: once by the ClusterIP, once straight."""
    by_way: defaultdict[tuple[str, str, int, str, int], list[Entry]] = defaultdict(list)
    for e in source.values.entries:
        way = (e.protocol, e.original.source, e.original.source_port, e.reply.source, e.reply.source_port)
        by_way[way].append(e)
    for (protocol, client, port, backend, number), entries in by_way.items():
        translated = [e for e in entries if e.original.destination != e.reply.source]
        if not port or len(entries) < 2 or not translated:
            continue
        moved = [e for e in translated if e.reply.destination_port != port]
        first = (moved or translated)[0]
        message = f"{client} uses source port {port} for two connections that end at {socket(backend, number)}: "
        message += " and ".join(socket(e.original.destination, e.original.destination_port) for e in entries)
        message += ". After translation they would be one and the same"
        if moved:
            message += ", so the kernel gave the one through "
            message += f"{socket(first.original.destination, first.original.destination_port)} source port "
            message += f"{first.reply.destination_port}"
        message += ". In IPVS mode nothing avoids the clash: expect resets and timeouts."
        evidence = tuple(source.at(e.line, entry_text(e)) for e in entries[:NAMED])
        remedy = "reach the backend one way only: by the ClusterIP, or by its own address"
        object_ = f"connection {protocol} {socket(client, port)}"
        yield Finding("port-collision", "W", object_, message, evidence, None, remedy)


def _node_ports(source: Sourced[Entries], ports: dict[int, str]) -> Iterator[Finding]:
    found = [
        e
        for e in source.values.entries
        if e.reply.destination_port in ports
        and e.reply.destination_port != e.original.source_port
        and e.reply.destination != e.original.source
    ]
    if not found:
        return
    counts = Counter(e.reply.destination_port for e in found)
    port, _ = counts.most_common(1)[0]
    owner = ports[port].removeprefix("service ")
    first = next(e for e in found if e.reply.destination_port == port)
    message = f"The source port of a masqueraded connection became {port}, the node port of {owner}: an answer that "
    message += "arrives after its entry has expired, or on a path that conntrack does not see, is taken for a "
    message += "connection to that Service."
    evidence = (source.at(first.line, entry_text(first)),)
    remedy = "keep node ports out of the ephemeral range: sysctl -w net.ipv4.ip_local_port_range='32768 60999', and "
    remedy += "--service-node-port-range=30000-32767 at the API server"
    yield Finding("snat-port-is-nodeport", "W", ports[port], message, evidence, None, remedy)


def _one_of_ipvs(known: Known) -> Iterator[Finding]:
    for source in known.ipvs:
        for service in source.values.services:
            active = [s for s in service.servers if s.active]
            if len(active) != 1 or active[0].active != 1 or len(service.servers) < 2:
                continue
            protocol, address, port = service.frontend
            frontend = Frontend(protocol.lower(), address, port)
            message = f"The one open connection to {frontend} is at {socket(active[0].address, active[0].port)}, and "
            message += f"stays there while it is open: {service.scheduler or 'the scheduler'} chooses for each "
            message += "connection, not for what is sent on it. This is not a fault."
            place = source.at(service.line, f"{protocol} {socket(address, port)}: 1 active connection")
            yield Finding("one-flow-one-backend", "I", f"virtual server {frontend}", message, (place,))


def _one_flow(source: Sourced[Entries], served: dict[Frontend, Programmed]) -> Iterator[Finding]:
    flows: defaultdict[Frontend, list[Entry]] = defaultdict(list)
    for e in source.values.entries:
        frontend = Frontend(e.protocol, e.original.destination, e.original.destination_port)
        if frontend in served and e.reply.source != frontend.address:  # untranslated, it went to nobody
            flows[frontend].append(e)
    for frontend, entries in flows.items():
        p = served[frontend]
        sockets = {(e.original.source, e.original.source_port) for e in entries}
        if len(p.shares) < 2 or len(sockets) > 1:
            continue
        e = entries[0]
        message = f"All that {socket(e.original.source, e.original.source_port)} sends to {frontend} goes to "
        message += f"{socket(e.reply.source, e.reply.source_port)}: a connection, or a UDP socket, is one choice, made "
        message += f"at its first packet. The shares ({share_list(p.shares)}) are of connections. This is not a fault."
        yield Finding("one-flow-one-backend", "I", p.object, message, (source.at(e.line, entry_text(e)),))

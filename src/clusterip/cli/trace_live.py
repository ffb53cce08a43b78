"""`clusterip trace --live`: sends one packet, has the kernel trace it, and sets that beside what the model says."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import click

from clusterip.diagnosis.answer import Trace
from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.observed import Captured, Live, LiveTrace, Observation, live_trace
from clusterip.diagnosis.observed_sockets import Seen, observe_sent
from clusterip.diagnosis.question import Client, Target
from clusterip.diagnosis.trace import Tracer
from clusterip.errors import BadInput
from clusterip.kernel import capture, cgroup, conntrack, netns, probe, trace
from clusterip.kernel.probe import Answer, Probe
from clusterip.rulesets.traced import Headers, Traced
from clusterip.services.table import Family

SECONDS = 0.9  # for an answer: less than the second after which TCP sends again
MOST_BACKENDS = 32  # that are listened to
_NUMBERS = {"tcp": 6, "udp": 17, "icmp": 1, "ipv6-icmp": 58}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the packet passes, and where namespaces are looked for."""

    netns: str  # the node's; "": our own
    prefix: str  # of the names of the cluster's namespaces; "": any
    cgroup: str = ""  # where sockets of the node's processes belong; "": where ours do


@dataclass(frozen=True, slots=True)
class _Sent:
    flow: Headers
    answer: Answer
    left: Headers | None  # the packet as the node first saw it
    events: tuple[Traced, ...]
    missing: str


@dataclass(frozen=True, slots=True)
class _Ear:
    place: str
    packets: capture.Packets


def place(cluster: str, node: str) -> Place:
    """`node`: of a cluster on this machine; "": this machine is the node. Raises Unavailable."""
    if not node:
        return Place("", "")
    from clusterip.lab import cgroups
    from clusterip.lab.plan import prefix
    from clusterip.lab.state import existing

    _, plan = existing(cluster)
    return Place(plan.netns(node), prefix(plan.name), cgroups.of_member(plan, node))


async def run(facts: Facts, place: Place, client: Client, to: Target) -> LiveTrace:
    """Raises BadInput where nothing can be sent from the source, Unavailable where nothing can be traced."""
    source = _namespace_of(client, place)
    # What is known of other connections is of no use to a new one.
    tracer = Tracer(replace(facts, conntrack=None))
    with _opened(source, _target(client, to), place) as ready:
        flow = ready.flow
        sender = replace(client, address=flow.source, port=0 if "icmp" in flow.protocol else flow.source_port)
        modelled = tracer.trace(sender, to)
        async with AsyncExitStack() as stack:
            ears = [_Ear(f"client {source or 'here'}", await stack.enter_async_context(_listen(source, flow)))]
            for name, port in _backends(modelled, place, source):
                ears.append(_Ear(f"backend {name}", await stack.enter_async_context(_listen(name, flow, port))))
            sent = await asyncio.to_thread(_send, place.netns, ready)
        left = sent.left or _first(ears[0], flow)
        entry = await asyncio.to_thread(_entry, place.netns, left or flow)
    landed = _landed(entry)
    seen = observe_sent(tracer, sender, to, Seen(left, sent.answer.kind, sent.events, landed))
    live = Live(
        answer=sent.answer.kind,
        milliseconds=round(sent.answer.seconds * 1000, 3),
        observation=seen,
        captured=_captured(ears, [h for h in (flow, left, landed) if h], flow),
        connection=_connection(entry),
        missing=sent.missing or ("" if sent.events or seen.steps else _absent(facts, client, place)),
    )
    return live_trace(modelled, live)


@contextmanager
def _opened(source: str, target: probe.Target, place: Place) -> Iterator[Probe]:
    """By a socket that belongs where the node's own do: in eBPF mode that decides whether it is served."""
    with ExitStack() as stack:
        with cgroup.inside(Path(place.cgroup)) if place.cgroup else nullcontext():
            ready = stack.enter_context(probe.ready(source, target))
        yield ready


def _first(ear: _Ear, flow: Headers) -> Headers | None:
    """The packet as its own end saw it leave: what a bridge hands over by itself no node sees."""
    for packet in ear.packets.seen:
        if (packet.source, packet.source_port) == (flow.source, flow.source_port) and flow.source_port:
            return flow._replace(destination=packet.destination, destination_port=packet.destination_port)
    return None


def _target(client: Client, to: Target) -> probe.Target:
    match to.protocol:
        case "tcp" | "udp":
            return probe.Target(to.protocol, to.address, to.port, client.address)
        case "icmp" | "ipv6-icmp":
            return probe.Target("icmp", to.address, 0, client.address)
        case _:
            raise BadInput(f"--live: no {to.protocol} packets are sent", hint="tcp, udp or icmp")


def _send(node: str, ready: Probe) -> _Sent:
    flow = ready.flow
    with trace.listening(node, ipv6=":" in flow.destination) as listener:
        with trace.armed(node, flow):
            answer = ready.send(SECONDS)
            listener.wait(0.3 if answer.kind == "silence" else 0.1)
        return _Sent(flow, answer, listener.sent(flow), listener.events(flow), listener.missing)


def _entry(node: str, flow: Headers) -> conntrack.Entry | None:
    family: Family = "IPv6" if ":" in flow.destination else "IPv4"
    ends = (flow.source, flow.destination)
    for entry in conntrack.dump(family, netns=node).entries:
        one = entry.original
        ports = "icmp" in flow.protocol or (one.source_port, one.destination_port) == flow[3:]
        if (one.source, one.destination) == ends and entry.protocol == _NUMBERS[flow.protocol] and ports:
            return entry
    return None


def _landed(entry: conntrack.Entry | None) -> Headers | None:
    """The packet as it left the node: an answer to it comes from there."""
    if entry is None:
        return None
    protocol = next(name for name, number in _NUMBERS.items() if number == entry.protocol)
    back = entry.reply
    return Headers(back.destination, back.source, protocol, back.destination_port, back.source_port)


def _connection(entry: conntrack.Entry | None) -> str:
    if entry is None:
        return ""
    there, back = entry.original, entry.reply
    first = f"{capture.end(there.source, there.source_port)} > {capture.end(there.destination, there.destination_port)}"
    answers = f"{capture.end(back.source, back.source_port)} > {capture.end(back.destination, back.destination_port)}"
    return f"{first}, its answers {answers}" + (f", mark {entry.mark:#x}" if entry.mark else "")


# --- where to send and listen ---


def _namespace_of(client: Client, place: Place) -> str:
    if client.kind == "node":
        return place.netns
    found = next(_holders(client.address, place), None)
    if found is None:
        raise BadInput(
            f"source {client.address}: no network namespace here has this address, so nothing can be sent from it",
            hint="leave out --live, or give the node it is on: --node NODE",
        )
    return found


def _holders(address: str, place: Place) -> Iterator[str]:
    """Named namespaces that have the address, but for the node's own."""
    for name in netns.names():
        if name.startswith(place.prefix) and name != place.netns and probe.has_address(name, address):
            yield name


def _backends(modelled: Trace, place: Place, source: str) -> Iterator[tuple[str, int]]:
    """Namespaces where the packet may arrive, and the port there."""
    sockets = dict.fromkeys(outcome.backend for outcome in modelled.outcomes if outcome.backend)
    for backend in list(sockets)[:MOST_BACKENDS]:
        found = re.fullmatch(r"\[?(.+?)\]?(?::(\d+))?", backend) if "." in backend or "[" in backend else None
        address, port = (found[1], int(found[2] or 0)) if found else (backend, 0)
        for name in _holders(address, place):
            if name != source:
                yield name, port


def _listen(name: str, flow: Headers, port: int = 0) -> AbstractAsyncContextManager[capture.Packets]:
    protocol = "icmpv6" if flow.protocol == "ipv6-icmp" else flow.protocol
    wanted = capture.involving(port=port or (0 if "icmp" in protocol else flow.source_port), protocol=protocol)

    def matches(packet: capture.Packet) -> bool:
        """Errors about such packets, too."""
        return wanted(packet) or (packet.quoted is not None and wanted(packet.quoted))

    return capture.capture(name, "", matches)


def _captured(ears: Sequence[_Ear], forms: Sequence[Headers], flow: Headers) -> tuple[Captured, ...]:
    """Of the flow, in each form that client, node and backend know, both ways. A packet counts once at each end."""
    ends = {_ends(h) for headers in forms for h in (headers, _reversed(headers))}
    errors = {capture.end(flow.source, flow.source_port)}  # to whom ICMP errors come
    found: dict[tuple[str, str], float] = {}
    for ear in ears:
        for packet in ear.packets.seen:
            quoted = packet.quoted
            about = quoted is not None and capture.end(quoted.source, quoted.source_port) in errors
            if packet.ends in ends or about:
                found.setdefault((ear.place, packet.text), packet.at)
    first = min(found.values(), default=0.0)
    ordered = sorted(found.items(), key=lambda item: item[1])
    return tuple(Captured(place, text, round((at - first) * 1000, 3)) for (place, text), at in ordered)


def _ends(headers: Headers) -> str:
    ports = (0, 0) if "icmp" in headers.protocol else (headers.source_port, headers.destination_port)
    return f"{capture.end(headers.source, ports[0])} > {capture.end(headers.destination, ports[1])}"


def _reversed(headers: Headers) -> Headers:
    ports = (headers.destination_port, headers.source_port)
    return Headers(headers.destination, headers.source, headers.protocol, *ports)


def _absent(facts: Facts, client: Client, place: Place) -> str:
    """Why the node's kernel told nothing."""
    for pod in facts.pods:
        if client.address in (ip.ip for ip in pod.status.pod_ips) and pod.spec.node_name not in ("", facts.node):
            return f"the packet did not come by here: the pod is on {pod.spec.node_name} (--node {pod.spec.node_name})"
    where = f"node {facts.node}" if facts.node else "this machine"
    return f"{where} has no rules that the packet met, or it did not come by"


# --- what a person reads ---


def lines(answer: LiveTrace) -> Iterator[str]:
    """What comes below the trace."""
    live, seen = answer.live, answer.live.observation
    yield ""
    yield f"{'client':<12} {live.answer} after {live.milliseconds:.1f} ms"
    for one in live.captured:
        yield f"{'seen':<12} {one.milliseconds:8.3f} ms  {one.text}" + click.style(f"  {one.place}", dim=True)
    if live.connection:
        yield f"{'conntrack':<12} {live.connection}"
    if live.missing:
        yield click.style(f"{'missing':<12} {live.missing}", fg="yellow")
    yield ""
    yield from _compared(seen)


def _compared(seen: Observation) -> Iterator[str]:
    if seen.verdict == "unknown":
        yield click.style("model and kernel cannot be compared", fg="yellow")
    elif seen.difference is None:
        count = len(seen.steps)
        yield click.style("model and kernel agree", fg="green", bold=True) + f" on {count} step{'s' * (count != 1)}"
    else:
        yield click.style("model and kernel differ: ", fg="red", bold=True) + seen.difference.message

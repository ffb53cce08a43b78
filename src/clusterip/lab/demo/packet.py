"""One connection, watched from both sides; then a second one beside it."""

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from clusterip.errors import Unavailable
from clusterip.kernel.capture import Flag, Packet, Packets, capture, involving
from clusterip.lab.demo import dial, reading, values
from clusterip.lab.demo.stage import POD_PORT, PORT, Backend, Place, Stage
from clusterip.lab.demo.values import Claim, Counted, Counters, Explained, Ran, Say, Seen, Shown, Title

INTERFACE = "eth0"  # of a pod
TRIES = 16  # connections until two backends have been drawn: all the same has a chance of 1 in 14 million


@dataclass(frozen=True, slots=True)
class Journey:
    """One request and its answer, as collected on both sides."""

    curl: Ran
    port: int  # the client's
    client: str  # its address
    at_client: tuple[Packet, ...]
    at_backends: tuple[tuple[Backend, tuple[Packet, ...]], ...]
    counters: tuple[Counted, ...]  # of the rules that draw
    conntrack: Ran

    @property
    def backend(self) -> Backend | None:
        """The one pod that saw packets of the connection; None if it was not just one."""
        saw = [backend for backend, packets in self.at_backends if packets]
        return saw[0] if len(saw) == 1 else None

    def first(self, flags: Flag, *, at_client: bool) -> Packet | None:
        sides = [self.at_client] if at_client else [packets for _, packets in self.at_backends]
        return next((packet for packets in sides for packet in packets if packet.flags == flags), None)


async def one_connection(stage: Stage) -> AsyncIterator[Shown]:
    """Three titles: the packet there, the choice, the packet back."""
    yield Title("A packet leaves the client for the ClusterIP")
    yield Say("We listen on eth0 of the client, and of each of the three pods. Then the client asks.")
    yield values.Wait("listening on four interfaces")
    journey = await follow(stage)
    yield journey.curl
    for shown in (*_leaves(stage, journey), *_rewritten(stage, journey), *_tracked(stage, journey)):
        yield shown
    for shown in _comes_back(stage, journey):
        yield shown


async def follow(stage: Stage) -> Journey:
    """Have the client ask once, and collect all there is to see of it. Raises Unavailable, CaptureFailed."""
    client = (await stage.until_running("client")).status.pod_ip
    node = await _node_of_client(stage)
    backends = await stage.backends()
    port = random.randrange(40_000, 60_000)  # noqa: S311  any free port will do
    match = involving(client, port, "tcp")
    before = reading.jumps(await stage.nat(node, stage.chain))
    async with AsyncExitStack() as stack:
        at_client = await stack.enter_async_context(capture(stage.client.netns, INTERFACE, match))
        others: list[tuple[Backend, Packets]] = [
            (pod, await stack.enter_async_context(capture(pod.place.netns, INTERFACE, match))) for pod in backends
        ]
        curl = await stage.on(
            stage.client, f"curl -sS -m 3 --local-port {port} http://{stage.address}/hostname", marks=(stage.address,)
        )
    after = reading.jumps(await stage.nat(node, stage.chain))
    listing = await stage.on(
        node, f"conntrack -L -p tcp -d {stage.address} --sport {port}", marks=(stage.address,), only=("src=",)
    )
    return Journey(
        curl,
        port,
        client,
        at_client.seen,
        tuple((pod, packets.seen) for pod, packets in others),
        tuple(
            Counted(rule.to, old.packets, rule.packets)
            for old, rule in zip(before, after, strict=True)
            if "KUBE-SEP" in rule.to
        )
        if len(before) == len(after)
        else (),
        listing,
    )


async def _node_of_client(stage: Stage) -> Place:
    pod = await stage.until_running("client")
    found = next((node for node in stage.nodes if node.name == pod.spec.node_name), None)
    if found is None:
        raise Unavailable(f"pod client: runs on {pod.spec.node_name or 'no node'}, which is none of this cluster's")
    return found


def _leaves(stage: Stage, journey: Journey) -> Sequence[Shown]:
    syn = journey.first(Flag.SYN, at_client=True)
    if syn is None:
        return (Claim("The client's first packet was captured.", False, "no packet"),)
    return (
        values.Packets((Seen("client", syn),)),
        Claim(
            f"The client sends to {stage.address}: it knows no pod.",
            (syn.destination, syn.destination_port, syn.outgoing) == (stage.address, PORT, True),
            syn.text,
        ),
    )


def _rewritten(stage: Stage, journey: Journey) -> Sequence[Shown]:
    title = Title("The kernel draws a pod, and rewrites the destination")
    sent, arrived = journey.first(Flag.SYN, at_client=True), journey.first(Flag.SYN, at_client=False)
    backend = journey.backend
    if sent is None or arrived is None or backend is None:
        return (title, Claim("One pod saw the connection.", False, _who_saw(journey)))
    rose = [row for row in journey.counters if row.after > row.before]
    return (
        title,
        Say("How many packets each of the three rules had counted, before and after:"),
        Counters(journey.counters),
        Claim(
            "One rule counted one packet, though many followed: only the first of a connection draws.",
            len(rose) == 1 and rose[0].after - rose[0].before == 1,
            ", ".join(f"{row.before} -> {row.after}" for row in journey.counters),
        ),
        Say("The same packet, where it left and where it arrived:"),
        values.Packets((Seen("client", sent), Seen(backend.name, arrived, "destination"))),
        Claim(
            f"On the way {stage.address}:{PORT} has become {backend.address}:{POD_PORT}, "
            f"{(arrived.at - sent.at) * 1000:.2f} ms later.",
            (arrived.destination, arrived.destination_port) == (backend.address, POD_PORT),
            arrived.text,
        ),
        Claim(
            f"The pod sees its client's own address, {journey.client}.",
            arrived.source == journey.client,
            arrived.text,
        ),
    )


def _who_saw(journey: Journey) -> str:
    counts = [f"{backend.name}: {len(packets)} packets" for backend, packets in journey.at_backends]
    return f"{', '.join(counts)}; curl: {journey.curl.output.strip() or 'no answer'}"


def _tracked(stage: Stage, journey: Journey) -> Sequence[Shown]:
    found = reading.tracked(journey.conntrack.output)
    if not found or journey.backend is None:
        return (journey.conntrack, Claim("Connection tracking knows it.", False, journey.conntrack.output))
    there, back = found[0]
    return (
        Say("Connection tracking on the client's node writes down both directions:"),
        journey.conntrack,
        Explained(((str(there), "as the client sends"), (str(back), "as the answer will come"))),
        Claim(
            "So every later packet goes to the same pod, without drawing again.",
            there.destination == stage.address and back.source == journey.backend.address,
            journey.conntrack.output,
        ),
    )


def _comes_back(stage: Stage, journey: Journey) -> Sequence[Shown]:
    title = Title("The pod answers, and the client sees the ClusterIP")
    flags = Flag.SYN | Flag.ACK
    left, arrived = journey.first(flags, at_client=False), journey.first(flags, at_client=True)
    if left is None or arrived is None or journey.backend is None:
        return (title, Claim("The answer was captured on both sides.", False, _who_saw(journey)))
    strangers = {end for packet in journey.at_client for end in (packet.source, packet.destination)}
    strangers -= {journey.client, stage.address}
    return (
        title,
        Say("The answer, where it left and where it arrived:"),
        values.Packets((Seen(journey.backend.name, left), Seen("client", arrived, "source"))),
        Claim(
            f"The answer left as {left.source} and arrived as {arrived.source}.",
            left.source == journey.backend.address and arrived.source == stage.address,
            f"left {left.text}; arrived {arrived.text}",
        ),
        Claim(
            f"In all {len(journey.at_client)} packets that the client saw, the other end was {stage.address}.",
            not strangers and len(journey.at_client) > 3,
            f"{len(journey.at_client)} packets; also {', '.join(sorted(strangers)) or 'nobody'}",
        ),
        Claim(
            f"The answer says who it was: {journey.backend.name}.",
            journey.curl.output.strip() == journey.backend.name,
            journey.curl.output,
        ),
    )


async def two_connections(stage: Stage) -> AsyncIterator[Shown]:
    yield Title("A second connection is a new draw")
    yield Say("We keep one connection open, and open others until one falls on another pod.")
    links: list[dial.Link] = []
    try:
        names: list[str] = []
        while len(set(names)) < 2 and len(links) < TRIES:
            links.append(await dial.dial(stage.client.netns, stage.address))
            names.append(await links[-1].ask())
        first, last = links[0], links[-1]
        again = [(await first.ask(), await last.ask()) for _ in range(3)]
        node = await _node_of_client(stage)
        listing = await stage.on(node, f"conntrack -L -p tcp -d {stage.address} --state ESTABLISHED")
        peers = {link.peer for link in links}
    finally:
        for link in links:
            await link.close()
    ports = tuple(f"sport={link.port} " for link in (first, last))
    yield replace(listing, marks=ports, only=ports)
    owners = {pod.address: pod.name for pod in await stage.backends()}
    pinned = {
        there.source_port: owners.get(back.source, back.source) for there, back in reading.tracked(listing.output)
    }
    yield Explained(tuple((f"port {link.port}", str(pinned.get(link.port))) for link in (first, last)))
    yield Claim(
        f"The first connection went to {names[0]}, number {len(links)} to {names[-1]}.",
        len(set(names)) == 2 and pinned.get(first.port) == names[0] and pinned.get(last.port) == names[-1],
        f"{names}; conntrack says {pinned}",
    )
    yield Claim(
        "Asked three times more, each was answered by its own pod: a connection keeps what it drew.",
        all(pair == (names[0], names[-1]) for pair in again),
        str(again),
    )
    yield Claim(
        f"The client's sockets name one peer only, {stage.address}.", peers == {stage.address}, ", ".join(sorted(peers))
    )

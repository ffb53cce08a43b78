"""The steps that watch packets, on a node of namespaces with real rules: no API server, no agents."""

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar, cast

import pytest

from clusterip.client.api import Api, Listing
from clusterip.dataplane.iptables import Config, FromCIDR, compile_entry, complete
from clusterip.kernel import iptables, links, netns, sysctl
from clusterip.kernel.run import run
from clusterip.lab.demo import choice, packet, reading
from clusterip.lab.demo.stage import Place, Stage, Tools
from clusterip.lab.demo.values import Bars, Claim, Shown
from clusterip.model.objects import ObjectMeta, Pod, PodSpec, PodStatus, Value
from clusterip.model.resources import Resource
from clusterip.services.table import Backend, Entry, PortName

pytestmark = pytest.mark.kernel

T = TypeVar("T", bound=Value)
CLUSTER_IP, CLIENT_IP = "10.96.103.181", "10.244.1.4"
BACKENDS = {"app-a": "10.244.1.5", "app-b": "10.244.1.6", "app-c": "10.244.1.7"}


class KnownPods:
    """The two reads that the steps do, of pods that do not change; answers as `Api` does."""

    def __init__(self, pods: dict[str, Pod]) -> None:
        self._pods = pods

    async def get(self, resource: Resource, namespace: str, name: str, as_type: type[T]) -> T:
        return cast(T, self._pods[name])

    async def list(
        self, resource: Resource, as_type: type[T], namespace: str = "", *, label_selector: str = ""
    ) -> Listing[T]:
        wanted = dict([label_selector.split("=")])
        found = [pod for pod in self._pods.values() if wanted.items() <= pod.metadata.labels.items()]
        return Listing(cast("tuple[T, ...]", tuple(found)), "1")


def pod(name: str, address: str) -> Pod:
    labels = {"app": "app"} if name.startswith("app") else {}
    return Pod(
        metadata=ObjectMeta(name=name, namespace="demo", labels=labels),
        spec=PodSpec(node_name="node-1"),
        status=PodStatus(phase="Running", pod_ip=address),
    )


PODS = {name: pod(name, address) for name, address in {"client": CLIENT_IP, **BACKENDS}.items()}


def rules() -> str:
    config = Config(family="IPv4", node_ip="192.168.50.11", detector=FromCIDR("10.244.0.0/16"))
    backends = tuple(Backend(address, 8080, True) for address in BACKENDS.values())
    entry = Entry(
        name=PortName("demo", "app", ""),
        family="IPv4",
        protocol="TCP",
        port=80,
        cluster_ip=CLUSTER_IP,
        cluster=backends,
        has_backends=True,
    )
    return complete([compile_entry(entry, config)], config)


async def serve(name: str, space: str, stack: AsyncExitStack) -> None:
    """A backend: answers every request of a connection with its name."""
    with netns.inside(space):
        listener = socket.create_server(("0.0.0.0", 8080), backlog=128)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(name) + 1}\r\n\r\n{name}\n".encode())
        except asyncio.IncompleteReadError:
            writer.close()

    await stack.enter_async_context(await asyncio.start_server(answer, sock=listener))


async def build(node: str, spaces: dict[str, str]) -> None:
    await links.configure(
        node,
        links.up("lo"),
        links.bridge("cip0", "10.244.1.1"),
        links.address("cip0", "10.244.1.1/24"),
        links.up("cip0"),
    )
    sysctl.ensure("net/ipv4/ip_forward", "1", node)
    for number, (name, space) in enumerate(spaces.items()):
        port = f"veth{number}"
        await links.configure(
            node, links.veth(port, "eth0", space), links.attach(port, "cip0"), links.hairpin(port), links.up(port)
        )
        await links.configure(
            space,
            links.up("lo"),
            links.up("eth0"),
            links.address("eth0", f"{PODS[name].status.pod_ip}/32"),
            links.route("default", "eth0", "10.244.1.1"),
        )


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    tag = uuid.uuid4().hex[:8]
    node, spaces = f"t{tag}n", {name: f"t{tag}{number}" for number, name in enumerate(PODS)}
    async with AsyncExitStack() as stack:
        for space in (node, *spaces.values()):
            netns.create(space)
            stack.callback(netns.delete, space)
        await build(node, spaces)
        for name in BACKENDS:
            await serve(name, spaces[name], stack)
        await iptables.restore(await iptables.detect("IPv4", netns=node), rules())
        place = Place("node-1", node)
        made = Stage(
            api=cast(Api, KnownPods(PODS)),
            namespace="demo",
            tools=Tools("kubectl", Path(), "iptables"),
            nodes=(place,),
            pod_netns=lambda pod: spaces[pod.metadata.name],
            client=Place("client", spaces["client"]),
            address=CLUSTER_IP,
        )
        made.chain = reading.chain_of(await made.nat(place, "KUBE-SERVICES"), CLUSTER_IP, 80)
        yield made


async def collected(steps: AsyncIterator[Shown]) -> tuple[list[Shown], list[Claim]]:
    values = [value async for value in steps]
    return values, [value for value in values if isinstance(value, Claim)]


async def test_one_connection_is_seen_on_both_sides_and_every_claim_holds(stage: Stage) -> None:
    _, claims = await collected(packet.one_connection(stage))
    assert [claim for claim in claims if not claim.held] == []
    assert len(claims) == 8


async def test_two_connections_keep_the_pods_they_drew(stage: Stage) -> None:
    _, claims = await collected(packet.two_connections(stage))
    assert [claim for claim in claims if not claim.held] == []
    assert len(claims) == 3


async def test_300_connections_spread_and_are_counted(stage: Stage) -> None:
    values, claims = await collected(choice.many_connections(stage))
    assert [claim for claim in claims if not claim.held] == []
    (bars,) = [value for value in values if isinstance(value, Bars)]
    assert {name for name, _ in bars.rows} == set(BACKENDS)


async def test_a_pod_that_nobody_draws_any_more_is_noticed(stage: Stage) -> None:
    table = await stage.nat(stage.nodes[0])
    first = next(jump for jump in reading.jumps(reading.in_chain(table, stage.chain)) if "KUBE-SEP" in jump.to)
    await run(("iptables", "-t", "nat", "-F", first.to), netns=stage.nodes[0].netns)
    _, claims = await collected(choice.many_connections(stage))
    # Answered, but by two; and a packet that the empty chain returned is counted by the next rule too.
    assert [claim.held for claim in claims] == [True, False, False]

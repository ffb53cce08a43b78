"""The whole check against a namespace with `lo` alone, and an API that says what the test wants it to say."""

import socket
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar, cast

import pytest

from clusterip.client.api import Api, Listing
from clusterip.errors import BadInput
from clusterip.kernel import netns
from clusterip.kernel.run import run
from clusterip.lab.check.run import Question, check
from clusterip.lab.check.values import Client, ClientKind, Report, Verdict
from clusterip.model.objects import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    ObjectMeta,
    Service,
    ServicePort,
    ServiceSpec,
    Value,
)
from clusterip.model.resources import Resource

pytestmark = pytest.mark.kernel

T = TypeVar("T", bound=Value)


class Told:
    """An API whose objects are these at the first reading, and `later` afterwards."""

    def __init__(self, now: Sequence[Value], later: Sequence[Value] | None = None) -> None:
        self._readings = [tuple(now), tuple(now if later is None else later)]
        self._kinds_read: list[type[Value]] = []

    async def list(self, resource: Resource, as_type: type[T]) -> Listing[T]:
        again = as_type in self._kinds_read
        self._kinds_read.append(as_type)
        return Listing(cast("tuple[T, ...]", tuple(o for o in self._readings[again] if isinstance(o, as_type))), "1")


def service(name: str, port: int) -> Service:
    spec = ServiceSpec(cluster_ip="127.0.0.1", ports=(ServicePort(port=port),), selector={"app": name})
    return Service(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)


def ready(name: str, *, conditions: bool = True) -> EndpointSlice:
    return EndpointSlice(
        metadata=ObjectMeta(name=name, namespace="default", labels={"kubernetes.io/service-name": name}),
        endpoints=(Endpoint(addresses=("10.244.1.5",), conditions=EndpointConditions(ready=conditions)),),
        ports=(EndpointPort(name="", port=8080),),
    )


@pytest.fixture
async def space() -> AsyncIterator[str]:
    name = f"t{uuid.uuid4().hex[:8]}"
    netns.create(name)
    try:
        await run(("ip", "link", "set", "lo", "up"), netns=name)
        yield name
    finally:
        netns.delete(name)


async def checked(space: str, api: Told, *services: str) -> Report:
    client = Client("node-1", ClientKind.NODE, space, "node-1")
    return await check(cast(Api, api), (client,), Question(services, timeout=0.3, second_look=0.01))


def verdicts(report: Report) -> dict[str, Verdict]:
    return {row.target.service: row.cells[0].verdict for row in report.rows}


async def test_each_service_gets_its_verdict(space: str) -> None:
    with netns.inside(space):
        listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        good = service("good", listener.getsockname()[1])
        api = Told([good, ready("good"), service("empty", 1), service("broken", 2), ready("broken")])
        report = await checked(space, api)
    assert verdicts(report) == {"good": Verdict.OK, "empty": Verdict.EMPTY, "broken": Verdict.WRONG}
    assert not report.all_reach


async def test_what_only_seemed_wrong_is_looked_at_again(space: str) -> None:
    """The Service lost its last endpoint between our reading and our try."""
    api = Told([service("web", 1), ready("web")], [service("web", 1), ready("web", conditions=False)])
    report = await checked(space, api)
    assert verdicts(report) == {"web": Verdict.EMPTY}
    assert report.rows[0].cells[0].expectation.why == "0 of 1 endpoints ready"


async def test_a_service_deleted_meanwhile_is_not_reported(space: str) -> None:
    assert (await checked(space, Told([service("web", 1), ready("web")], []))).rows == ()


async def test_a_service_that_is_not_there_is_bad_input(space: str) -> None:
    with pytest.raises(BadInput, match="service nope"):
        await checked(space, Told([service("web", 1)]), "nope")

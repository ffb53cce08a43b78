"""The check itself: read the API, try everything, look twice at what seems wrong."""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from clusterip.client.api import Api
from clusterip.errors import BadInput
from clusterip.lab.check.judge import cell
from clusterip.lab.check.plan import World, expectation, targets, unmatched
from clusterip.lab.check.probe import Prober
from clusterip.lab.check.values import Cell, Client, Report, Row, Target, Verdict
from clusterip.model import objects, resources


@dataclass(frozen=True, slots=True)
class Question:
    services: tuple[str, ...] = ()  # "web", "default/web"; (): all
    timeout: float = 2.0  # seconds a single try may take
    second_look: float = 1.0  # seconds after which what seemed wrong is tried again: a change has arrived by then


async def read(api: Api) -> World:
    """Raises ApiError, Unavailable."""
    services, slices, pods, nodes, namespaces = await asyncio.gather(
        api.list(resources.SERVICES, objects.Service),
        api.list(resources.ENDPOINT_SLICES, objects.EndpointSlice),
        api.list(resources.PODS, objects.Pod),
        api.list(resources.NODES, objects.Node),
        api.list(resources.NAMESPACES, objects.Namespace),
    )
    return World(services.items, slices.items, pods.items, nodes.items, namespaces.items)


async def check(api: Api, clients: Sequence[Client], question: Question) -> Report:
    """Raises BadInput for a Service that is not there, ApiError, Unavailable."""
    start = time.perf_counter()
    world = await read(api)
    if missing := unmatched(world, question.services):
        raise BadInput(f"service {missing[0]}: there is none", hint="kubectl get services -A")
    prober = Prober(question.timeout)
    rows = await _rows(prober, world, _pairs(targets(world, question.services), clients))
    if doubtful := [(row.target, c.client) for row in rows for c in row.cells if c.verdict is Verdict.WRONG]:
        await asyncio.sleep(question.second_look)
        world = await read(api)
        there = set(targets(world))
        again = await _rows(prober, world, [(target, client) for target, client in doubtful if target in there])
        rows = _replaced([row for row in rows if row.target in there], again)
    return Report(tuple(clients), tuple(rows), time.perf_counter() - start)


def _pairs(rows: Iterable[Target], clients: Sequence[Client]) -> list[tuple[Target, Client]]:
    return [(target, client) for target in rows for client in clients]


async def _rows(prober: Prober, world: World, pairs: Sequence[tuple[Target, Client]]) -> list[Row]:
    async with asyncio.TaskGroup() as tries:
        tasks = [tries.create_task(prober(client, target)) for target, client in pairs]
    cells: dict[Target, list[Cell]] = {}
    for (target, client), task in zip(pairs, tasks, strict=True):
        cells.setdefault(target, []).append(cell(client, task.result(), expectation(world, target, client)))
    return [Row(target, tuple(found)) for target, found in cells.items()]


def _replaced(rows: Sequence[Row], newer: Sequence[Row]) -> list[Row]:
    fresh = {(row.target, c.client): c for row in newer for c in row.cells}
    return [Row(row.target, tuple(fresh.get((row.target, c.client), c) for c in row.cells)) for row in rows]

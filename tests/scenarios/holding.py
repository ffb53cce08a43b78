"""A page in the kernel: the real proxy writes it, step by step, and its packets are sent through what was written."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.scenarios.asking import Asker
from tests.scenarios.page import Page
from tests.scenarios.proxies import configuration, inside, running
from tests.scenarios.world import World

from clusterip.kernel.run import run


@dataclass(frozen=True, slots=True)
class Place:
    """One dataplane's world, which its pages share: each comes after what another left."""

    dataplane: str
    world: World
    cgroup: Path = Path()  # eBPF mode: of the node
    directory: Path = Path()  # eBPF mode: where its maps are pinned


async def hold(page: Page, place: Place) -> None:
    """Raises AssertionError, with what is not as the page says."""
    _serve(place.world, page)
    node = page.steps[0].node
    config = configuration(place.dataplane, node, place.cgroup, place.directory)
    with inside(place.world), ExitStack() as stack:
        asker = Asker(place.world, in_turn=place.dataplane == "ipvs")
        stack.callback(asker.close)
        await run(("conntrack", "-F"), check=False)
        async with running(config, page.steps[0].state, node) as proxy:
            for step in page.steps:
                await proxy.become(step.state, step.node)
                wrong = await proxy.differences()
                assert not wrong, f"{page.name}.md, step {step.title!r}, {place.dataplane}: {wrong}"
                for line in step.lines:
                    wrong = await asyncio.to_thread(asker.check, line, line.answer_in(place.dataplane))
                    assert not wrong, f"{page.name}.md:{line.number}, {place.dataplane}: {wrong}"


def _serve(world: World, page: Page) -> None:
    """At all ports that backends of the page have."""
    answers = [a for step in page.steps for line in step.lines for a in (line.answer, *line.exceptions.values())]
    for port in {port for answer in answers for _, port, _ in answer.backends}:
        world.serve(port)

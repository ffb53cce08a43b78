"""The order of the steps, and what happens when one cannot go on."""

from collections.abc import AsyncGenerator, Sequence

from clusterip.errors import ClusterIPError
from clusterip.lab.demo import address, change, choice, packet
from clusterip.lab.demo.stage import Stage
from clusterip.lab.demo.values import Claim, Say, Shown, Step

STEPS: tuple[Step, ...] = (
    address.three_pods,
    address.on_no_interface,
    address.rules,
    packet.one_connection,
    packet.two_connections,
    choice.many_connections,
    choice.affinity,
    change.more_pods,
    change.new_pods,
    change.one_fails,
    change.all_fail,
    change.recovery,
)


async def perform(stage: Stage, steps: Sequence[Step] = STEPS) -> AsyncGenerator[Shown, None]:
    """Everything the steps show. A step that breaks off is a claim that failed; the next one is tried all the same,
    unless it was the first, which makes what all others need."""
    for number, step in enumerate(steps):
        try:
            async for shown in step(stage):
                yield shown
        except (ClusterIPError, OSError, TimeoutError) as error:
            yield Claim("This step could be carried out to its end.", False, str(error) or type(error).__name__)
            if number == 0:
                yield Say("All other steps need these pods and this address. `clusterip status` may say what is wrong.")
                return

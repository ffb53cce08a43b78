"""All that was found out for one question, before it is put in words."""

from collections.abc import Sequence
from dataclasses import dataclass

from clusterip.diagnosis.facts import Facts
from clusterip.diagnosis.frontends import Frontend
from clusterip.diagnosis.outcomes import Reached
from clusterip.diagnosis.packet import Packet
from clusterip.diagnosis.question import Client
from clusterip.diagnosis.reply import WayBack
from clusterip.diagnosis.tracked import Tracked
from clusterip.diagnosis.walk.branch import Condition
from clusterip.diagnosis.walk.hooks import Hooks
from clusterip.diagnosis.walk.programs import Programs


@dataclass(frozen=True, slots=True)
class Walked:
    facts: Facts
    frontends: Sequence[Frontend]
    client: Client
    packet: Packet
    programs: Programs
    hooks: Hooks
    tracked: Tracked | None
    found: tuple[Reached, ...]
    granted: tuple[Condition, ...]  # assumptions that would change it if they were wrong
    back: WayBack | None  # None: nothing was delivered

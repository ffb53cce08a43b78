"""The edge of iptables mode: feeds the pure parts' text to the kernel, reads back, and sees when others write.

Nothing here decides what the rules are.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from clusterip.dataplane.iptables import delta
from clusterip.dataplane.iptables.config import Config
from clusterip.dataplane.iptables.delta import Delta, Installed, Variant
from clusterip.errors import ClusterIPError, Unavailable
from clusterip.kernel import iptables as kernel
from clusterip.kernel import sysctl
from clusterip.kernel.iptables import Programs, VariantName
from clusterip.services.table import Family

log = logging.getLogger(__name__)

_NOTHING: Mapping[VariantName, Installed] = MappingProxyType({})


class WriteWatch:
    """Tells whether anybody but us has written rules, without starting a program.

    The nft variant counts every transaction of the namespace, in all families, so the proxiers of both families must
    share one watch. The legacy variant shows the shape of its tables. `epoch` grows whenever somebody else wrote, or
    may have: a reader who saw it stand still since its last look at the rules need not look again.
    """

    def __init__(self, programs: Programs) -> None:
        self.epoch = 0
        self._programs = programs
        self._last: int | bytes = b""

    def _read(self) -> int | bytes:
        if self._programs.variant == "nft":
            return kernel.nft_generation(self._programs.netns)
        return kernel.legacy_shape(self._programs.family, self._programs.netns)

    async def look(self) -> int:
        """The epoch, up to date."""
        now = await asyncio.to_thread(self._read)
        if now != self._last:
            self.epoch += 1
            self._last = now
        return self.epoch

    async def wrote(self, blocks: int) -> None:
        """After a write of ours that `look` came right before."""
        before, self._last = self._last, await asyncio.to_thread(self._read)
        if isinstance(before, int) and isinstance(self._last, int) and self._last - before != blocks:
            self.epoch += 1


@dataclass(frozen=True, slots=True)
class Observed:
    """What an iptables-save showed. `epoch`: of the watch, from before the save."""

    text: str
    epoch: int


class Rules:
    """One family's rules in the kernel."""

    def __init__(self, programs: Programs, watch: WriteWatch | None = None) -> None:
        self.programs = programs
        self.watch = watch or WriteWatch(programs)

    def __repr__(self) -> str:
        version = ".".join(map(str, self.programs.version))
        return f"Rules({self.programs.name} {version} {self.programs.variant} epoch={self.watch.epoch})"

    @property
    def variant(self) -> Variant:
        return Variant(self.programs.variant)

    async def apply(self, change: Delta) -> None:
        """Raises RestoreRefused: the blocks before the refused one are then in force."""
        if not change.text:
            return
        await self.watch.look()
        try:
            await kernel.restore(self.programs, change.text)
        finally:
            await self.watch.wrote(change.text.count("\nCOMMIT\n"))

    async def observe(self) -> Observed:
        epoch = await self.watch.look()
        return Observed(await kernel.save(self.programs), epoch)


async def usable(family: Family, netns: str = "", variant: VariantName | None = None) -> Programs | None:
    """The family's programs, or None if this machine cannot do iptables in that family."""
    if family == "IPv6" and not sysctl.has_ipv6(netns):
        return None
    try:
        return await kernel.detect(family, variant, netns)
    except Unavailable as error:
        log.info("iptables.unusable family=%s reason=%r", family, error.message)
        return None


async def clean_up(
    config: Config, netns: str = "", kept: Mapping[VariantName, Installed] = _NOTHING
) -> tuple[ClusterIPError, ...]:
    """Take all our rules away, of one family and both variants; others' rules stay, and so do the chains and jumps in
    `kept`, which another mode has by the same names. What could not be done."""
    errors: list[ClusterIPError] = []
    variants: tuple[VariantName, ...] = ("nft", "legacy")
    for variant in variants:
        programs = await usable(config.family, netns, variant)
        if programs is None:
            continue
        try:
            found, spared = delta.installed(await kernel.save(programs), config), kept.get(variant, Installed())
            gone = Installed(found.chains - spared.chains, found.jumps - spared.jumps)
            await Rules(programs).apply(delta.cleanup(gone))
            if gone.chains:
                facts = (config.family, variant, len(gone.chains))
                log.info("proxy.leftovers.removed family=%s variant=%s chains=%d", *facts)
        except ClusterIPError as error:
            errors.append(error)
    return tuple(errors)

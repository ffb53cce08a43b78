"""The configuration file, read again while the proxy runs: what can be taken over is, the rest ends the process."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Never, TypeAlias

import msgspec

from clusterip.errors import BadInput, ClusterIPError, Unavailable
from clusterip.model.status import Object
from clusterip.proxy.config import ProxyConfig
from clusterip.proxy.events import Events

log = logging.getLogger(__name__)

_FILE_POLL = 1.0  # seconds between looks at the configuration file
# What goes by which section: a change of another one is noted, and has no effect until its mode comes.
_GOES_BY = {
    "iptables": ("iptables",),
    "ipvs": ("ipvs", "iptables"),
    "nftables": ("nftables",),
    "ebpf": ("ebpf", "nftables"),
}
_LIVE = ("mode", "iptables", "ipvs", "nftables", "ebpf")
_PINNED = ("cgroup", "directory")  # of the section `ebpf`: what outlives the process is there


@dataclass(frozen=True, slots=True)
class Moved:
    """How far a change has come."""

    config: ProxyConfig  # in force
    waits: str = ""  # for what, in words, until that is in force which was asked for; "": it is


Move: TypeAlias = Callable[[ProxyConfig], Awaitable[Moved]]  # raises ClusterIPError: then nothing has changed


def fixed(before: ProxyConfig, after: ProxyConfig) -> tuple[str, ...]:
    """The fields, by their names in the file, that differ and that a running proxy cannot take over. Pure."""
    names = {f.name: f.encode_name for f in msgspec.structs.fields(ProxyConfig)}
    changed = [names[name] for name in names if name not in _LIVE and getattr(before, name) != getattr(after, name)]
    pinned = [f"ebpf.{name}" for name in _PINNED if getattr(before.ebpf, name) != getattr(after.ebpf, name)]
    return (*changed, *pinned)


def concerns(before: ProxyConfig, after: ProxyConfig) -> bool:
    """The dataplane has to be another one, or the same with other settings. Pure."""
    sections = _GOES_BY[after.mode]
    return before.mode != after.mode or any(getattr(before, s) != getattr(after, s) for s in sections)


class Reload:
    """Owned by its own task."""

    def __init__(self, asked: ProxyConfig, read: Callable[[], ProxyConfig], path: str, events: Events) -> None:
        """`asked`: what the proxy was started with. `read` gives the file's, completed, or raises BadInput. `path`: ""
        where there is no file."""
        self.config = asked  # in force
        self.waits = ""  # for what, until the mode that was asked for follows
        self._asked = asked  # what the file said last
        self._read = read
        self._path = Path(path) if path else None
        self._events = events
        self._signal = asyncio.Event()
        self._reads = 0
        self._refused: ClusterIPError | None = None

    def __repr__(self) -> str:
        return f"Reload({self._path} mode={self.config.mode})"

    def hang_up(self) -> None:
        """SIGHUP."""
        self._signal.set()

    def status(self) -> Object:
        """`reads`: how often the file was read again, and what it says acted on or refused."""
        message, hint = (self._refused.message, self._refused.hint) if self._refused else ("", "")
        follows = self._asked.mode if self.waits else ""
        return {"file": str(self._path or ""), "reads": self._reads, "refused": message, "hint": hint,
                "follows": follows, "waits": self.waits}  # fmt: skip

    async def run(self, move: Move) -> Never:
        """Raises Unavailable for a change that only a new process can take over."""
        known = _stamp(self._path)
        while True:
            try:
                async with asyncio.timeout(_FILE_POLL if self._path or self.waits else None):
                    await self._signal.wait()
            except TimeoutError:
                found = _stamp(self._path)
                if found in (known, None):
                    if self.waits:
                        await self._act(move, self._asked)
                    continue
                await asyncio.sleep(_FILE_POLL / 10)  # whoever writes it in pieces has a moment for the rest
            self._signal.clear()
            known = _stamp(self._path) or known
            await self._take_over(move)
            self._reads += 1

    async def _take_over(self, move: Move) -> None:
        if self._path is None:
            log.warning("proxy.config.signal reason='there is no file to read again: the proxy was started with flags' "
                        "hint='start it with --config FILE'")  # fmt: skip
            return
        try:
            asked = self._read()
        except BadInput as error:
            await self._refuse("ConfigurationRefused", error)
            return
        if keys := fixed(self._asked, asked):
            raise Unavailable(f"{self._path}: the configuration has changed: {', '.join(keys)}",
                              hint="start the proxy again to use it: a running one takes over mode, iptables, ipvs, "
                                   "nftables and ebpf, and of that not cgroup and directory")  # fmt: skip
        if not concerns(self.config, asked):
            log.info("proxy.config.read file=%s effect=none", self._path)
            self._take(asked, Moved(asked))
            return
        self.waits = ""  # for what was asked before
        await self._act(move, asked)

    async def _act(self, move: Move, asked: ProxyConfig) -> None:
        was, waited = self.config, self.waits
        try:
            moved = await move(asked)
        except ClusterIPError as error:
            self.waits = ""
            await self._refuse("ProxyModeRefused", error)
            return
        self._take(asked, moved)
        if moved.config == was and waited:
            return  # it waits on
        mode = moved.config.mode
        follows = f"; {asked.mode} follows when nothing is in its way: {moved.waits}" if moved.waits else ""
        log.info("proxy.config.taken file=%s mode=%s waits=%r", self._path, mode, moved.waits)
        said = f"was {was.mode}, is {mode}" if was.mode != mode else f"{mode}, with other settings"
        await self._events.on_node("ProxyModeChanged", f"proxy mode: {said}{follows}")

    def _take(self, asked: ProxyConfig, moved: Moved) -> None:
        self._asked, self.config, self.waits = asked, moved.config, moved.waits
        self._refused = None

    async def _refuse(self, reason: str, error: ClusterIPError) -> None:
        self._refused = error
        stays = f"mode {self.config.mode} goes on"
        log.error("proxy.config.refused file=%s %s error=%r hint=%r", self._path, stays, error.message, error.hint)
        await self._events.on_node(reason, f"{stays}: {error.message}", warning=True)


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    """None: there is none."""
    with contextlib.suppress(OSError):
        if path is not None:
            found = os.stat(path)
            return found.st_ino, found.st_mtime_ns, found.st_size
    return None

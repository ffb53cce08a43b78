"""The edge of eBPF mode: maps and links that outlive the process, in a bpf file system of their own.

    <directory>/maps-<layout>/services     one folder for all programs that can share maps
    <directory>/links/connect4             one link for each hook

A proxy that starts finds the maps full and the programs running; nothing pauses. A new version takes the maps over if
their layout is the same, and puts its programs in the old ones' place one hook after the other.
"""

import contextlib
import logging
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterip.dataplane.ebpf.layout import MAPS, Contents, MapName, family_of
from clusterip.dataplane.ebpf.program import Program
from clusterip.kernel import bpf, mounts
from clusterip.kernel.bpf import Attachment, Handle, Map
from clusterip.services.table import Family

log = logging.getLogger(__name__)

# Those that give back what the Service was come first: nobody may see a backend where a Service was asked for.
HOOKS = (
    *("recvmsg4", "recvmsg6", "getpeername4", "getpeername6"),
    *("sendmsg4", "sendmsg6", "connect4", "connect6"),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node's programs and maps are."""

    cgroup: Path  # sockets of the processes in it and below are served
    directory: Path  # a bpf file system is mounted here


class Sockets:
    """The maps and links of one node, both families. Blocking; one thread at a time."""

    def __init__(self, place: Place, program: Program, node_cookie: int) -> None:
        """`node_cookie`: of the node's network namespace. Makes or takes over the maps. Raises ClusterIPError."""
        self.place = place
        self._program = program
        self._running: dict[str, int] = {}  # hook -> the kernel's number of our program there
        self._folder = place.directory / f"maps-{program.layout}"
        self._make_room()
        self.maps: Mapping[str, Map] = {n: self._map(n) for n in program.maps}
        self.maps["config"].put({bytes(4): struct.pack("<Q", node_cookie)})

    def __repr__(self) -> str:
        return f"Sockets({self.place.cgroup}, {self.place.directory})"

    def contents(self, family: Family) -> Contents:
        """What the maps hold of one family."""
        found: dict[MapName, dict[bytes, bytes]] = {}
        for name in MAPS:
            items = self.maps[name].items()
            found[name] = {k: v for k, v in items if family_of(name, k, v) == family}
        return found

    def attach(self) -> None:
        """From here on sockets are served. Those that are served already notice nothing. Raises ClusterIPError."""
        if not self.damage():
            return
        self._pin_again()
        codes = {code.name: code for code in self._program.codes}
        with contextlib.ExitStack() as stack:
            programs = {name: stack.enter_context(bpf.load(codes[name], self.maps)) for name in HOOKS}
            for name in HOOKS:
                self._link(name, programs[name], codes[name].hook)
        self._forget_other_layouts()
        self._running = {name: attachment_of(self._link_path(name)).program for name in HOOKS}
        log.info("ebpf.sockets.attached cgroup=%s program=%s", self.place.cgroup, self._program.hash[:12])

    def damage(self) -> tuple[str, ...]:
        """What is not as `attach` leaves it, in sentences; what the maps hold is not looked at. Raises BpfRefused."""
        cgroup = self.place.cgroup.stat().st_ino
        there = {name: attachment_of(self._link_path(name)) for name in HOOKS}
        lost = [name for name, at in there.items() if at.cgroup != cgroup]
        others = [n for n, at in there.items() if n not in lost and at.program != self._running.get(n)]
        unpinned = [name for name in self.maps if not (self._folder / name).exists()]
        return (
            *((f"programs are not attached to {self.place.cgroup}: {', '.join(lost)}",) if lost else ()),
            *((f"programs are not ours at {', '.join(others)}",) if others else ()),
            *((f"maps are not pinned in {self._folder}: {', '.join(unpinned)}",) if unpinned else ()),
        )

    def close(self) -> None:
        """Let go of the descriptors; all goes on without us."""
        for held in self.maps.values():
            held.close()

    def _make_room(self) -> None:
        mount(self.place.directory)
        for folder in (self._folder, self.place.directory / "links"):
            folder.mkdir(exist_ok=True)

    def _pin_again(self) -> None:
        """The maps that we hold, where somebody took their names away, or the whole file system."""
        self._make_room()
        for name, held in self.maps.items():
            if not (self._folder / name).exists():
                bpf.pin(held, self._folder / name)

    def _map(self, name: str) -> Map:
        path = self._folder / name
        found = bpf.pinned_map(path, name)
        if found is None:
            found = bpf.create_map(name, self._program.maps[name])
            bpf.pin(found, path)
        return found

    def _link_path(self, name: str) -> Path:
        return self.place.directory / "links" / name

    def _link(self, name: str, program: Handle, hook: str) -> None:
        path = self._link_path(name)
        if attachment_of(path).cgroup == self.place.cgroup.stat().st_ino:
            link = bpf.pinned(path)
            assert link is not None, "its attachment was read from it"
            with link:
                bpf.replace(link, program)
            return
        path.unlink(missing_ok=True)
        with bpf.attach(program, self.place.cgroup, hook) as link:
            bpf.pin(link, path)

    def _forget_other_layouts(self) -> None:
        for folder in self.place.directory.glob("maps-*"):
            if folder != self._folder:
                _remove(folder)


def mount(directory: Path) -> None:
    """A bpf file system, unless one is there already."""
    directory.mkdir(parents=True, exist_ok=True)
    if mounts.kind_of(str(directory)) != "bpf":
        mounts.file_system("bpf", str(directory))


def present(directory: Path) -> bool:
    """Somebody, or nobody any more, keeps programs and maps there."""
    return mounts.kind_of(str(directory)) == "bpf"


def remove(directory: Path) -> bool:
    """Detach the programs and drop the maps; True if there was anything. Connections stay with their backends.

    The hooks that translate go first: a socket may see the Service for as long as one can be asked for.
    """
    if not present(directory):
        return False
    for name in reversed(HOOKS):
        (directory / "links" / name).unlink(missing_ok=True)
    for folder in (directory / "links", *directory.glob("maps-*")):
        _remove(folder)
    mounts.unmount(str(directory))
    with contextlib.suppress(OSError):
        directory.rmdir()
    return True


def attachment_of(path: Path) -> Attachment:
    """Of the pinned link; to cgroup 0 if there is none."""
    link = bpf.pinned(path)
    if link is None:
        return Attachment(0, 0, 0)
    with link:
        return bpf.attachment(link)


def _remove(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def probe(place: Place, program: Program) -> None:
    """Do all that `Sockets` does, with small maps and for a moment. Raises ClusterIPError with the kernel's reason."""
    small = program.smaller(8)
    with contextlib.ExitStack() as stack:
        maps = {n: bpf.create_map(n, shape) for n, shape in small.maps.items()}
        for held in maps.values():
            stack.enter_context(held)
        for code in small.codes:
            loaded = stack.enter_context(bpf.load(code, maps))
            stack.enter_context(bpf.attach(loaded, place.cgroup, code.hook))

"""What a node has of eBPF mode: what the maps hold, and which programs a socket meets. It is read, and left as it is.

A link that is pinned proves little: it may lead to another cgroup, or hold another program. So the kernel is asked
which programs run for the sockets of the cgroup; each is known by its instructions and by the maps that it reads.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from clusterip.dataplane.ebpf.attach import HOOKS, attachment_of
from clusterip.dataplane.ebpf.document import describe
from clusterip.dataplane.ebpf.layout import MAPS, Contents, MapName, family_of
from clusterip.dataplane.ebpf.program import shipped
from clusterip.errors import ClusterIPError
from clusterip.kernel import bpf, cgroup, mounts
from clusterip.kernel.bpf import Attachment, Code, Loaded
from clusterip.rulesets.socketmaps import SocketMaps, Stray, Why
from clusterip.services.table import Family


class Seen(NamedTuple):
    """Of a node's maps and programs."""

    families: Mapping[Family, Contents]
    hooks: tuple[str, ...]  # where a program that reads these maps runs for the cgroup's sockets; sorted
    cgroup: str = ""  # its path; "": it cannot be told
    strays: tuple[Stray, ...] = ()

    def described(self) -> SocketMaps:
        """No Service is known by its name."""
        found = describe(self.families.values(), {}, self.hooks)
        return structs.replace(found, cgroup=self.cgroup, strays=self.strays)


def read(directory: Path, served: Path | None = None) -> Seen | None:
    """`served`: the cgroup that the proxy was told to serve; None: the one that most of its links have. None: eBPF mode
    is not here. Raises ClusterIPError."""
    folders = sorted(directory.glob("maps-*")) if mounts.kind_of(str(directory)) == "bpf" else []
    if not folders:
        return None
    found: dict[Family, dict[MapName, dict[bytes, bytes]]] = {f: {n: {} for n in MAPS} for f in ("IPv4", "IPv6")}
    for name in MAPS:
        held = bpf.pinned_map(folders[-1] / name, name)
        if held is not None:
            with held:
                for key, value in held.items():
                    found[family_of(name, key, value)][name][key] = value
    links = {name: attachment_of(directory / "links" / name) for name in HOOKS}
    place = served or _most(links)
    hooks, strays = _programs(_Node(place, links, _numbers(folders[-1])))
    return Seen(dict(found), hooks, str(place or ""), strays)


@dataclass(frozen=True, slots=True)
class _Node:
    place: Path | None  # whose sockets are served
    links: Mapping[str, Attachment]
    maps: Mapping[str, int]  # the kernel's numbers of those that are pinned


def _most(links: Mapping[str, Attachment]) -> Path | None:
    counted = Counter(at.cgroup for at in links.values() if at.cgroup)
    return _path(counted.most_common(1)[0][0]) if counted else None


def _path(inode: int) -> Path | None:
    with contextlib.suppress(ClusterIPError):
        return cgroup.by_inode(inode)
    return None


def _numbers(folder: Path) -> Mapping[str, int]:
    found = {}
    for path in folder.iterdir():
        held = bpf.pinned_map(path, path.name)
        if held is not None:
            with held:
                found[path.name] = held.number
    return found


def _programs(node: _Node) -> tuple[tuple[str, ...], tuple[Stray, ...]]:
    hooks, strays = list[str](), list[Stray]()
    for code in sorted(shipped().codes, key=lambda c: c.name):
        runs = False
        for program in _met(node, code):
            why = _why_not_ours(program, code, node.maps)
            runs = runs or why in (None, "other-code", "unread-maps")
            if why is not None:
                strays.append(Stray(code.name, f"{program.name or 'without a name'} ({program.number})", why))
        if runs:
            hooks.append(code.name)
        else:
            strays += _elsewhere(node, code.name)
    return tuple(hooks), tuple(strays)


def _met(node: _Node, code: Code) -> Iterator[Loaded]:
    """By a socket of the cgroup; where that cannot be told, what the link holds."""
    link = node.links[code.name]
    numbers: tuple[int, ...] = (link.program,) if link.cgroup and node.place is None else ()
    if node.place is not None:
        with contextlib.suppress(FileNotFoundError):  # nobody is in a cgroup that is not there
            numbers = bpf.running(node.place, code.hook)
    yield from filter(None, map(bpf.loaded, numbers))


def _why_not_ours(program: Loaded, code: Code, maps: Mapping[str, int]) -> Why | None:
    if program.tag in bpf.tags(code):
        return None if program.maps == {maps.get(name) for _, name in code.maps} else "unread-maps"
    return "other-code" if program.maps & set(maps.values()) else "foreign"


def _elsewhere(node: _Node, name: str) -> Iterator[Stray]:
    """Where the link leads, if it is pinned."""
    link = node.links[name]
    if not link.cgroup or node.place is None:
        return
    with contextlib.suppress(FileNotFoundError):
        if node.place.stat().st_ino == link.cgroup:
            return
    program = bpf.loaded(link.program)
    called = f"{program.name} ({program.number})" if program else str(link.program)
    yield Stray(name, called, "elsewhere", str(_path(link.cgroup) or f"cgroup {link.cgroup}"))

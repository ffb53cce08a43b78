"""Takes a cluster away: processes, namespaces, mounts, files. Finds what a crash left, too."""

import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clusterip.kernel import mounts
from clusterip.lab import cgroups, network, processes
from clusterip.lab.state import Identity, State

GRACE = 8.0  # seconds the supervisor has to end what it started
LAST_WAIT = 5.0  # seconds the kernel may take to end what was killed


@dataclass(frozen=True, slots=True)
class Removed:
    processes: int = 0
    namespaces: int = 0
    link: str = ""  # of the machine's own namespace
    mounts: int = 0
    directory: bool = False

    def __bool__(self) -> bool:
        return bool(self.processes or self.namespaces or self.link or self.mounts or self.directory)

    def __str__(self) -> str:
        parts = [
            _count(self.processes, "process", "processes"),
            _count(self.namespaces, "network namespace", "network namespaces"),
            f"link {self.link}" if self.link else "",
            _count(self.mounts, "mount", "mounts"),
            "its files" if self.directory else "",
        ]
        return ", ".join(part for part in parts if part)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}" if number else ""


def supervisors(state: State) -> tuple[Identity, ...]:
    """The one that is written down, and any that was started for this directory but did not come to write."""
    supervision = state.supervision()
    found = {supervision.supervisor} if supervision is not None else set()
    ending = b"\0-m\0clusterip.lab.supervisor\0" + str(state.directory).encode() + b"\0"
    for pid in (int(entry.name) for entry in processes.PROC.iterdir() if entry.name.isdigit()):
        with suppress(OSError):
            if (processes.PROC / str(pid) / "cmdline").read_bytes().endswith(ending):
                found.add(processes.identity(pid) or Identity(0, 0))
    return tuple(process for process in found if processes.alive(process))


def belonging(state: State) -> tuple[Identity, ...]:
    """All processes of the cluster but its supervisor: those written down and everything in its namespaces."""
    supervision = state.supervision()
    recorded = {c.process for c in supervision.components if c.process} if supervision is not None else set()
    return tuple({p for p in recorded if processes.alive(p)} | set(processes.inside(network.left(state.name))))


def remains(state: State) -> str:
    """What is there of a cluster, in words; "" if nothing is."""
    running = len(supervisors(state)) + len(belonging(state))
    removed = Removed(
        processes=running,
        namespaces=len(network.left(state.name)),
        mounts=len(_mounted_below(state.directory)),
        directory=state.directory.exists(),
    )
    return str(removed)


async def take_away(state: State) -> Removed:
    """All of it. Twice is fine: the second finds nothing."""
    ended = _end_processes(state)
    link = await network.remove_host_link(state.name)
    namespaces = network.remove(state.name)
    cgroups.remove(state.name)
    mounted = _mounted_below(state.directory)
    for target in mounted:
        mounts.unmount(target)
    there = state.directory.exists()
    if there:
        shutil.rmtree(state.directory)
    return Removed(
        processes=ended,
        namespaces=len(namespaces),
        link=link,
        mounts=len(mounted),
        directory=there,
    )


def _end_processes(state: State) -> int:
    """At once, by SIGKILL: what they keep goes away with them. The supervisor first, or it would start them again."""
    ended: set[Identity] = set()
    for find in (supervisors, belonging):
        # Again until there are none: one may have been starting another just now.
        for _ in range(20):
            found = find(state)
            if not found:
                break
            for process in found:
                processes.send(process, signal.SIGKILL)
            ended.update(found)
            processes.wait_gone(found, LAST_WAIT)
    return len(ended)


def _mounted_below(directory: Path) -> tuple[str, ...]:
    """Deepest first."""
    places = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = line.split()[4].encode().decode("unicode_escape")  # blanks are written as \040
        if place.startswith(f"{directory}/"):
            places.append(place)
    return tuple(sorted(places, key=len, reverse=True))

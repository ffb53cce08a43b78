"""Processes that may outlive who started them: told apart from others that got their pid, found by where they are."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from clusterip.kernel import netns
from clusterip.lab.state import Identity

PROC = Path("/proc")
_STARTED = 22 - 3  # /proc/PID/stat's 22nd field, counted behind the two that may hold blanks


def identity(pid: int) -> Identity | None:
    """None: there is no such process, or it is dead and only waits for its parent to notice."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else Identity(pid, int(fields[_STARTED]))


def alive(process: Identity | None) -> bool:
    return process is not None and identity(process.pid) == process


def send(process: Identity | None, number: signal.Signals) -> bool:
    """Signals it if it is still the one; True if it was."""
    if process is None or not alive(process):
        return False
    with suppress(ProcessLookupError):
        os.kill(process.pid, number)
        return True
    return False


def inside(namespaces: Iterable[str]) -> tuple[Identity, ...]:
    """All processes in these network namespaces (names), but for ourselves."""
    places = set()
    for name in namespaces:
        with suppress(OSError):
            places.add(netns.path(name).stat().st_ino)
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if (entry / "ns" / "net").stat().st_ino in places:
                process = identity(int(entry.name))
                if process is not None:
                    found.append(process)
    return tuple(found)


def wait_gone(processes: Iterable[Identity], seconds: float) -> tuple[Identity, ...]:
    """Waits at most `seconds` for all to end; those that are still there."""
    end = time.monotonic() + seconds
    left = tuple(p for p in processes if alive(p))
    while left and time.monotonic() < end:
        time.sleep(0.01)
        left = tuple(p for p in left if alive(p))
    return left

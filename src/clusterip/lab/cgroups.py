"""A cgroup for each node: what eBPF mode serves on it are the sockets of the processes there, pods' too.

A machine without cgroup v2, or that lets nobody make cgroups, has clusters all the same; eBPF mode then says why not.
"""

import logging
import time
from pathlib import Path

from clusterip.errors import ClusterIPError
from clusterip.kernel import cgroup
from clusterip.lab.plan import Plan

LAST_WAIT = 5.0  # seconds

log = logging.getLogger(__name__)


def make(plan: Plan) -> dict[str, str]:
    """Node -> the path of its cgroup; {} where there can be none."""
    try:
        found = {node: path(plan.name) / node for node in plan.node_names}
        for place in found.values():
            cgroup.create(place)
    except ClusterIPError as error:
        log.info("lab.cgroups.absent reason=%r", str(error))
        return {}
    return {node: str(place) for node, place in found.items()}


def remove(name: str) -> None:
    """Takes those of the cluster `name` away; no error if there are none. Its processes have been killed: the last of
    them may take a moment to leave."""
    try:
        place = path(name)
    except ClusterIPError:
        return
    end = time.monotonic() + LAST_WAIT
    while True:
        try:
            cgroup.delete(place)
            return
        except cgroup.CgroupFailed:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


def born_in(place: str) -> tuple[str, ...]:
    """What to put before a command so that it, and all it starts, is in the cgroup `place`; "": where we are. If it
    cannot be moved there, the shell says so and goes on: only eBPF mode misses it."""
    return ("sh", "-c", 'echo $$ > "$0"/cgroup.procs; exec "$@"', place) if place else ()


def of_member(plan: Plan, member: str) -> str:
    """The path of its cgroup, "" if it has none."""
    try:
        place = path(plan.name) / member
    except ClusterIPError:
        return ""
    return str(place) if place.is_dir() else ""


def path(name: str) -> Path:
    """Of all nodes of the cluster. Raises Unavailable without cgroup v2."""
    return cgroup.mount_point() / f"clusterip.{name}"

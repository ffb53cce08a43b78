"""Connected datagram sockets whose backend went: they would send to it for ever, since send() meets no hook.

They are ended, and their owner connects again. Streams are left alone: their backend may finish what it began.
Sockets that name the Service with each datagram move by themselves.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from clusterip.dataplane.ebpf.attach import Sockets
from clusterip.dataplane.ebpf.layout import (
    conversation_key,
    family_of_address,
    origin_id,
    packed_place,
    place_value,
    service_id,
)
from clusterip.kernel import cgroup, netns, sockdestroy
from clusterip.kernel.netns import NamespaceFailed
from clusterip.kernel.sockdestroy import Socket
from clusterip.services.table import Entry, Family

log = logging.getLogger(__name__)

Serving: TypeAlias = Mapping[bytes, frozenset[bytes]]  # service id -> the places that still serve it


def serving(entries: Iterable[Entry]) -> Serving:
    """Of all UDP entries of one family. Pure."""
    return {
        service_id(e.key): frozenset(place_value(b.address, b.port) for b in e.serving)
        for e in entries
        if e.protocol == "UDP"
    }


def stale(
    sockets: Iterable[Socket], asked_for: Callable[[Socket], bytes | None], serving: Serving, family: Family
) -> list[Socket]:
    """Those of `family` that came to their backend by a Service (`asked_for` says which) that it serves no more. Pure.

    A Service that is not in `serving` is gone, and so are its backends.
    """
    found = []
    for sock in sockets:
        if family_of_address(sock.address) != family:
            continue
        service = asked_for(sock)
        if service is not None and packed_place(sock.address, sock.port) not in serving.get(service, frozenset()):
            found.append(sock)
    return found


def end_stale(sockets: Sockets, serving: Serving, family: Family) -> int:
    """In every namespace that a process of our cgroup is in; how many were ended. Blocking."""

    def asked_for(sock: Socket) -> bytes | None:
        origin = sockets.maps["origins"].get(conversation_key(sock.cookie, sock.address, sock.port))
        return origin_id(origin) if origin is not None else None

    ended = 0
    for pid in _one_a_namespace(cgroup.processes(sockets.place.cgroup)):
        with contextlib.suppress(NamespaceFailed), netns.inside_process(pid):  # it may have ended meanwhile
            found = stale(sockdestroy.connected("UDP"), asked_for, serving, family)
            ended += sockdestroy.destroy("UDP", found) if found else 0
    if ended:
        log.info("ebpf.sockets.ended family=%s count=%d", family, ended)
    return ended


def _one_a_namespace(pids: Iterable[int]) -> list[int]:
    """One process for each network namespace that any of them is in."""
    found: dict[int, int] = {}
    for pid in pids:
        with contextlib.suppress(NamespaceFailed):
            found.setdefault(netns.inode(pid), pid)
    return list(found.values())

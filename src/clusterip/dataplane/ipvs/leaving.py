"""The edge of `leave`: IPVS mode goes from a kernel that another mode serves in."""

import contextlib

from clusterip.dataplane.ipvs.apply import Rules
from clusterip.dataplane.ipvs.compile import RealServer
from clusterip.dataplane.ipvs.config import DEVICE, Config
from clusterip.dataplane.ipvs.delta import Delta
from clusterip.dataplane.ipvs.leave import depart, quiesce
from clusterip.kernel.run import ProgramFailed, run
from clusterip.services.table import Family


async def give_up_sources(family: Family, node_ip: str, netns: str = "") -> None:
    """Addresses on the dummy stay the node's, but it no longer speaks with them: a connection that it begins now
    outlives them. `node_ip`: what it speaks with instead; one that is not known, or loopback, changes nothing.

    The kernel takes a local route's preferred source before the address that it leads to. IPv6 has no such source on
    a device that is down, and prefers the address itself: there the address goes and the route stays.

    Raises ProgramFailed.
    """
    if node_ip in ("", "127.0.0.1", "::1"):
        return
    bound = await _bound(family, netns)
    if not bound:
        return
    if family == "IPv4":
        way = f"dev {DEVICE} table local proto kernel scope host src {node_ip}"
        lines = [f"route replace local {address} {way}\n" for address in bound]
    else:
        lines = [f"route replace local {address} dev lo table local src {node_ip}\n" for address in bound]
        lines += [f"addr del {address}/128 dev {DEVICE}\n" for address in bound]
    await _ip(family, "".join(lines), netns)


async def leave(rules: Rules, config: Config, serving: frozenset[RealServer]) -> int:
    """Take away what no connection is on; how many virtual servers stay. `serving`: as `leave.depart`.

    Raises ClusterIPError.
    """
    seen = await rules.observe(config)
    await rules.apply(Delta(quiesce(seen, config)))
    idle = frozenset(await rules.idle({at: server.weights for at, server in seen.servers.items()}))
    found = depart(seen, idle, serving, config)
    await rules.apply(Delta(found.steps))
    await _release(rules, config.family, found.addresses)
    return found.stay


async def _release(rules: Rules, family: Family, addresses: tuple[str, ...]) -> None:
    for address in addresses:
        bits = 128 if family == "IPv6" else 32
        for line in (f"addr del {address}/{bits} dev {DEVICE}\n", f"route del local {address} table local\n"):
            with contextlib.suppress(ProgramFailed):  # one of the two is there, or neither
                await _ip(family, line, rules.netns)


async def _bound(family: Family, netns: str) -> tuple[str, ...]:
    flag = "-6" if family == "IPv6" else "-4"
    done = await run(("ip", "-o", flag, "addr", "show", "dev", DEVICE, "scope", "global"), check=False, netns=netns)
    words = [line.split() for line in done.stdout.decode(errors="replace").splitlines()]
    return tuple(w[3].partition("/")[0] for w in words if len(w) > 3)


async def _ip(family: Family, lines: str, netns: str) -> None:
    await run(("ip", "-6" if family == "IPv6" else "-4", "-batch", "-"), stdin=lines.encode(), netns=netns)

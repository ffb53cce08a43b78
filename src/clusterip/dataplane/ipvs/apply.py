"""IPVS mode at the edge: virtual servers by netlink, sets by `ipset`, chains by `iptables-restore`, the dummy device by
`ip`."""

import asyncio
import contextlib
import errno
import logging
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from clusterip.dataplane.ipvs import chains, delta, sets
from clusterip.dataplane.ipvs.book import Present, Seen
from clusterip.dataplane.ipvs.chains import Shape, Shared
from clusterip.dataplane.ipvs.compile import At, RealServer
from clusterip.dataplane.ipvs.config import DEVICE, Config
from clusterip.dataplane.ipvs.delta import Addresses, Command, Delta, Members, Servers, Verb
from clusterip.dataplane.ipvs.delta import Rules as Text
from clusterip.dataplane.ipvs.sets import Member
from clusterip.errors import Unavailable
from clusterip.kernel import ipset as kernel_sets
from clusterip.kernel import iptables, ipvs, links, sysctl
from clusterip.kernel.ipset import SetRefused
from clusterip.kernel.iptables import Programs
from clusterip.kernel.ipvs import IPVS, IPVSRefused, Place
from clusterip.kernel.netlink import inside
from clusterip.kernel.run import run
from clusterip.rulesets import ipset
from clusterip.services.table import Family

log = logging.getLogger(__name__)

_PROBE = Place("TCP", "198.51.100.0", 20000)  # TEST-NET-2: nobody is there
_RELEASE = 5.0  # seconds within which the kernel lets go of sets whose rules are gone


class Rules:
    """One family's virtual servers, sets, chains and addresses in the kernel."""

    def __init__(self, programs: Programs) -> None:
        self.programs = programs

    def __repr__(self) -> str:
        return f"Rules(ipvs {self.programs.family} {self.programs.name})"

    @property
    def netns(self) -> str:
        return self.programs.netns

    async def apply(self, change: Delta) -> None:
        """Raises ClusterIPError; the steps before the refused one are then in force."""
        for step in change.steps:
            match step:
                case Members(text):
                    await kernel_sets.restore(text, self.netns)
                case Servers(commands):
                    await asyncio.to_thread(self._send, commands)
                case Text(text):
                    await iptables.restore(self.programs, text)
                case Addresses():
                    await links.configure(self.netns, *_lines(step))

    def _send(self, commands: Sequence[Command]) -> None:
        with IPVS(self.netns) as link:
            link.apply([_request(c) for c in commands])

    async def observe(self, config: Config) -> Seen:
        read = ipset.read(await kernel_sets.save(self.netns)).values.sets
        kinds = {sets.name(kind, config): kind for kind in sets.SETS}
        members = frozenset(
            Member(kinds[name], ",".join(member.parts))
            for name in kinds.keys() & read.keys()
            for member in read[name].members
        )
        addresses = await self._addresses()
        save = await iptables.save(self.programs)
        return Seen(
            servers=await asyncio.to_thread(self._servers),
            sets=frozenset(kinds.keys() & read.keys()),
            members=members,
            addresses=frozenset(addresses or ()),
            device=addresses is not None,
            chains=frozenset(_chains(save)),
            jumps=frozenset(j for j in chains.jumps() if f"-A {j.chain} {j.spec}" in save.splitlines()),
            portals="\n:KUBE-NODEPORTS " in save,
        )

    def _servers(self) -> dict[At, Present]:
        with IPVS(self.netns) as link:
            found = {}
            for place, scheduler, persistent in link.services(self.programs.family):
                weights = {RealServer(d.address, d.port): d.weight for d in link.destinations(place)}
                found[At(*place)] = Present(At(*place), scheduler, persistent, weights)
            return found

    async def _addresses(self) -> tuple[str, ...] | None:
        """None: there is no such device."""
        flag = "-6" if self.programs.family == "IPv6" else "-4"
        done = await run(("ip", "-o", flag, "addr", "show", "dev", DEVICE), check=False, netns=self.netns)
        if done.returncode:
            return None
        return tuple(re.findall(r"\binet6? ([0-9a-fA-F.:]+)", done.stdout.decode(errors="replace")))

    async def missing(self, shape: Shape, config: Config) -> tuple[str, ...]:
        """Rules of ours that are not in the kernel."""
        return chains.missing(await iptables.save(self.programs), shape, config)

    async def idle(self, retired: Mapping[At, Iterable[RealServer]]) -> list[tuple[At, RealServer]]:
        """Those of `retired` that have no connection any more."""
        return await asyncio.to_thread(lambda: list(self._idle(retired)))

    def _idle(self, retired: Mapping[At, Iterable[RealServer]]) -> Iterator[tuple[At, RealServer]]:
        with IPVS(self.netns) as link:
            for at, reals in retired.items():
                counted = {RealServer(d.address, d.port): d.connections for d in link.destinations(Place(*at))}
                yield from ((at, real) for real in reals if counted.get(real) == 0)


def _request(c: Command) -> ipvs.Request:
    place = Place(*c.at)
    real = c.real or RealServer("", 0)
    match c.verb:
        case Verb.ADD_SERVER:
            return ipvs.add_service(ipvs.Service(place, c.scheduler, c.persistent))
        case Verb.EDIT_SERVER:
            return ipvs.edit_service(ipvs.Service(place, c.scheduler, c.persistent))
        case Verb.DELETE_SERVER:
            return ipvs.delete_service(place)
        case Verb.ADD_REAL:
            return ipvs.add_destination(place, *real, c.weight)
        case Verb.EDIT_REAL:
            return ipvs.edit_destination(place, *real, c.weight)
        case Verb.DELETE_REAL:
            return ipvs.delete_destination(place, *real)


def _lines(step: Addresses) -> list[str]:
    """For `ip -batch`. IPv6 asks the neighbours about a new address otherwise, who all have it, too."""

    def full(address: str) -> str:
        return f"{address}/128 dev {DEVICE} nodad" if ":" in address else f"{address}/32 dev {DEVICE}"

    return [
        *([f"link add {DEVICE} type dummy"] if step.device else []),
        *(f"addr add {full(address)}" for address in step.bind),
        *(f"addr del {full(address).removesuffix(' nodad')}" for address in step.unbind),
    ]


def _chains(save: str) -> Iterator[tuple[str, str]]:
    ours = {(c.table, c.name) for c in chains.chains(chains.Shape(), Config())}
    table = ""
    for line in save.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif line.startswith(":") and (found := (table, line[1:].split(" ", 1)[0])) in ours:
            yield found


async def check(scheduler: str, netns: str = "") -> None:
    """Whether this machine can do IPVS with `scheduler`. Raises Unavailable, which names the mode to use instead."""
    await kernel_sets.version(netns)
    await asyncio.to_thread(_check_scheduler, scheduler, netns)


def _check_scheduler(scheduler: str, netns: str) -> None:
    """One that is in use is there; another is tried."""
    with IPVS(netns) as link:
        families = ("IPv4", "IPv6")
        if any(s.scheduler == scheduler for family in families for s in link.services(family)):  # type: ignore[arg-type]
            return
        try:
            link.apply([ipvs.add_service(ipvs.Service(_PROBE, scheduler, 0))])
            link.apply([ipvs.delete_service(_PROBE)])
        except IPVSRefused as error:
            if error.errno != errno.ENOENT:
                raise
            raise Unavailable(
                f"IPVS: this kernel has no scheduler {scheduler!r}, and no module ip_vs_{scheduler} to load",
                hint="set ipvs.scheduler to rr, or use --proxy-mode nftables",
            ) from error


def settings(*, strict_arp: bool, kernel: tuple[int, int]) -> dict[str, str]:
    """Name and value of each kernel setting that IPVS mode needs; `kernel`: its version. Pure."""
    wanted = {
        "net.ipv4.vs.conntrack": "1",  # without it nothing is masqueraded
        "net.ipv4.vs.expire_nodest_conn": "1",  # who talks to a deleted backend hears so at once
        "net.ipv4.vs.expire_quiescent_template": "1",  # affinity ends with the backend
        "net.ipv4.ip_forward": "1",
    }
    if (4, 1) <= kernel < (5, 9):
        wanted["net.ipv4.vs.conn_reuse_mode"] = "0"  # 1 costs a second for each port that a client uses again
    if strict_arp:
        wanted |= {"net.ipv4.conf.all.arp_ignore": "1", "net.ipv4.conf.all.arp_announce": "2"}
    return wanted


def prepare(wanted: Mapping[str, str], netns: str = "") -> None:
    """Blocking. Raises SettingRefused."""
    for name, value in wanted.items():
        if sysctl.ensure(name, value, netns):
            log.info("ipvs.sysctl.set name=%s value=%s", name, value)


def set_timeouts(tcp: int, tcp_fin: int, udp: int, netns: str = "") -> None:
    """Of idle connections, seconds; 0 leaves one as it is. Blocking. Raises IPVSRefused."""
    if tcp or tcp_fin or udp:
        with IPVS(netns) as link:
            link.set_timeouts(tcp, tcp_fin, udp)


async def host_addresses(family: Family, netns: str = "") -> tuple[str, ...]:
    """The node's addresses on interfaces other than the dummy, without those that mean something on one link only."""
    done = await run(("ip", "-o", "-6" if family == "IPv6" else "-4", "addr", "show"), netns=netns)
    lines = done.stdout.decode(errors="replace").splitlines()
    found = (re.search(r"^\d+: (\S+)\s+inet6? ([0-9a-fA-F.:]+)(?!.*scope link)", line) for line in lines)
    return tuple(dict.fromkeys(match[2] for match in found if match and match[1] != DEVICE))


async def clean_up(rules: Rules, config: Config, shared: Shared = Shared.REMOVE) -> bool:
    """Take it all away, of one family; others' rules stay. True if there was anything.

    Raises ClusterIPError.
    """
    change = delta.clean_up(await rules.observe(config), config, shared)
    steps = [step for step in change.steps if not isinstance(step, Members)]
    destroyed = [step for step in change.steps if isinstance(step, Members)]
    await rules.apply(replace(change, steps=tuple(steps)))
    ends = asyncio.get_running_loop().time() + _RELEASE
    for step in destroyed:
        await _destroy(step.text, rules.netns, ends)
    return bool(change.steps)


async def _destroy(text: str, netns: str, ends: float) -> None:
    """The kernel lets go of a set some time after the rule that asked it is gone."""
    lines = text.splitlines(keepends=True)
    while lines:
        try:
            await kernel_sets.restore("".join(lines), netns)
        except SetRefused as error:
            if not error.line or asyncio.get_running_loop().time() >= ends:
                raise
            lines = lines[error.line - 1 :]
            await asyncio.sleep(0.1)
        else:
            return


def has_device(netns: str = "") -> bool:
    """Somebody has run in IPVS mode here, and was not cleaned up after."""
    with inside(netns), contextlib.suppress(OSError):
        return socket.if_nametoindex(DEVICE) > 0
    return False


async def remove_device(netns: str = "") -> bool:
    """The dummy, and every address on it. True if it was there."""
    done = await run(("ip", "link", "del", DEVICE), check=False, netns=netns)
    return done.returncode == 0

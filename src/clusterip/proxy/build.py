"""From the configuration, the Node and what this machine can do: the parts that serve each family."""

import asyncio
import functools
import ipaddress
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from clusterip.dataplane.ebpf.attach import Sockets
from clusterip.dataplane.iptables import Config, Detector, FromCIDR, FromInterface
from clusterip.dataplane.iptables.apply import Rules, WriteWatch, usable
from clusterip.dataplane.ipvs import apply as virtual_servers
from clusterip.dataplane.ipvs import config as virtual_config
from clusterip.dataplane.nftables import apply as nftables
from clusterip.dataplane.nftables import config as nftables_config
from clusterip.dataplane.nftables.apply import Generation
from clusterip.errors import BadInput, Unavailable
from clusterip.kernel import iptables as kernel
from clusterip.kernel import nfacct, sysctl
from clusterip.kernel.iptables import WAITS, Programs
from clusterip.kernel.nftables import Tables
from clusterip.model.objects import Node
from clusterip.proxy import node, prepare, rules, sockets, virtual
from clusterip.proxy.chains import ChainPlane
from clusterip.proxy.config import ProxyConfig
from clusterip.proxy.events import Events
from clusterip.proxy.handover import Target
from clusterip.proxy.health import Health
from clusterip.proxy.metrics import INVALID_DROPPED, LOCALHOST_ACCEPTED
from clusterip.proxy.parts import FamilyParts
from clusterip.proxy.pending import FamilyProxier, ServedAddresses
from clusterip.proxy.proxier import Proxier
from clusterip.proxy.service_health import ServiceHealth
from clusterip.proxy.tables import TablePlane
from clusterip.proxy.virtual import ServerPlane
from clusterip.services.table import FAMILIES, Family
from clusterip.services.tracker import ServiceName

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found at start."""

    node: Node | None  # ours
    programs: tuple[Programs, ...]  # of iptables mode: one a family, the first family's first
    counters: tuple[str, ...]  # of nfacct, in iptables mode; (): the kernel has none
    liberal: bool  # nf_conntrack_tcp_be_liberal
    tables: tuple[Family, ...] = ()  # families that nftables serves, the first one first
    sockets: Sockets | None = None  # of eBPF mode

    @property
    def families(self) -> tuple[Family, ...]:
        return self.tables or tuple(p.family for p in self.programs)


async def look(config: ProxyConfig, ours: Node | None, opened: Sockets | None = None) -> Machine:
    """Raises Unavailable if the mode cannot be used in the first family."""
    primary = rules.primary_family(config)
    ordered = sorted(FAMILIES, key=lambda f: f != primary)
    liberal = await asyncio.to_thread(prepare.conntrack_is_liberal)
    if rules.writes_tables(config):
        found = tuple(f for f in ordered if f == primary or sysctl.has_ipv6())
        await asyncio.to_thread(_probe_nf_tables, primary)
        check_families(config, ours, found)
        return Machine(ours, (), (), liberal, found, opened)
    programs = await _programs(config, ordered)
    check_families(config, ours, [p.family for p in programs])
    if config.mode == "ipvs":
        await virtual.ready(config.ipvs)
    return Machine(ours, programs, await asyncio.to_thread(_counters), liberal)


async def look_again(config: ProxyConfig, before: Machine) -> Machine:
    """For another mode. Raises ClusterIPError if this machine cannot do it."""
    opened = None
    if config.mode == "ebpf":
        opened = before.sockets or await sockets.open_sockets(config)
    machine = await look(config, before.node, opened)
    if serves_loopback(config):
        await asyncio.to_thread(prepare.route_localnet)
    return machine


async def able(config: ProxyConfig) -> None:
    """Raises Unavailable if this machine cannot do the mode. Changes nothing."""
    if config.mode == "ebpf":
        await asyncio.to_thread(sockets.able, config)
    if config.mode == "ipvs":
        await virtual.able(config.ipvs)


def _probe_nf_tables(family: Family) -> None:
    """Raises Unavailable if this kernel has none."""
    tables = Tables(family)
    try:
        log.info("proxy.nftables.found generation=%d", tables.generation())
    finally:
        tables.close()


async def _programs(config: ProxyConfig, ordered: Sequence[Family]) -> tuple[Programs, ...]:
    programs = []
    for family in ordered:
        found = await usable(family)
        if found:
            programs.append(found)
            version = ".".join(map(str, found.version))
            log.info("proxy.iptables.found family=%s variant=%s version=%s", family, found.variant, version)
        elif family == rules.primary_family(config):
            raise Unavailable(
                f"{family}: no usable iptables on this machine, and bindAddress {config.bind_address} asks for it",
                hint="apt-get install iptables, or use --proxy-mode nftables, which needs no program",
            )
    return tuple(programs)


def check_families(config: ProxyConfig, ours: Node | None, usable_families: Sequence[Family]) -> None:
    """Pod ranges that are all of another family than ours detect nothing: logged, and fatal where nothing else can.

    Raises BadInput.
    """
    by_node = config.detect_local_mode == "NodeCIDR"
    if not by_node and config.detect_local_mode != "ClusterCIDR":
        return
    ranges = node.pod_ranges(ours) if by_node else tuple(filter(None, config.cluster_cidr.split(",")))
    primary = rules.primary_family(config)
    if not ranges or any(f"IPv{ipaddress.ip_network(r.strip(), strict=False).version}" == primary for r in ranges):
        return
    where = "the node's pod ranges" if by_node else "clusterCIDR"
    said = f"{where}: {', '.join(ranges)} has no {primary} range, and {primary} is the first family"
    if by_node or len(usable_families) == 1:
        raise BadInput(said, hint="set bindAddress to an address of the family that pods have")
    log.error("proxy.ranges.mismatch reason=%r", said)


ServiceCIDRs: TypeAlias = Callable[[Family], tuple[str, ...]]  # where ClusterIPs come from, as the API says now


def families(
    config: ProxyConfig,
    machine: Machine,
    cidrs: ServiceCIDRs,
    health: Health,
    events: Events,
    before: Iterable[FamilyParts] = (),
) -> tuple[FamilyParts, ...]:
    """`before`: whose servers for health checks go on. Raises BadInput or Unavailable if the local-traffic detector
    cannot work in any family."""
    open_servers = {f.proxier.family: f.service_health for f in before}
    made: Iterable[tuple[FamilyProxier, ServedAddresses]]
    if config.mode == "ipvs":
        made = _virtual(config, machine)
    else:
        made = _tables(config, machine, cidrs) if rules.writes_tables(config) else _iptables(config, machine)
    return tuple(
        FamilyParts(p, open_servers.get(p.family) or _service_health(p.family, health, events), served)
        for p, served in made
    )


def target(config: ProxyConfig, machine: Machine, made: tuple[FamilyParts, ...]) -> Target:
    """`made`: by `families`; nothing of it is in force yet. Pure."""
    section = rules.mode_section(config)
    return Target(config.mode, made, section.min_sync_period, section.sync_period, machine.counters)


def _iptables(config: ProxyConfig, machine: Machine) -> Iterator[tuple[FamilyProxier, ServedAddresses]]:
    watches: dict[str, WriteWatch] = {}
    for programs in machine.programs:
        # The nft variant counts the writes of both families as one.
        shared = programs.variant if programs.variant == "nft" else programs.family
        watch = watches.setdefault(shared, WriteWatch(programs))
        served = served_addresses(config, programs.family, node.node_ips(config, machine.node)[programs.family])
        rule_set = Rules(programs, watch)
        plane = ChainPlane(rule_config(config, machine, programs), rule_set, served, config.iptables.sync_period)
        yield Proxier(plane), served


def _virtual(config: ProxyConfig, machine: Machine) -> Iterator[tuple[FamilyProxier, ServedAddresses]]:
    for programs in machine.programs:
        served = served_addresses(config, programs.family, node.node_ips(config, machine.node)[programs.family])
        plane = ServerPlane(
            server_config(config, machine, programs), virtual_servers.Rules(programs), served, config.ipvs.sync_period
        )
        yield Proxier(plane), served


def _tables(
    config: ProxyConfig, machine: Machine, cidrs: ServiceCIDRs
) -> Iterator[tuple[FamilyProxier, ServedAddresses]]:
    generation = Generation()
    for family in machine.families:
        served = served_addresses(config, family, node.node_ips(config, machine.node)[family])
        plane = TablePlane(
            table_config(config, machine, family),
            nftables.Rules(family, generation),
            served,
            functools.partial(cidrs, family),
            config.nftables.sync_period,
        )
        packets = Proxier(plane)
        yield (sockets.above(packets, machine.sockets, config, served) if machine.sockets else packets), served


def table_config(config: ProxyConfig, machine: Machine, family: Family) -> nftables_config.Config:
    """Pure."""
    return nftables_config.Config(
        family=family,
        node_ip=node.node_ips(config, machine.node)[family],
        detector=detector(config, machine.node, family),
        masquerade_bit=config.nftables.masquerade_bit,
        masquerade_all=config.nftables.masquerade_all,
        drop_invalid=not machine.liberal,
    )


def server_config(config: ProxyConfig, machine: Machine, programs: Programs) -> virtual_config.Config:
    """Pure. The mark's bit is configured where iptables mode has it."""
    family = programs.family
    return virtual_config.Config(
        family=family,
        node_ip=node.node_ips(config, machine.node)[family],
        detector=detector(config, machine.node, family),
        masquerade_bit=config.iptables.masquerade_bit,
        masquerade_all=config.iptables.masquerade_all,
        scheduler=config.ipvs.scheduler or virtual_config.Config().scheduler,
        exclude_cidrs=config.ipvs.exclude_cidrs,
        random_fully=programs.version >= WAITS,
    )


def rule_config(config: ProxyConfig, machine: Machine, programs: Programs) -> Config:
    """Pure."""
    family = programs.family
    return Config(
        family=family,
        node_ip=node.node_ips(config, machine.node)[family],
        detector=detector(config, machine.node, family),
        masquerade_bit=config.iptables.masquerade_bit,
        masquerade_all=config.iptables.masquerade_all,
        localhost_node_ports=config.iptables.localhost_node_ports,
        random_fully=programs.version >= WAITS,
        nfacct=bool(machine.counters),
        drop_invalid=not machine.liberal,
    )


def detector(config: ProxyConfig, ours: Node | None, family: Family) -> Detector | None:
    """How a pod's packets are told from others; None: they are not. Pure."""
    match config.detect_local_mode:
        case "BridgeInterface":
            return FromInterface(config.detect_local.bridge_interface)
        case "InterfaceNamePrefix":
            return FromInterface(f"{config.detect_local.interface_name_prefix}+")
        case "NodeCIDR":
            cidr = node.pod_range(ours, family)
        case _:
            cidr = rules.cluster_cidr(config, family)
    if not cidr:
        log.warning("proxy.detector.absent family=%s mode=%s", family, config.detect_local_mode)
    return FromCIDR(cidr) if cidr else None


def served_addresses(config: ProxyConfig, family: Family, node_ip: str) -> ServedAddresses:
    """Asked at each load: which of the node's addresses serve node ports; None: all of them."""
    wanted = config.node_port_addresses

    async def all_addresses() -> None:
        return None

    async def own() -> tuple[str, ...]:
        return (node_ip,)

    networks = [ipaddress.ip_network(w, strict=False) for w in wanted if w != rules.PRIMARY]
    ours = [n for n in networks if f"IPv{n.version}" == family]

    async def matching() -> tuple[str, ...]:
        found = await kernel.local_addresses(family)
        return tuple(a for a in found if any(ipaddress.ip_address(a) in n for n in ours))

    # nftables mode is for the node's own addresses where nothing else is said, and so is eBPF mode above it.
    if wanted == (rules.PRIMARY,) or (not wanted and rules.writes_tables(config)):
        return own
    if not ours or any(n.prefixlen == 0 for n in ours):
        return all_addresses
    return matching


def serves_loopback(config: ProxyConfig) -> bool:
    """Node ports on 127.0.0.1, which need route_localnet. Pure."""
    wanted = config.node_port_addresses
    if config.mode != "iptables" or not config.iptables.localhost_node_ports or wanted == (rules.PRIMARY,):
        return False
    ours = [n for n in (ipaddress.ip_network(w, strict=False) for w in wanted) if n.version == 4]
    return not ours or any(n.overlaps(ipaddress.ip_network("127.0.0.0/8")) for n in ours)


def _counters() -> tuple[str, ...]:
    wanted: Sequence[str] = (INVALID_DROPPED, LOCALHOST_ACCEPTED)
    return tuple(wanted) if all(nfacct.ensure(name) for name in wanted) else ()


def _service_health(family: Family, health: Health, events: Events) -> ServiceHealth:
    async def failed(service: ServiceName, reason: str) -> None:
        await events.on_service(service, "FailedToStartServiceHealthcheck", reason)

    return ServiceHealth(family, lambda: health.healthy(asyncio.get_running_loop().time()), failed)

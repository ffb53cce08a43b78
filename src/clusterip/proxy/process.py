"""The proxy as a process: starts its parts, ends them on a signal."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Never

import msgspec

from clusterip import __version__
from clusterip.client import kubeconfig
from clusterip.client.api import Api
from clusterip.client.gc import tune_gc
from clusterip.client.kubeconfig import Connection
from clusterip.client.mirror import Mirror, Watched
from clusterip.errors import ClusterIPError
from clusterip.model.objects import EndpointSlice, Node, Service
from clusterip.model.resources import ENDPOINT_SLICES, NODES, SERVICES
from clusterip.proxy import build, configfile, gates, leftovers, node, prepare, rules, service_cidrs, sockets
from clusterip.proxy.config import ProxyConfig
from clusterip.proxy.events import Events
from clusterip.proxy.health import Health
from clusterip.proxy.loop import Loop
from clusterip.proxy.metrics import Metrics
from clusterip.proxy.parts import Settings
from clusterip.proxy.passage import WAY, Passage
from clusterip.proxy.reload import Moved, Reload, concerns
from clusterip.proxy.servers import Told, health_app, metrics_app, serve
from clusterip.services.resolve import HEADLESS_LABEL, PROXY_NAME_LABEL

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What is on the command line besides the configuration."""

    master: str = ""  # the API server's URL; it wins over the kubeconfig's
    config_file: str = ""  # followed: `reload`
    read: Callable[[], ProxyConfig] | None = None  # that file, completed, with the flags that count beside it
    init_only: bool = False


async def run(config: ProxyConfig, options: Options) -> None:
    """Until SIGTERM or SIGINT. The rules stay, so that connections go on while nobody is here.

    Raises ClusterIPError for what makes going on pointless.
    """
    connection = Connection(server="") if options.init_only else _connection(config, options)
    prepare.spare_from_oom(config.oom_score_adj)
    await asyncio.to_thread(prepare.prepare_conntrack, config)
    if build.serves_loopback(config):
        await asyncio.to_thread(prepare.route_localnet)
    if options.init_only:
        return
    tune_gc()
    ourselves = asyncio.current_task()
    assert ourselves is not None, "a coroutine runs in a task"
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ourselves.cancel)
    try:
        await _work(config, options, connection)
    except asyncio.CancelledError:
        ourselves.uncancel()
        log.info("proxy.process.ended")
    except BaseExceptionGroup as group:
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    """Of errors that came together one is told, and one that is meant for people rather than another."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    for_people = error.subgroup(ClusterIPError)
    return _first((for_people or error).exceptions[0])


async def _work(config: ProxyConfig, options: Options, connection: Connection) -> None:
    name = config.hostname_override.strip().lower() or socket.gethostname().lower()
    async with Api(connection, user_agent=f"kube-proxy/v1.36.0 clusterip/{__version__}") as api:
        events = Events(api, name)
        reload = Reload(config, options.read or (lambda: config), options.config_file, events)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload.hang_up)
        ours = await node.find(api, name, config)
        passage = Passage(config.ebpf.directory)
        reload.waits = await passage.obstacle("", config.mode, tuple)
        if reload.waits:
            log.info("proxy.mode.follows mode=%s now=%s waits=%r", config.mode, WAY, reload.waits)
            config = msgspec.structs.replace(config, mode=WAY)
        config, opened = await sockets.settle(config)
        reload.config = config
        machine = await build.look(config, ours, opened)
        health = Health(machine.families, rules.mode_section(config).sync_period)
        metrics = Metrics(gates.settings(config.feature_gates), machine.counters, config.mode)
        for family in machine.families:
            metrics.start_family(family)
        mirror = Mirror(api, (*watched(name), *await service_cidrs.watched(api)))
        cidrs = partial(service_cidrs.known, mirror.view)
        families = build.families(config, machine, cidrs, health, events)
        others = leftovers.Leftovers(config.ebpf.directory, node.node_ips(config, ours))
        await others.yield_to(config.mode)
        loop = Loop(mirror, families, health, metrics, _settings(config, name, ours), others)

        async def hand_over(asked: ProxyConfig) -> None:
            nonlocal machine
            found = await build.look_again(asked, machine)
            made = build.families(asked, found, cidrs, health, events, loop.parts)
            await loop.move(build.target(asked, found, made))
            machine = found
            if asked.mode == "ipvs":
                await _warn_of_ipvs(events)

        async def move(asked: ProxyConfig) -> Moved:
            """One step of it; what waits is asked for again."""
            waits = await passage.obstacle(reload.config.mode, asked.mode, loop.entries)
            step = msgspec.structs.replace(asked, mode=WAY) if waits else asked
            if waits and not reload.waits:
                await build.able(asked)  # or the wait would be for nothing
            if concerns(reload.config, step):
                await hand_over(step)
            return Moved(step, waits)

        told = Told(
            lambda: reload.config.mode,
            lambda: configfile.to_document(reload.config),
            lambda: {**loop.status(), "configuration": reload.status()},
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(mirror.run(), name="mirror")
            tasks.create_task(loop.run(), name="loop")
            tasks.create_task(events.on_node("Starting"), name="event")
            if config.mode == "ipvs":
                tasks.create_task(_warn_of_ipvs(events), name="deprecation")
            for server in _servers(config, (health, metrics), told, events):
                tasks.create_task(server)
            tasks.create_task(reload.run(move), name="reload")


async def _warn_of_ipvs(events: Events) -> None:
    log.error("proxy.mode.deprecated mode=ipvs hint='use mode nftables'")
    said = "Kubernetes has deprecated the IPVS mode: use mode nftables"
    await events.on_node("IPVSDeprecation", said, warning=True)


def watched(name: str) -> tuple[Watched, ...]:
    """All that the proxy of node `name` reads."""
    return (
        Watched(SERVICES, Service, label_selector=f"!{PROXY_NAME_LABEL}", field_selector="spec.clusterIP!=None"),
        Watched(ENDPOINT_SLICES, EndpointSlice, label_selector=f"!{HEADLESS_LABEL}"),
        Watched(NODES, Node, field_selector=f"metadata.name={name}"),
    )


def _settings(config: ProxyConfig, name: str, ours: Node | None) -> Settings:
    return Settings(
        node=name,
        mode=config.mode,
        min_sync_period=rules.mode_section(config).min_sync_period,
        sync_period=rules.mode_section(config).sync_period,
        pod_ranges=node.pod_ranges(ours) if config.detect_local_mode == "NodeCIDR" else None,
    )


def _connection(config: ProxyConfig, options: Options) -> Connection:
    path = config.client_connection.kubeconfig
    if options.master:
        known = kubeconfig.load(path) if path else Connection(server="")
        return replace(known, server=options.master.rstrip("/"))
    return kubeconfig.load(path) if path else kubeconfig.in_cluster()


def _servers(
    config: ProxyConfig, measured: tuple[Health, Metrics], told: Told, events: Events
) -> Iterator[Coroutine[None, None, Never]]:
    health, metrics = measured
    hard, now = config.bind_address_hard_fail, asyncio.get_running_loop().time

    async def no_health(reason: str) -> None:
        await events.on_node("FailedToStartProxierHealthcheck", reason, warning=True)

    async def no_metrics(reason: str) -> None:
        await events.on_node("FailedToStartMetricServer", reason, warning=True)

    if config.healthz_bind_address:
        yield serve(config.healthz_bind_address, health_app(health, metrics), hard_fail=hard, failed=no_health)
    if config.metrics_bind_address:
        app = metrics_app(told, metrics, lambda: health.healthy(now()))
        yield serve(config.metrics_bind_address, app, hard_fail=hard, failed=no_metrics)

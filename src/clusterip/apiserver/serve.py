"""The process: opens the store, writes the cluster's first objects, listens, and ends cleanly."""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import signal
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn

from clusterip.allocation.bands import Network
from clusterip.allocation.pool import PortPool
from clusterip.allocation.pools import FAMILIES, Pools
from clusterip.apiserver.app import App
from clusterip.apiserver.auth import Tokens, load_tokens
from clusterip.apiserver.bootstrap import EVERY, Advertised, Bootstrap
from clusterip.apiserver.cidrs import keep_service_cidrs
from clusterip.apiserver.documents import Decoded
from clusterip.apiserver.events import keep_forgetting
from clusterip.apiserver.fixed import Fixed
from clusterip.apiserver.metrics import Metrics
from clusterip.apiserver.nodes import Access, Nodes
from clusterip.apiserver.proxy import Proxy
from clusterip.apiserver.race import race
from clusterip.apiserver.ranges import Ranges
from clusterip.apiserver.registry import Registry
from clusterip.apiserver.repair import keep_repairing
from clusterip.apiserver.services import Services
from clusterip.apiserver.verbs import Verbs
from clusterip.errors import BadInput, ClusterIPError, Unavailable
from clusterip.store.base import Store
from clusterip.store.memory import MemoryStore
from clusterip.store.sqlite import open_store

log = logging.getLogger("clusterip.apiserver")

GRACE = 3  # seconds that requests under way have when the server ends


@dataclass(frozen=True, slots=True)
class Settings:
    cidrs: tuple[Network, ...]  # of Services, the primary family first
    data_dir: Path | None  # None: in memory
    advertised: Advertised
    node_ports: tuple[int, int] = (30000, 32767)  # both included
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tokens: Path | None = None
    nodes: Access = field(default_factory=Access)
    deny_external_ips: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    app: App
    registry: Registry
    bootstrap: Bootstrap


@asynccontextmanager
async def assembled(settings: Settings) -> AsyncIterator[Parts]:
    """Everything but the sockets, ready to answer."""
    store: Store = MemoryStore()
    if settings.data_dir is not None:
        store = await open_store(settings.data_dir / "store.db")
    metrics = Metrics()
    pools = Pools(PortPool(*settings.node_ports))
    metrics.show(pools)
    families = tuple(FAMILIES[cidr.version] for cidr in settings.cidrs)
    services = Services(pools, families, metrics, settings.deny_external_ips)
    registry = Registry(store, services, Ranges(store, pools))
    bootstrap = Bootstrap(registry, settings.cidrs, settings.advertised)
    tokens = load_tokens(settings.tokens) if settings.tokens else Tokens({})
    try:
        await registry.ranges.load()
        await bootstrap.run()
        async with Nodes(registry, settings.nodes) as nodes:
            app = App(
                registry=registry,
                verbs=Verbs(registry, time.time),
                fixed=Fixed(metrics, f"{settings.advertised.address}:{settings.advertised.port}"),
                nodes=nodes,
                proxy=Proxy(registry, nodes),
                tokens=tokens,
                metrics=metrics,
                stopping=asyncio.Event(),
                decoded=Decoded(),
            )
            yield Parts(app, registry, bootstrap)
    finally:
        await store.close()


async def serve(settings: Settings, sockets: list[socket.socket]) -> None:
    """Until SIGTERM or SIGINT. Raises BadInput, Unavailable."""
    _check(settings, sockets)
    # Large lists make many objects that all live on: with the default thresholds most of the time goes into looking
    # for garbage among them.
    gc.set_threshold(50_000, 20, 100)
    async with assembled(settings) as parts:
        server = Server(configured(parts.app, settings), parts.app.stopping)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        gc.freeze()
        for one in sockets:
            log.info("apiserver.listening address=%s tls=%s", one.getsockname(), settings.tls_cert is not None)
        await race(
            _until_stopped(stop, parts.app),
            server.serve(sockets),
            _keep_bootstrapped(parts.bootstrap),
            keep_service_cidrs(parts.registry),
            keep_repairing(parts.registry),
            keep_forgetting(parts.registry),
        )
    log.info("apiserver.ended")


class Server(uvicorn.Server):
    """Serves until `stopping` is set, and ends as soon as nothing is under way: uvicorn's own looks every 0.1 s."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    async def main_loop(self) -> None:
        while not self._stopping.is_set():
            await self.on_tick(0)  # the Date of answers
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        for _ in range(GRACE * 100):
            if not (self.server_state.connections or self.server_state.tasks):
                return
            await asyncio.sleep(0.01)
        for task in self.server_state.tasks:
            task.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Ours: uvicorn's would raise the signal again when all is done, and the exit status would be the signal's."""
        yield


async def _until_stopped(stop: asyncio.Event, app: App) -> None:
    """Ends every watch, then lets the server finish what is under way; `serve` returns by itself, or is cut off."""
    await stop.wait()
    app.stopping.set()
    await asyncio.sleep(GRACE + 1)


async def _keep_bootstrapped(bootstrap: Bootstrap) -> None:
    while True:
        await asyncio.sleep(EVERY)
        try:
            await bootstrap.run()
        except ClusterIPError as error:
            log.warning("apiserver.bootstrap.failed error=%s", error.message)


def _worth_saying(record: logging.LogRecord) -> bool:
    """Not that: uvicorn says it of every WebSocket that was refused, although the refusal has been sent."""
    return record.msg != "ASGI callable returned without completing handshake."


def configured(app: App, settings: Settings) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        loop="none",
        http="httptools",
        ws="websockets-sansio",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        timeout_keep_alive=90,
        ws_max_size=16 << 20,
    )
    config.load()
    logging.getLogger("uvicorn.error").addFilter(_worth_saying)
    if settings.tls_cert:
        config.ssl = _tls(settings.tls_cert, settings.tls_key)
    return config


def _tls(cert: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise BadInput(f"TLS certificate {cert} with key {key}: cannot be used, {error}") from error
    return context


def _check(settings: Settings, sockets: list[socket.socket]) -> None:
    """Without TLS or without tokens the server only talks to its own machine."""
    if not sockets:
        raise BadInput("apiserver: no address to listen on", "give --listen 127.0.0.1:6443")
    if settings.tls_cert and settings.tokens:
        return
    for one in sockets:
        host = one.getsockname()[0]
        if not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
            missing = "TLS" if not settings.tls_cert else "tokens"
            raise BadInput(
                f"apiserver: {host} is not a loopback address, and there is no {missing}",
                "give --tls-cert-file, --tls-private-key-file and --token-auth-file, or listen on 127.0.0.1",
            )


def bound(address: str, port: int) -> socket.socket:
    """A listening socket. Raises Unavailable."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    # Protocol named: asyncio sets TCP_NODELAY only where it reads TCP, and else the body of an answer waits 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise Unavailable(f"apiserver: cannot listen on {address}:{port}: {error.strerror}") from error
    return listener

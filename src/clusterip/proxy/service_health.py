"""The servers on health check node ports: they tell a load balancer whether this node has a backend of the Service.

Any path is answered: 200 while ready backends are here and the proxy is well, else 503. Source: kube-proxy 1.36.
"""

import ipaddress
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web

from clusterip.proxy.health import HEADERS, Answer
from clusterip.services.table import Entry, Family
from clusterip.services.tracker import ServiceName

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    service: ServiceName
    endpoints: int  # addresses ready on this node, each once over all ports


def checks(entries: Iterable[Entry]) -> dict[int, Check]:
    """Health check node port -> what it answers for. Pure."""
    found: dict[int, tuple[ServiceName, set[str]]] = {}
    for entry in entries:
        if entry.health_check_node_port:
            name = ServiceName(entry.name.namespace, entry.name.service)
            found.setdefault(entry.health_check_node_port, (name, set()))[1].update(entry.local_ready)
    return {port: Check(name, len(addresses)) for port, (name, addresses) in found.items()}


def answer(check: Check, proxy_healthy: bool) -> Answer:
    body = {
        "service": {"namespace": check.service.namespace, "name": check.service.name},
        "localEndpoints": check.endpoints,
        "serviceProxyHealthy": proxy_healthy,
    }
    return Answer(200 if check.endpoints and proxy_healthy else 503, body)


class ServiceHealth:
    """One family's servers; one a port, on all addresses given. Owned by the loop."""

    def __init__(
        self,
        family: Family,
        healthy: Callable[[], bool],
        failed: Callable[[ServiceName, str], Awaitable[None]],
    ) -> None:
        """`failed` is told of a Service whose port could not be opened; the next update tries again."""
        self._family = family
        self._healthy = healthy
        self._failed = failed
        self._checks: dict[int, Check] = {}
        self._runners: dict[int, web.ServerRunner] = {}

    def __repr__(self) -> str:
        return f"ServiceHealth({self._family} ports={sorted(self._runners)} wanted={sorted(self._checks)})"

    @property
    def unopened(self) -> bool:
        return self._checks.keys() != self._runners.keys()

    async def update(self, wanted: Mapping[int, Check], addresses: Sequence[str] | None) -> None:
        """Open and close ports until these are answered. `addresses` None: all of the node's."""
        self._checks = dict(wanted)
        for port in self._runners.keys() - wanted.keys():
            await self._runners.pop(port).cleanup()
        for port in wanted.keys() - self._runners.keys():
            await self._open(port, addresses)

    async def close(self) -> None:
        await self.update({}, None)

    async def _open(self, port: int, addresses: Sequence[str] | None) -> None:
        check = self._checks[port]

        async def handle(_: web.BaseRequest) -> web.StreamResponse:
            return self._respond(port)

        runner = web.ServerRunner(web.Server(handle, access_log=None), handle_signals=False)
        await runner.setup()
        hosts = addresses if addresses is not None else ("::" if self._family == "IPv6" else "0.0.0.0",)  # noqa: S104
        try:
            for host in hosts:
                await web.SockSite(runner, listen(host, port)).start()
        except OSError as error:
            await runner.cleanup()
            reason = f"cannot listen on health check node port {port}: {error.strerror}"
            log.warning("proxy.service_health.failed service=%s/%s reason=%r", *check.service, reason)
            await self._failed(check.service, reason)
        else:
            self._runners[port] = runner

    def _respond(self, port: int) -> web.Response:
        found = answer(self._checks[port], self._healthy())
        weight = {"X-Load-Balancing-Endpoint-Weight": str(found.body["localEndpoints"])}
        return web.Response(status=found.code, body=json.dumps(found.body).encode(), headers={**HEADERS, **weight})


def listen(host: str, port: int, dual_stack: bool = False) -> socket.socket:
    """A listening TCP socket. `dual_stack`: on "::" it takes IPv4, too. Raises OSError."""
    if ipaddress.ip_address(host).version == 6:
        both = dual_stack and host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server((host, port), family=socket.AF_INET6, backlog=128, dualstack_ipv6=both)
    return socket.create_server((host, port), backlog=128)

"""What /metrics says, under kube-apiserver's names (conformance 2.10)."""

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from clusterip.allocation.pool import Address
from clusterip.allocation.pools import Hold, Pools
from clusterip.model.status import ApiError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_IPS = "kube_apiserver_clusterip_allocator"
_PORTS = "kube_apiserver_nodeport_allocator"


class Metrics:
    """One set for one server."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "apiserver_request", "Requests by what they asked for and how it ended.", ("verb", "resource", "code"),
            registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "apiserver_request_duration_seconds", "Time to answer, watches and streams apart.", ("verb", "resource"),
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.watches = Gauge(
            "apiserver_longrunning_requests", "Watches and streams open now.", ("verb", "resource"), registry=registry
        )
        self._ips = Counter(f"{_IPS}_allocation", "ClusterIPs given.", ("cidr", "scope"), registry=registry)
        self._ip_errors = Counter(
            f"{_IPS}_allocation_errors", "ClusterIPs that could not be given.", ("cidr", "scope"), registry=registry
        )
        self._ip_seconds = Histogram(
            f"{_IPS}_allocation_duration_seconds", "Time to choose a ClusterIP.", ("cidr",), registry=registry
        )
        self._ports = Counter(f"{_PORTS}_allocation", "Node ports given.", ("scope",), registry=registry)
        self._port_errors = Counter(
            f"{_PORTS}_allocation_errors", "Node ports that could not be given.", ("scope",), registry=registry
        )
        self.ip_repairs = Counter(
            "apiserver_clusterip_repair_ip_errors", "ClusterIPs found wrong.", ("type",), registry=registry
        )
        self.port_repairs = Counter(
            "apiserver_nodeport_repair_port_errors", "Node ports found wrong.", ("type",), registry=registry
        )
        self.ip_repair_failures = Counter(
            "apiserver_clusterip_repair_reconcile_errors", "Repairs of ClusterIPs that failed.", registry=registry
        )
        self.port_repair_failures = Counter(
            "apiserver_nodeport_repair_reconcile_errors", "Repairs of node ports that failed.", registry=registry
        )

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def show(self, pools: Pools) -> None:
        """Reads the pools whenever somebody asks."""
        self._registry.register(_Usage(pools))

    @contextmanager
    def allocating(self, pools: Pools) -> Iterator[None]:
        """Around the choice of addresses and ports."""
        first = next((str(pool.cidr) for pool in pools.addresses), "")
        try:
            with self._ip_seconds.labels(first).time():
                yield
        except ApiError as error:
            scope = "static" if error.code == 422 else "dynamic"
            if "erviceIP" in error.message or "clusterIP" in error.message:
                self._ip_errors.labels(first, scope).inc()
            else:
                self._port_errors.labels(scope).inc()
            raise

    def allocated(self, hold: Hold, dynamic: frozenset[Address | int], pools: Pools) -> None:
        for address in hold.take_addresses:
            cidr = next((str(pool.cidr) for pool in pools.addresses if address in pool.cidr), "")
            self._ips.labels(cidr, "dynamic" if address in dynamic else "static").inc()
        for port in hold.take_ports:
            self._ports.labels("dynamic" if port in dynamic else "static").inc()


class _Usage:
    """Collector of how full the pools are."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    def collect(self) -> Iterator[Metric]:
        used = GaugeMetricFamily(f"{_IPS}_allocated_ips", "ClusterIPs in use.", labels=("cidr",))
        free = GaugeMetricFamily(f"{_IPS}_available_ips", "ClusterIPs free.", labels=("cidr",))
        for pool in self._pools.addresses:
            used.add_metric((str(pool.cidr),), pool.used)
            free.add_metric((str(pool.cidr),), pool.available)
        yield used
        yield free
        yield GaugeMetricFamily(f"{_PORTS}_allocated_ports", "Node ports in use.", value=self._pools.ports.used)
        yield GaugeMetricFamily(f"{_PORTS}_available_ports", "Node ports free.", value=self._pools.ports.available)

"""kube-proxy's metrics, by its names. Source: kube-proxy 1.36, iptables mode."""

import platform
from collections.abc import Iterable, Iterator, Mapping

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric

from clusterip import __version__
from clusterip.kernel import nfacct
from clusterip.proxy.gates import GATES
from clusterip.services.table import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
INVALID_DROPPED, LOCALHOST_ACCEPTED = "ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts"

_SYNC = tuple(0.001 * 2**k for k in range(15))
_PROGRAMMING = (0.25, 0.5, *range(1, 60), *range(60, 120, 5), *range(120, 301, 30))
_FAMILY = ("ip_family",)

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # kube-proxy has no _created series


class NfacctCollector:
    """Reads the kernel's packet counters when somebody asks."""

    names: Mapping[str, tuple[str, str]] = {
        INVALID_DROPPED: (
            "kubeproxy_iptables_ct_state_invalid_dropped_packets_total",
            "packets dropped by iptables to work around conntrack problems",
        ),
        LOCALHOST_ACCEPTED: (
            "kubeproxy_iptables_localhost_nodeports_accepted_packets_total",
            "packets accepted on node ports of the loopback interface",
        ),
    }

    def __init__(self, counters: Iterable[str]) -> None:
        self._counters = tuple(counters)

    def collect(self) -> Iterator[Metric]:
        for counter in self._counters:
            found = nfacct.read(counter)
            if found is not None:
                name, text = self.names[counter]
                yield CounterMetricFamily(name, text, value=found.packets)


class Metrics:
    def __init__(self, gates: Mapping[str, bool], nfacct_counters: Iterable[str] = (), mode: str = "iptables") -> None:
        self.registry = CollectorRegistry()
        self.slis = CollectorRegistry()
        self.duration = self.histogram("sync_proxy_rules_duration_seconds", "time of a sync", _SYNC)
        self.full = self.histogram("sync_full_proxy_rules_duration_seconds", "time of a full sync", _SYNC)
        self.partial = self.histogram("sync_partial_proxy_rules_duration_seconds", "time of a partial sync", _SYNC)
        self.programming = self.histogram(
            "network_programming_duration_seconds", "from a change of endpoints to the kernel", _PROGRAMMING
        )
        self.last = self.gauge("sync_proxy_rules_last_timestamp_seconds", "when a sync last succeeded", _FAMILY)
        self.queued = self.gauge("sync_proxy_rules_last_queued_timestamp_seconds", "when a sync was queued", _FAMILY)
        self.endpoints_pending = self.gauge("sync_proxy_rules_endpoint_changes_pending", "not yet programmed")
        self.services_pending = self.gauge("sync_proxy_rules_service_changes_pending", "not yet programmed")
        self.endpoints_total = self.counter("sync_proxy_rules_endpoint_changes_total", "changes of endpoints")
        self.services_total = self.counter("sync_proxy_rules_service_changes_total", "changes of Services")
        self._programs = _series(self, mode)
        self.no_local = self.gauge(
            "sync_proxy_rules_no_local_endpoints_total",
            "Service ports with a Local policy and no endpoint here",
            ("traffic_policy", *_FAMILY),
        )
        self.healthz = Counter("proxy_healthz", "answers of /healthz", ("code",), "kubeproxy", registry=self.registry)
        self.livez = Counter("proxy_livez", "answers of /livez", ("code",), "kubeproxy", registry=self.registry)
        self.conntrack = self.histogram("conntrack_reconciler_sync_duration_seconds", "time of a clean-up", _SYNC)
        self.conntrack_deleted = self.counter("conntrack_reconciler_deleted_entries_total", "flows ended", _FAMILY)
        self.well = Gauge("kubernetes_healthcheck", "1: well", ("name", "type"), registry=self.slis)
        self._about(gates)
        self._packets: NfacctCollector | None = None
        self._count_packets(nfacct_counters)

    def serve(self, mode: str, nfacct_counters: Iterable[str], families: Iterable[Family]) -> None:
        """Another dataplane has taken over: the series that there are in its mode alone, and not those of the last."""
        for collector in self._programs.collectors:
            self.registry.unregister(collector)
        self._programs = _series(self, mode)
        self._count_packets(nfacct_counters)
        for family in families:
            for counter in (*self._programs.failures, self.conntrack_deleted):
                counter.labels(family)

    def _count_packets(self, nfacct_counters: Iterable[str]) -> None:
        if self._packets is not None:
            self.registry.unregister(self._packets)
        self._packets, counters = None, tuple(nfacct_counters)
        if counters:
            self._packets = NfacctCollector(counters)
            self.registry.register(self._packets)

    def start_family(self, family: Family) -> None:
        """Series that never counted anything are there with 0, as a rate needs them."""
        for counter in (*self._programs.failures, self.conntrack_deleted):
            counter.labels(family)
        for policy in ("internal", "external"):
            self.no_local.labels(policy, family).set(0)

    def sync_failed(self, family: Family, full: bool) -> None:
        self._programs.failed(family, full)

    def wrote(self, family: Family, total: Mapping[str, int], written: Mapping[str, int]) -> None:
        """What is in the kernel now, and what the last sync wrote, by table."""
        self._programs.wrote(family, total, written)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    def sli_text(self) -> bytes:
        return generate_latest(self.slis)

    def _about(self, gates: Mapping[str, bool]) -> None:
        ProcessCollector(registry=self.registry)
        build = Gauge(
            "kubernetes_build_info",
            "what this is",
            ("git_version", "go_version", "platform"),
            registry=self.registry,
        )
        build.labels(f"v1.36.0+clusterip.{__version__}", f"python{platform.python_version()}", "linux").set(1)
        enabled = Gauge("kubernetes_feature_enabled", "feature gates", ("name", "stage"), registry=self.registry)
        for name, on in gates.items():
            enabled.labels(name, GATES[name].stage).set(int(on))

    def histogram(self, name: str, text: str, buckets: Iterable[float]) -> Histogram:
        return Histogram(name, text, _FAMILY, "kubeproxy", buckets=tuple(buckets), registry=self.registry)

    def gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(name, text, labels, "kubeproxy", registry=self.registry)

    def counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(name, text, labels, "kubeproxy", registry=self.registry)


class _IPTablesSeries:
    """Those that there are in iptables and IPVS mode alone."""

    def __init__(self, of: Metrics) -> None:
        all_failures = of.counter("sync_proxy_rules_iptables_restore_failures_total", "failed syncs", _FAMILY)
        partial_failures = of.counter(
            "sync_proxy_rules_iptables_partial_restore_failures_total", "failed partial syncs", _FAMILY
        )
        self.failures = (all_failures, partial_failures)
        self.rules = of.gauge("sync_proxy_rules_iptables_total", "rules we own", ("table", *_FAMILY))
        self.written = of.gauge("sync_proxy_rules_iptables_last", "rules of the last sync", ("table", *_FAMILY))
        self.collectors = (*self.failures, self.rules, self.written)

    def failed(self, family: Family, full: bool) -> None:
        for counter in self.failures[: 1 if full else 2]:
            counter.labels(family).inc()

    def wrote(self, family: Family, total: Mapping[str, int], written: Mapping[str, int]) -> None:
        for gauge, counts in ((self.rules, total), (self.written, written)):
            for table, count in counts.items():
                gauge.labels(table, family).set(count)


class _NFTablesSeries:
    """Those that there are in nftables mode alone."""

    def __init__(self, of: Metrics) -> None:
        self.failures = (of.counter("sync_proxy_rules_nftables_sync_failures_total", "failed syncs", _FAMILY),)
        self.collectors = self.failures

    def failed(self, family: Family, _full: bool) -> None:
        self.failures[0].labels(family).inc()

    def wrote(self, _family: Family, _total: Mapping[str, int], _written: Mapping[str, int]) -> None:
        """kube-proxy counts no rules in this mode."""


def _series(of: Metrics, mode: str) -> _IPTablesSeries | _NFTablesSeries:
    return _IPTablesSeries(of) if mode in ("iptables", "ipvs") else _NFTablesSeries(of)

"""What the controllers count, by Kubernetes' own names. Source: conformance 3.9."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from clusterip.controllers.loop import Report
from clusterip.controllers.writes import Create, Delete, Key, Update, Write
from clusterip.model.resources import ENDPOINT_SLICES

PER_SYNC = tuple(2.0 * 2**k for k in range(15))
SLICES, MIRRORED = "endpoint_slice_controller_", "endpoint_slice_mirroring_controller_"
_PER_SYNC_METRICS = (  # metric, figure, what it counts
    ("endpoints_added_per_sync", "added", "Endpoints added"),
    ("endpoints_updated_per_sync", "updated", "Endpoints changed"),
    ("endpoints_removed_per_sync", "removed", "Endpoints removed"),
    ("addresses_skipped_per_sync", "skipped", "Addresses left out"),
)
_TOTALS = (
    ("endpoints_desired", "endpoints", "Endpoints wanted"),
    ("num_endpoint_slices", "slices", "Slices there are"),
    ("desired_endpoint_slices", "least_slices", "Slices there would be if all were packed as tightly as can be"),
)
_WORDS: dict[type[Write], str] = {Create: "create", Update: "update", Delete: "delete"}


class _SliceMetrics:
    """The family that both slice controllers have, each under its prefix."""

    def __init__(self, prefix: str, registry: CollectorRegistry, per_sync: Sequence[str]) -> None:
        self._per_sync = {
            name: Histogram(f"{prefix}{metric}", f"{what} in a sync", buckets=PER_SYNC, registry=registry)
            for metric, name, what in _PER_SYNC_METRICS
            if name in per_sync
        }
        self._gauges = {name: Gauge(f"{prefix}{metric}", what, registry=registry) for metric, name, what in _TOTALS}
        self._changes = Counter(f"{prefix}changes", "Slices written", ("operation",), registry=registry)
        self._totals: dict[Key, Mapping[str, float]] = {}

    def note(self, report: Report) -> None:
        figures = report.plan.figures
        before = self._totals.pop(report.key, {})
        if figures:
            self._totals[report.key] = figures
        for name, gauge in self._gauges.items():
            gauge.inc(figures.get(name, 0) - before.get(name, 0))
        for name, histogram in self._per_sync.items():
            histogram.observe(figures.get(name, 0))
        for write in slice_writes(report.plan.writes):
            self._changes.labels(_WORDS[type(write)]).inc()


class Metrics:
    """`report` is given to the loop."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._rounds = Counter(
            "clusterip_controllers_rounds", "Keys planned and written", ("controller", "result"), registry=self.registry
        )
        self._seconds = Histogram(
            "clusterip_controllers_round_seconds", "Time of a round", ("controller",), registry=self.registry
        )
        self._slices = _SliceMetrics(SLICES, self.registry, ("added", "removed"))
        self._mirrored = _SliceMetrics(MIRRORED, self.registry, ("added", "updated", "removed", "skipped"))
        self._mirror_seconds = Histogram(
            f"{MIRRORED}endpoints_sync_duration", "Seconds of a sync", registry=self.registry
        )
        self._syncs = Counter(f"{SLICES}syncs", "Syncs of a Service", ("result",), registry=self.registry)
        self._changed = Histogram(
            f"{SLICES}endpointslices_changed_per_sync",
            "Slices written in a sync",
            ("topology", "traffic_distribution"),
            buckets=PER_SYNC,
            registry=self.registry,
        )
        self._services = Gauge(
            f"{SLICES}services_count_by_traffic_distribution",
            "Services by spec.trafficDistribution",
            ("traffic_distribution",),
            registry=self.registry,
        )
        self._distribution: dict[Key, str] = {}

    def report(self, report: Report) -> None:
        self._rounds.labels(report.controller, report.outcome).inc()
        self._seconds.labels(report.controller).observe(report.seconds)
        match report.controller:
            case "endpointslice":
                self._note_service(report)
            case "endpointslice-mirroring":
                self._mirrored.note(report)
                self._mirror_seconds.observe(report.seconds)
            case _:
                pass

    def text(self) -> bytes:
        """In the Prometheus exposition format."""
        return generate_latest(self.registry)

    def _note_service(self, report: Report) -> None:
        self._syncs.labels(report.outcome).inc()
        self._slices.note(report)
        notes = report.plan.notes
        before = self._distribution.pop(report.key, None)
        if before is not None:
            self._services.labels(before).dec()
        if notes:
            distribution = self._distribution[report.key] = notes["traffic_distribution"]
            self._services.labels(distribution).inc()
            written = sum(1 for _ in slice_writes(report.plan.writes))
            self._changed.labels(notes["topology"], distribution).observe(written)


def slice_writes(writes: Iterable[Write]) -> Iterator[Create | Update | Delete]:
    return (
        write for write in writes if isinstance(write, Create | Update | Delete) and write.resource is ENDPOINT_SLICES
    )

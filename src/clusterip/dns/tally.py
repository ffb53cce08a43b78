"""What the server did, counted with plain integers on the way and told to Prometheus when it asks."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

RCODES = {0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}


class Tally:
    def __init__(self) -> None:
        self.udp = 0
        self.tcp = 0
        self._rcodes = [0] * 16

    def __repr__(self) -> str:
        return f"Tally({self.udp} over UDP, {self.tcp} over TCP, {sum(self._rcodes)} replies)"

    def replied(self, reply: bytes) -> None:
        self._rcodes[reply[3] & 15] += 1

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily

        requests = CounterMetricFamily("clusterip_dns_requests", "Queries received.", labels=["proto"])
        requests.add_metric(["udp"], self.udp)
        requests.add_metric(["tcp"], self.tcp)
        yield requests
        responses = CounterMetricFamily("clusterip_dns_responses", "Replies sent.", labels=["rcode"])
        for number, name in RCODES.items():
            responses.add_metric([name], self._rcodes[number])
        yield responses


class Exposition:
    """The text that Prometheus reads: our tally, and what every Python process tells of itself."""

    def __init__(self, tally: Tally) -> None:
        from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry

        self._registry = CollectorRegistry()
        self._registry.register(PROCESS_COLLECTOR)
        self._registry.register(GC_COLLECTOR)
        self._registry.register(tally)

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self._registry)

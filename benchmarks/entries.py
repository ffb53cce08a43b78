"""Services 0, 1, 2 ... of ten backends each, as entries of the service table, and one change of each kind."""

from collections.abc import Sequence
from dataclasses import replace

from clusterip.services.table import Backend, Entry, PortName

BACKENDS = 10
PODS = "10.244.0.0/16"  # where clients are
NODE_IP = "192.168.50.11"


def entry(i: int, backends: Sequence[Backend] = ()) -> Entry:
    """`backends`: real ones, in place of addresses that nobody has."""
    made = backends or [
        Backend(f"10.{200 + i // 5000}.{i % 5000 // 20}.{1 + i % 20 * 12 + k}", 8080) for k in range(BACKENDS)
    ]
    return Entry(
        PortName("default", f"svc-{i:05}", "http"),
        "IPv4",
        "TCP",
        80,
        f"10.96.{1 + i // 250}.{i % 250}",
        cluster=tuple(sorted(made, key=str)),
        has_backends=True,
        known=len(made),
    )


def with_other_backend(before: Entry, turn: int) -> Entry:
    """The last one is another in every turn. It comes last by its text, so the others keep their places."""
    return replace(before, cluster=(*before.cluster[:-1], Backend(f"10.99.{turn // 250 % 250}.{1 + turn % 250}", 8080)))

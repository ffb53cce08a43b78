"""One Service over the backends of `pods`, by family and protocol."""

from tests.dataplane.ebpf.pods import four, six

from clusterip.services.table import Backend, Entry, Family, PortName, Protocol

VIP, VIP6, MAPPED = "10.96.0.20", "fd00:96::20", "::ffff:10.96.0.20"
FAMILIES: tuple[Family, ...] = ("IPv4", "IPv6")
PROTOCOLS: tuple[Protocol, ...] = ("TCP", "UDP")


def backends(family: Family, *pods: str) -> tuple[Backend, ...]:
    return tuple(Backend(six(p) if family == "IPv6" else four(p), 8080, True) for p in pods)


def entry(protocol: Protocol = "TCP", family: Family = "IPv4", pods: tuple[str, ...] = ("b1", "b2")) -> Entry:
    found = backends(family, *pods)
    return Entry(
        PortName("default", "web", protocol.lower()),
        family,
        protocol,
        80,
        VIP6 if family == "IPv6" else VIP,
        cluster=found,
        has_backends=bool(found),
        serving=found if protocol == "UDP" else (),
    )


def everywhere(pods: tuple[str, ...] = ("b1", "b2")) -> list[Entry]:
    return [entry(p, f, pods) for p in PROTOCOLS for f in FAMILIES]

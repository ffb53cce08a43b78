"""What we print of IPVS loads into the real ipvsadm, and what that saves and lists is read back the same."""

from collections.abc import Iterator

import pytest
from tests.spaces import fresh

from clusterip.kernel import links
from clusterip.kernel.run import run
from clusterip.rulesets import ipvs

pytestmark = pytest.mark.kernel

SERVICES = ipvs.Services(
    (
        ipvs.VirtualService(
            ipvs.Frontend("TCP", "10.96.0.20", 80),
            "rr",
            servers=(ipvs.RealServer("10.244.0.3", 80, weight=1), ipvs.RealServer("10.244.0.4", 8080, weight=0)),
        ),
        ipvs.VirtualService(
            ipvs.Frontend("UDP", "10.96.0.10", 53), "sh", servers=(ipvs.RealServer("10.244.0.5", 53, weight=3),)
        ),
        ipvs.VirtualService(ipvs.Frontend("TCP", "10.96.0.21", 443), "wlc", 10800, "255.255.255.255"),
    )
)


@pytest.fixture
def space() -> Iterator[str]:
    with fresh("ipvsadm") as name:
        yield name


def told(services: ipvs.Services) -> set[object]:
    return {
        (s.frontend, s.scheduler, s.persistent, frozenset((r.address, r.port, r.forward, r.weight) for r in s.servers))
        for s in services.services
    }


async def test_what_we_print_is_loaded_saved_and_listed_the_same(space: str) -> None:
    await links.configure(space, links.up("lo"))  # without any address the kernel takes each for a broadcast's
    await run(("ipvsadm", "-R"), stdin=ipvs.text(SERVICES).encode(), netns=space)
    for listing in ("-Sn", "-Ln"):
        printed = await run(("ipvsadm", listing), netns=space)
        reading = ipvs.read(printed.stdout.decode())
        assert reading.problems == ()
        assert told(reading.values) == told(SERVICES)

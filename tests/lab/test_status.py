"""How full the ranges are, told from objects."""

import pytest

from clusterip.lab.plan import Plan
from clusterip.lab.proxies import follows
from clusterip.lab.status import ApiLine, BandUse, ComponentLine, NodeLine, Report, band_use, document
from clusterip.model.objects import Service, ServicePort, ServiceSpec


def test_each_band_is_counted_by_itself() -> None:
    ports = (ServicePort(port=80, node_port=30005), ServicePort(port=81, node_port=31000), ServicePort(port=82))
    services = (Service(spec=ServiceSpec(ports=ports, health_check_node_port=32000)),)
    held = ["10.96.0.1", "10.96.0.10", "10.96.200.1", "fd00:96::1", "10.97.0.1", "fd00:97::1"]
    assert band_use(Plan(), held, services) == (
        BandUse("10.96.0.0/16", "static", 2, 254),
        BandUse("10.96.0.0/16", "dynamic", 1, 65277),
        BandUse("fd00:96::/112", "static", 1, 255),
        BandUse("fd00:96::/112", "dynamic", 0, 65279),
        BandUse("30000-32767", "static", 1, 85),
        BandUse("30000-32767", "dynamic", 2, 2680),
    )


def report(*, alive: bool = True, proxy_error: str = "") -> Report:
    component = ComponentLine("apiserver", alive, 4711, 0.0, 0, "")
    node = NodeLine("node-1", ("192.168.50.11", "fd00:50::11"), True, 3, {"mode": "iptables"}, proxy_error)
    return Report("test", True, (component,), None, "it does not answer", (node,))


def test_a_cluster_without_its_api_is_not_well() -> None:
    assert document(report())["well"] is False
    assert document(report())["api"] == {"error": "it does not answer"}


@pytest.mark.parametrize(("error", "well"), [("", True), ("nftables: no buffer space", False)])
def test_a_cluster_whose_kernel_refuses_a_sync_is_not_well(error: str, well: bool) -> None:
    node = NodeLine("node-1", ("192.168.50.11",), True, 3, {"mode": "nftables", "lastError": error})
    api = ApiLine("https://127.0.0.1:1", "7", 1, 1, 1, ())
    assert Report("test", True, (), api, "", (node,)).well is well
    assert error in node.trouble


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"lastSync": "2026-01-01T00:00:00Z", "revisions": {"Service": 12, "Node": 9}, "pending": False}, True),
        ({"lastSync": "2026-01-01T00:00:00Z", "revisions": {"Service": 11, "Node": 12}, "pending": False}, False),
        ({"lastSync": "2026-01-01T00:00:00Z", "revisions": {"Service": 12, "Node": 9}, "pending": True}, False),
        ({"lastSync": "", "revisions": {"Service": 12, "Node": 9}, "pending": False}, False),
        ({"lastSync": "2026-01-01T00:00:00Z", "revisions": {}}, False),
        ({}, False),
    ],
)
def test_a_proxy_follows_when_all_of_a_revision_is_in_its_kernel(told: dict[str, object], expected: bool) -> None:
    assert follows(told, "Service", 12) is expected

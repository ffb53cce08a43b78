"""How full the ranges are, told from objects."""

from clusterip.lab.plan import Plan
from clusterip.lab.status import BandUse, ComponentLine, NodeLine, Report, band_use, document
from clusterip.model.objects import Service, ServicePort, ServiceSpec


def test_each_band_is_counted_by_itself() -> None:
    ports = (ServicePort(port=80, node_port=30005), ServicePort(port=81, node_port=31000), ServicePort(port=82))
    services = (Service(spec=ServiceSpec(ports=ports, health_check_node_port=32000)),)
    held = ["10.96.0.1", "10.96.0.10", "10.96.200.1", "fd00:96::1", "10.97.0.1"]
    assert band_use(Plan(), held, services) == (
        BandUse("10.96.0.0/16", "static", 2, 254),
        BandUse("10.96.0.0/16", "dynamic", 1, 65277),
        BandUse("30000-32767", "static", 1, 85),
        BandUse("30000-32767", "dynamic", 2, 2680),
    )


def report(*, alive: bool = True, proxy_error: str = "") -> Report:
    component = ComponentLine("apiserver", alive, 4711, 0.0, 0, "")
    node = NodeLine("node-1", "192.168.50.11", True, 3, {"mode": "iptables"}, proxy_error)
    return Report("test", True, (component,), None, "it does not answer", (node,))


def test_a_cluster_without_its_api_is_not_well() -> None:
    assert document(report())["well"] is False
    assert document(report())["api"] == {"error": "it does not answer"}

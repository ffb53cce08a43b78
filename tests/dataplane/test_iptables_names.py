import pytest

from clusterip.dataplane.iptables.names import endpoint_chain, is_own_chain, service_digest
from clusterip.services.table import Backend, PortName, Protocol


@pytest.mark.parametrize(
    ("name", "protocol", "digest"),
    [
        (PortName("ns1", "svc1", "p80"), "TCP", "XPGD46QRK7WJZT7O"),
        (PortName("default", "kubernetes", "https"), "TCP", "NPX46M4PTMTKRN6Y"),
        (PortName("ns1", "svc1", ""), "TCP", "AQI2S6QIMU7PVVRP"),
        (PortName("kube-system", "kube-dns", "dns"), "UDP", "TCOU7JCQXEZGVUNU"),
        (PortName("kube-system", "kube-dns", "dns-tcp"), "TCP", "ERIFXISQEP7F7OF4"),
        (PortName("kube-system", "kube-dns", "metrics"), "TCP", "JD5MR3NA4I4DYORP"),
    ],
)
def test_a_service_ports_chains_have_kube_proxys_names(name: PortName, protocol: Protocol, digest: str) -> None:
    assert service_digest(name, protocol) == digest


@pytest.mark.parametrize(
    ("backend", "chain"),
    [
        (Backend("10.180.0.1", 80), "KUBE-SEP-SXIVWICOYRO3J4NJ"),
        (Backend("fd00:10:180::1", 80), "KUBE-SEP-OGYCNMB4EMRUSJ6N"),
    ],
)
def test_an_endpoints_chain_has_kube_proxys_name(backend: Backend, chain: str) -> None:
    assert endpoint_chain(PortName("ns1", "svc1", "p80"), "TCP", backend) == chain
    assert endpoint_chain(PortName("ns1", "svc1", "p80"), "TCP", backend._replace(local=True)) == chain


@pytest.mark.parametrize("chain", ["KUBE-SVC-X", "KUBE-SVL-X", "KUBE-EXT-X", "KUBE-FW-X", "KUBE-SEP-X"])
def test_chains_of_services_are_told_by_their_prefix(chain: str) -> None:
    assert is_own_chain(chain)


@pytest.mark.parametrize(
    "chain", ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FIREWALL", "KUBE-NODEPORTS", "SVC-X", "KUBE-FORWARD"]
)
def test_shared_chains_are_not_taken_for_a_services(chain: str) -> None:
    assert not is_own_chain(chain)

from ipaddress import ip_address, ip_network

import pytest

from clusterip.allocation.bands import address_bands, port_bands


@pytest.mark.parametrize(
    ("cidr", "usable", "static", "first_dynamic", "last"),
    [
        ("192.168.0.0/29", 6, 0, "192.168.0.1", "192.168.0.6"),
        ("10.0.0.0/28", 14, 0, "10.0.0.1", "10.0.0.14"),
        ("10.0.0.0/27", 30, 16, "10.0.0.17", "10.0.0.30"),
        ("10.0.0.0/26", 62, 16, "10.0.0.17", "10.0.0.62"),
        ("10.0.0.0/25", 126, 16, "10.0.0.17", "10.0.0.126"),
        ("10.0.0.0/24", 254, 16, "10.0.0.17", "10.0.0.254"),
        ("10.0.0.0/23", 510, 32, "10.0.0.33", "10.0.1.254"),
        ("10.0.0.0/22", 1022, 64, "10.0.0.65", "10.0.3.254"),
        ("10.0.0.0/21", 2046, 128, "10.0.0.129", "10.0.7.254"),
        ("10.0.0.0/20", 4094, 256, "10.0.1.1", "10.0.15.254"),
        ("10.96.0.0/16", 65534, 256, "10.96.1.1", "10.96.255.254"),
        ("10.96.0.0/12", 1048574, 256, "10.96.1.1", "10.111.255.254"),
        ("fd00::/124", 15, 0, "fd00::1", "fd00::f"),
        ("fd00::/123", 31, 16, "fd00::11", "fd00::1f"),
        ("fd00::/120", 255, 16, "fd00::11", "fd00::ff"),
        ("fd00::/112", 65535, 256, "fd00::101", "fd00::ffff"),
        ("fd00::/108", 1048575, 256, "fd00::101", "fd00::f:ffff"),
        ("fd00::/64", 2**64 - 1, 256, "fd00::101", "fd00::ffff:ffff:ffff:ffff"),
    ],
)
def test_the_bands_of_every_row_of_the_specification(
    cidr: str, usable: int, static: int, first_dynamic: str, last: str
) -> None:
    bands = address_bands(ip_network(cidr))
    assert bands.size == usable
    assert bands.first == int(ip_network(cidr).network_address) + 1
    assert bands.dynamic - bands.first == static
    assert (bands.dynamic, bands.last) == (int(ip_address(first_dynamic)), int(ip_address(last)))


@pytest.mark.parametrize(
    ("size", "static"), [(2768, 86), (16, 0), (17, 16), (512, 16), (600, 18), (1024, 32), (4096, 128), (20000, 128)]
)
def test_the_bands_of_node_ports(size: int, static: int) -> None:
    bands = port_bands(30000, 30000 + size - 1)
    assert (bands.dynamic - bands.first, bands.size) == (static, size)


def test_the_default_node_ports_are_static_up_to_30085() -> None:
    assert port_bands(30000, 32767).dynamic == 30086

from ipaddress import IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.allocation.pool import AddressPool, AlreadyTaken, NeverAllocated, OutOfRange, PortPool, RangeFull


def test_a_taken_address_is_refused() -> None:
    pool = AddressPool(ip_network("10.96.0.0/16"))
    pool.reserve(ip_address("10.96.0.10"))
    with pytest.raises(AlreadyTaken, match="provided IP is already allocated"):
        pool.reserve(ip_address("10.96.0.10"))


@pytest.mark.parametrize("address", ["10.97.0.1", "fd00::1"])
def test_an_address_of_elsewhere_is_refused(address: str) -> None:
    with pytest.raises(OutOfRange, match="does not match the current range"):
        AddressPool(ip_network("10.96.0.0/16")).reserve(ip_address(address))


@pytest.mark.parametrize(
    ("cidr", "address"),
    [("10.96.0.0/16", "10.96.0.0"), ("10.96.0.0/16", "10.96.255.255"), ("fd00::/112", "fd00::")],
)
def test_network_and_broadcast_addresses_are_never_given(cidr: str, address: str) -> None:
    with pytest.raises(NeverAllocated, match=f"is not in the valid range. The range of valid IPs is {cidr}"):
        AddressPool(ip_network(cidr)).reserve(ip_address(address))


def test_the_highest_ipv6_address_is_usable() -> None:
    pool = AddressPool(ip_network("fd00::/112"))
    pool.reserve(ip_address("fd00::ffff"))
    assert ip_address("fd00::ffff") in pool


@given(st.floats(0, 1, exclude_max=True), st.sampled_from(["192.168.0.0/29", "10.0.0.0/26", "fd00::/120"]))
def test_all_addresses_are_given_once_the_dynamic_band_first(start: float, cidr: str) -> None:
    pool = AddressPool(ip_network(cidr))
    given_out = []
    for _ in range(pool.bands.size):
        given_out.append(pool.pick(start))
        pool.reserve(given_out[-1])
    assert len(set(given_out)) == pool.bands.size
    dynamic = pool.bands.last - pool.bands.dynamic + 1
    assert all(int(a) >= pool.bands.dynamic for a in given_out[:dynamic])
    assert pool.available == 0
    with pytest.raises(RangeFull, match="range is full"):
        pool.pick(start)
    pool.release(given_out[3])
    assert pool.pick(start) == given_out[3]


def test_six_addresses_of_a_slash_29_and_the_seventh_is_refused() -> None:
    pool = AddressPool(ip_network("192.168.0.0/29"))
    pool.reserve(ip_address("192.168.0.1"))
    for _ in range(5):
        pool.reserve(pool.pick(0.99))
    with pytest.raises(RangeFull):
        pool.pick(0.0)


def test_a_pick_walks_upwards_from_its_start_and_wraps_around() -> None:
    pool = AddressPool(ip_network("10.0.0.0/27"))  # dynamic band .17 to .30
    assert str(pool.pick(0.999)) == "10.0.0.30"
    pool.reserve(ip_address("10.0.0.30"))
    assert str(pool.pick(0.999)) == "10.0.0.17"
    assert str(pool.pick(0.0, {ip_address("10.0.0.17"), ip_address("10.0.0.18")})) == "10.0.0.19"


def test_a_slash_64_gives_addresses_of_its_whole_width() -> None:
    pool = AddressPool(ip_network("fd00::/64"))
    assert pool.pick(0.0) == IPv6Address("fd00::101")
    assert int(pool.pick(0.75)) - int(IPv6Address("fd00::")) > 2**63
    assert pool.available == 2**64 - 1


def test_picks_stay_cheap_in_a_range_that_is_nearly_full() -> None:
    pool = AddressPool(ip_network("10.0.0.0/12"))
    for number in range(pool.bands.first, pool.bands.last):
        pool._taken.add(number)
    assert int(pool.pick(0.0)) == pool.bands.last


def test_ports_are_refused_outside_the_range_and_when_taken() -> None:
    pool = PortPool()
    with pytest.raises(OutOfRange, match="The range of valid ports is 30000-32767"):
        pool.reserve(80)
    pool.reserve(30080)
    with pytest.raises(AlreadyTaken, match="provided port is already allocated"):
        pool.reserve(30080)
    assert (pool.used, pool.available) == (1, 2767)
    assert pool.release(30080)
    assert not pool.release(30080)


def test_ports_come_from_the_dynamic_band_first() -> None:
    pool = PortPool(30000, 30031)
    assert pool.pick(0.0) == 30016
    for port in range(30016, 30032):
        pool.reserve(port)
    assert pool.pick(0.5) == 30008

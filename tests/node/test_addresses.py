from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.node.addresses import REST, Addresses, NoAddress, give_back, load, save, take

NETWORK = IPv4Network("10.244.1.0/29")  # .2 to .6 are for pods


def test_addresses_go_round_and_skip_network_gateway_and_broadcast() -> None:
    addresses, given = Addresses(NETWORK), []
    for now in range(5):
        addresses, address = take(addresses, float(now))
        given.append(address)
    assert given == [f"10.244.1.{n}" for n in range(2, 7)]
    with pytest.raises(NoAddress, match=r"10\.244\.1\.0/29: no address is free, 5 in use and 0 resting"):
        take(addresses, 5.0)


def test_an_ipv6_range_is_gone_through_from_its_second_address() -> None:
    addresses, given = Addresses(IPv6Network("fd00:1:1::/64")), []
    for _ in range(15):
        addresses, address = take(addresses, 0.0)
        given.append(address)
    assert (addresses.gateway, given[0], given[-1]) == ("fd00:1:1::1", "fd00:1:1::2", "fd00:1:1::10")


def test_an_address_rests_a_minute_before_it_is_given_again() -> None:
    addresses = Addresses(IPv4Network("10.244.1.0/30"))  # .2 only
    addresses, address = take(addresses, 0.0)
    addresses = give_back(addresses, address, 10.0)
    with pytest.raises(NoAddress, match="0 in use and 1 resting"):
        take(addresses, 10.0 + REST - 0.1)
    assert take(addresses, 10.0 + REST)[1] == address


def test_giving_back_twice_does_not_prolong_the_rest() -> None:
    addresses, address = take(Addresses(NETWORK), 0.0)
    once = give_back(addresses, address, 10.0)
    assert give_back(once, address, 50.0) == once
    assert give_back(once, "10.244.1.5", 50.0) == once


@given(st.lists(st.tuples(st.floats(0, 40), st.booleans()), max_size=60))
def test_no_address_is_given_to_two_or_again_within_a_minute(steps: list[tuple[float, bool]]) -> None:
    addresses, now, in_use, returned = Addresses(NETWORK), 0.0, list[str](), dict[str, float]()
    for pause, wants in steps:
        now += pause
        if wants:
            try:
                addresses, address = take(addresses, now)
            except NoAddress:
                assert len(in_use) + sum(now - t < REST for t in returned.values()) == 5
                continue
            assert address not in in_use
            assert now - returned.pop(address, -REST) >= REST
            assert IPv4Address(address) in NETWORK
            in_use.append(address)
        elif in_use:
            returned[in_use[0]] = now
            addresses = give_back(addresses, in_use.pop(0), now)


@pytest.mark.parametrize("network", [NETWORK, IPv6Network("fd00:1:1::/64")])
def test_what_is_held_outlives_the_agent(tmp_path: Path, network: IPv4Network | IPv6Network) -> None:
    file = tmp_path / "addresses.json"
    addresses, first = take(Addresses(network), 0.0)
    addresses, _ = take(addresses, 0.0)
    addresses = give_back(addresses, first, 3.5)
    save(file, addresses)
    assert load(file, network) == addresses


@pytest.mark.parametrize(
    "text", [None, "", "[]", '{"held": {}}', '{"held": {"x": 1}, "last": ""}', '{"held": 3, "last": ""}']
)
def test_a_file_that_is_missing_or_damaged_holds_nothing(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "addresses.json"
    if text is not None:
        file.write_text(text)
    assert load(file, NETWORK) == Addresses(NETWORK)


def test_a_file_of_another_network_holds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "addresses.json"
    for other in (IPv4Network("10.244.2.0/24"), IPv6Network("fd00:1:1::/64")):
        save(file, take(Addresses(other), 0.0)[0])
        assert load(file, NETWORK) == Addresses(NETWORK)

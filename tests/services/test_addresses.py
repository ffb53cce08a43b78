import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.services.addresses import canonical_address, canonical_range
from clusterip.services.table import Family


@pytest.mark.parametrize(
    ("text", "family", "want"),
    [
        ("10.96.0.10", "IPv4", "10.96.0.10"),
        ("010.096.000.010", "IPv4", "10.96.0.10"),  # once accepted, and meant as decimal
        ("FD00:0::1", "IPv6", "fd00::1"),
        ("::ffff:10.0.0.1", "IPv4", "10.0.0.1"),
        ("fe80::1%eth0", "IPv6", ""),
        ("10.96.0.10", "IPv6", ""),
        ("fd00::1", "IPv4", ""),
        ("10.96.0.256", "IPv4", ""),
        (" 10.96.0.10", "IPv4", ""),
        ("", "IPv4", ""),
    ],
)
def test_an_address_is_canonical_or_none(text: str, family: Family, want: str) -> None:
    assert canonical_address(text, family) == want


@pytest.mark.parametrize(
    ("text", "family", "want"),
    [
        (" 10.0.0.7/8 ", "IPv4", "10.0.0.0/8"),
        ("10.0.0.0/255.0.0.0", "IPv4", ""),
        ("10.0.0.0", "IPv4", ""),
        ("10.0.0.0/33", "IPv4", ""),
        ("10.0.0.0/٨", "IPv4", ""),
        ("fd00::1/64", "IPv6", "fd00::/64"),
        ("fe80::1%eth0/64", "IPv6", ""),
        ("10.0.0.0/8", "IPv6", ""),
    ],
)
def test_a_range_is_canonical_or_none(text: str, family: Family, want: str) -> None:
    assert canonical_range(text, family) == want


@given(st.text(max_size=20), st.sampled_from(["IPv4", "IPv6"]))
def test_no_text_is_an_error_and_what_is_canonical_stays(text: str, family: Family) -> None:
    address, network = canonical_address(text, family), canonical_range(text, family)
    assert canonical_address(address, family) == address
    assert canonical_range(network, family) == network


@given(st.ip_addresses())
def test_every_address_belongs_to_one_family(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    found = [canonical_address(str(address), family) for family in ("IPv4", "IPv6")]
    assert sum(map(bool, found)) == 1

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.errors import BadInput
from clusterip.services.notation import Destination, destination

addresses = st.ip_addresses().map(str).filter(lambda a: ipaddress.ip_address(a).version in (4, 6))


@given(st.builds(Destination, addresses, st.integers(1, 65535), st.sampled_from(["TCP", "UDP", "SCTP"])))
def test_what_is_written_can_be_read(wanted: Destination) -> None:
    assert destination(str(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("10.96.0.10:80/tcp", Destination("10.96.0.10", 80, "TCP")),
        ("10.96.0.10:80", Destination("10.96.0.10", 80, "TCP")),
        ("[FD00::1]:80/UDP", Destination("fd00::1", 80, "UDP")),
    ],
)
def test_people_may_write_it_in_their_way(text: str, want: Destination) -> None:
    assert destination(text) == want


@pytest.mark.parametrize(
    "text",
    ["", "10.96.0.10", "10.96.0.10:", "10.96.0.10:0", "10.96.0.10:65536", "fd00::1:80", "[10.96.0.10]:80", "web:80",
     "10.96.0.10:80/icmp", "10.96.0:80", "10.96.0.10:80/tcp/x", "10.96.0.10:٣"],
)  # fmt: skip
def test_what_is_not_like_that_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        destination(text)
    assert "10.96.0.10:80/tcp" in refused.value.hint


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = destination(text)
    except BadInput:
        return
    assert destination(str(found)) == found

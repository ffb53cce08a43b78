"""What the listings say, and what chance says. The listings are of real programs, with the addresses of this plan."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.lab.demo import reading

NAT = """\
-P PREROUTING ACCEPT -c 12 720
-N KUBE-SVC-TCOU7JCQXEZGVUNU
-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m comment --comment "kube-system/kube-dns:dns cluster IP" -m udp --dport 53 \
-c 0 0 -j KUBE-SVC-TCOU7JCQXEZGVUNU
-A KUBE-SERVICES -d 10.96.103.181/32 -p tcp -m comment --comment "demo/app cluster IP" -m tcp --dport 80 -c 7 420 \
-j KUBE-SVC-5DUVTLAUYFVUXPYF
-A KUBE-SVC-5DUVTLAUYFVUXPYF ! -s 10.244.0.0/16 -d 10.96.103.181/32 -p tcp -m tcp --dport 80 -c 1 60 -j KUBE-MARK-MASQ
-A KUBE-SVC-5DUVTLAUYFVUXPYF -m comment --comment "demo/app -> 10.244.1.5:8080" -m statistic --mode random \
--probability 0.33333333349 -c 4 240 -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A KUBE-SVC-5DUVTLAUYFVUXPYF -m comment --comment "demo/app -> 10.244.2.7:8080" -m statistic --mode random \
--probability 0.50000000000 -c 2 120 -j KUBE-SEP-BBBBBBBBBBBBBBBB
-A KUBE-SVC-5DUVTLAUYFVUXPYF -m comment --comment "demo/app -> 10.244.3.9:8080" -c 1 60 -j KUBE-SEP-CCCCCCCCCCCCCCCC
-A KUBE-SEP-AAAAAAAAAAAAAAAA -s 10.244.1.5/32 -c 0 0 -j KUBE-MARK-MASQ
-A KUBE-SEP-AAAAAAAAAAAAAAAA -p tcp -m tcp -c 4 240 -j DNAT --to-destination 10.244.1.5:8080
-A KUBE-SEP-BBBBBBBBBBBBBBBB -p tcp -m tcp -c 2 120 -j DNAT --to-destination 10.244.2.7:8080
-A KUBE-SEP-CCCCCCCCCCCCCCCC -p tcp -m tcp -c 1 60 -j DNAT --to-destination 10.244.3.9:8080
"""
CHAIN = "KUBE-SVC-5DUVTLAUYFVUXPYF"
CONNTRACK = (
    "tcp      6 117 TIME_WAIT src=10.244.1.4 dst=10.96.103.181 sport=40123 dport=80 "
    "src=10.244.2.7 dst=10.244.1.4 sport=8080 dport=40123 [ASSURED] mark=0 use=1\n"
    "conntrack v1.4.7 (conntrack-tools): 1 flow entries have been shown.\n"
)
BRIEF = """\
lo               UNKNOWN        127.0.0.1/8 ::1/128
eth0@if4         UP             192.168.50.11/24 fe80::1/64
cip0             UP             10.244.1.1/24
veth7@if2        UP
"""


def test_the_rule_of_a_clusterip_leads_to_its_chain() -> None:
    assert reading.chain_of(NAT, "10.96.103.181", 80) == CHAIN
    assert reading.chain_of(NAT, "10.96.103.18", 80) == ""
    assert reading.chain_of(NAT, "10.96.103.181", 8) == ""


def test_the_chain_sends_to_its_backends_in_the_order_of_its_rules() -> None:
    assert reading.backends(NAT, CHAIN) == ("10.244.1.5:8080", "10.244.2.7:8080", "10.244.3.9:8080")


def test_counters_are_read_and_left_out_of_the_rules_text() -> None:
    first, *_ = reading.jumps(reading.in_chain(NAT, CHAIN))
    assert (first.to, first.packets) == ("KUBE-SEP-AAAAAAAAAAAAAAAA", 4)
    assert " -c " not in first.text


def test_the_three_rules_give_a_third_each() -> None:
    draws = [jump for jump in reading.jumps(reading.in_chain(NAT, CHAIN)) if "SEP" in jump.to]
    assert [draw.chance for draw in draws] == [Fraction(715827883, 2**31), Fraction(1, 2), Fraction(1)]
    parts = reading.shares([draw.chance for draw in draws])
    assert all(abs(part - Fraction(1, 3)) < Fraction(1, 2**31) for part in parts)


@given(st.lists(st.fractions(0, 1), max_size=6))
def test_shares_and_what_is_left_make_one(chances: list[Fraction]) -> None:
    assert sum(reading.shares(chances)) + math.prod(1 - chance for chance in chances) == 1


def test_both_directions_of_a_connection_are_read() -> None:
    ((there, back),) = reading.tracked(CONNTRACK)
    assert str(there) == "10.244.1.4:40123 > 10.96.103.181:80"
    assert str(back) == "10.244.2.7:8080 > 10.244.1.4:40123"


def test_every_address_of_an_interface_is_found() -> None:
    found = reading.addresses(BRIEF)
    assert found == ("127.0.0.1", "::1", "192.168.50.11", "fe80::1", "10.244.1.1")


@pytest.mark.parametrize(
    ("value", "degrees", "tail"),
    # Of the tables that every textbook has.
    [(3.841, 1, 0.05), (5.991, 2, 0.05), (13.816, 2, 0.001), (7.815, 3, 0.05), (9.488, 4, 0.05), (18.307, 10, 0.05)],
)
def test_the_tail_of_chi_square_is_the_textbooks(value: float, degrees: int, tail: float) -> None:
    assert reading.chi_square_tail(value, degrees) == pytest.approx(tail, rel=0.002)


def test_equal_counts_are_perfectly_even_and_one_sided_ones_are_not() -> None:
    assert reading.evenness([100, 100, 100]).p == 1.0
    assert reading.evenness([300, 0, 0]).p < 1e-9

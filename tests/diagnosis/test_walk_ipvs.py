"""IPVS in its hooks: who gets the next connection."""

from fractions import Fraction

import pytest
from tests.diagnosis.asking import ADDRESSES, ROUTES, SERVICE, ask, filtered, ids, nat, shares

ONE = Fraction(1)
VIRTUAL = """4: kube-ipvs0: <BROADCAST,NOARP> mtu 1500 qdisc noop state DOWN group default
    inet 10.96.0.20/32 scope global kube-ipvs0
"""


def listing(*servers: str, scheduler: str = "rr", more: str = "") -> str:
    """`servers`: "10.244.2.1:80 1 0 0": address, weight, active, inactive."""
    lines = ["IP Virtual Server version 1.2.1 (size=4096)", "Prot LocalAddress:Port Scheduler Flags"]
    lines += ["  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn"]
    lines += [f"TCP  {SERVICE} {scheduler}{more}"]
    for server in servers:
        address, weight, active, inactive = server.split()
        lines += [f"  -> {address}          Masq    {weight}      {active}          {inactive}"]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize(
    ("scheduler", "weights", "wanted"),
    [
        ("rr", (1, 3), (Fraction(1, 2), Fraction(1, 2))),
        ("lc", (1, 3), (Fraction(1, 2), Fraction(1, 2))),
        ("wrr", (1, 3), (Fraction(1, 4), Fraction(3, 4))),
        ("wlc", (1, 3), (Fraction(1, 4), Fraction(3, 4))),
        ("sh", (1, 3), (Fraction(1, 4), Fraction(3, 4))),
        ("mh", (1, 3), (Fraction(1, 4), Fraction(3, 4))),
        ("sed", (1, 3), (Fraction(1, 4), Fraction(3, 4))),
        ("nq", (1, 3), (Fraction(1, 4), Fraction(3, 4))),
        ("rr", (0, 1), (None, ONE)),
        ("fo", (1, 3), (None, ONE)),
    ],
)
def test_each_scheduler_has_its_shares(
    scheduler: str, weights: tuple[int, int], wanted: tuple[Fraction | None, Fraction]
) -> None:
    answer = ask(listing(*(f"10.244.2.{n}:80 {w} 0 0" for n, w in enumerate(weights, 1)), scheduler=scheduler))
    backends = {f"10.244.2.{n}:80": share for n, share in enumerate(wanted, 1) if share}
    assert shares(answer) == backends
    assert {o.basis for o in answer.outcomes} == {"exact" if len(backends) == 1 else "longRun"}


def test_overflow_fills_the_heaviest_first() -> None:
    assert shares(ask(listing("10.244.2.1:80 9 8 0", "10.244.2.2:80 5 0 0", scheduler="ovf"))) == {"10.244.2.1:80": ONE}
    assert shares(ask(listing("10.244.2.1:80 9 9 0", "10.244.2.2:80 5 0 0", scheduler="ovf"))) == {"10.244.2.2:80": ONE}
    assert ask(listing("10.244.2.1:80 9 9 0", "10.244.2.2:80 5 5 0", scheduler="ovf")).verdict == "rejected"


@pytest.mark.parametrize("scheduler", ["dh", "lblc", "lblcr"])
def test_a_scheduler_that_binds_the_address_gives_one_backend_and_which_is_not_known(scheduler: str) -> None:
    answer = ask(listing("10.244.2.1:80 1 0 0", "10.244.2.2:80 1 0 0", scheduler=scheduler))
    assert sorted(o.backend for o in answer.outcomes) == ["10.244.2.1:80", "10.244.2.2:80"]
    assert all(o.probability == 1 and len(o.when) == 1 for o in answer.outcomes)
    assert answer.verdict == "delivered"


def test_without_a_real_server_of_weight_it_refuses() -> None:
    assert (ask(listing()).verdict, ids(ask(listing()))) == ("rejected", ["no-endpoints"])
    assert ask(listing("10.244.2.1:80 0 1 0")).verdict == "rejected"


def test_a_client_that_is_remembered_is_sent_to_a_server_of_no_weight() -> None:
    text = listing("10.244.1.5:80 0 1 0", "10.244.2.6:80 1 0 0", more=" persistent 10800")
    assert shares(ask(text)) == {
        "the client is not remembered 10.244.2.6:80": ONE,
        "the client is remembered with 10.244.1.5:80 10.244.1.5:80": ONE,
    }
    forgets = ask(text, "net.ipv4.vs.expire_quiescent_template = 1\nnet.ipv4.vs.conntrack = 1\n")
    assert {o.backend for o in forgets.outcomes} == {"10.244.2.6:80"}


def test_listed_connections_say_who_is_remembered() -> None:
    connections = (
        "IPVS connection entries\npro expire state       source             virtual            destination\n"
        "TCP 02:12  NONE        10.244.1.7:0       10.96.0.20:80      10.244.2.2:80\n"
    )
    text = listing("10.244.2.1:80 1 0 0", "10.244.2.2:80 1 0 0", more=" persistent 10800")
    assert shares(ask(text, connections)) == {"10.244.2.2:80": ONE}
    fresh = ask(text, connections, source="pod:10.244.1.8")
    assert shares(fresh) == {"10.244.2.1:80": Fraction(1, 2), "10.244.2.2:80": Fraction(1, 2)}


def test_it_sits_behind_the_filter_and_before_masquerading() -> None:
    text = listing("10.244.2.1:80 1 0 0")
    assert ask(text, filtered("INPUT -d 10.96.0.20/32 -j DROP")).verdict == "dropped"
    masquerades = nat(
        "PREROUTING -j MARK --set-xmark 0x4000/0x4000", "POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE"
    )
    [outcome] = ask(text, masquerades, ADDRESSES + VIRTUAL, ROUTES).outcomes
    assert (outcome.backend, outcome.masquerade) == ("10.244.2.1:80", True)
    assert [s.hook for s in outcome.steps if s.effect.startswith(("ipvs", "masquerade"))] == ["input", "postrouting"]


def test_an_address_that_no_device_holds_is_not_served() -> None:
    text = listing("10.244.2.1:80 1 0 0")
    assert ask(text, ADDRESSES + VIRTUAL, ROUTES).verdict == "delivered"
    assert ask(text, ADDRESSES, ROUTES).verdict == "passed"


def test_the_node_itself_meets_it_in_output() -> None:
    answer = ask(listing("10.244.2.1:80 1 0 0"), ADDRESSES + VIRTUAL, ROUTES, source="node:192.168.50.11")
    assert answer.verdict == "delivered"
    assert answer.steps[0].hook == "output"


def test_other_ways_of_forwarding_are_not_modelled() -> None:
    answer = ask(listing("10.244.2.1:80 1 0 0").replace("Masq ", "Route"))
    assert answer.verdict == "unknown"

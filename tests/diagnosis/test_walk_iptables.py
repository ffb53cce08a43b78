"""What each match and target of iptables does to a packet, and to its chances."""

from fractions import Fraction

import pytest
from tests.diagnosis.asking import ADDRESSES, ROUTES, ask, filtered, ids, mangled, nat, shares

GRID = 2**31
ONE = Fraction(1)


@pytest.mark.parametrize(
    ("match", "hits"),
    [
        ("-d 10.96.0.20/32", True),
        ("-d 10.96.0.0/16", True),
        ("! -d 10.96.0.0/16", False),
        ("-s 10.244.0.0/16", True),
        ("! -s 10.244.1.7/32", False),
        ("-s 10.244.1.0/24,10.9.0.0/16", True),
        ("-i cip0", True),
        ("-i cip+", True),
        ("! -i cip+", False),
        ("-i lo", False),
        ("-p tcp -m tcp --dport 80", True),
        ("-p tcp -m tcp --dport 81", False),
        ("-p tcp -m tcp ! --dport 81:90", True),
        ("-p udp -m udp --dport 80", False),
        ("! -p udp", True),
        ("-p 6", True),
        ("-p tcp -m multiport --dports 79,80:90", True),
        ("-p tcp -m multiport ! --dports 79,80:90", False),
        ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", True),
        ("-p tcp -m tcp --tcp-flags ALL NONE", False),
        ("-m conntrack --ctstate NEW", True),
        ("-m conntrack --ctstate RELATED,ESTABLISHED", False),
        ("-m conntrack ! --ctstate ESTABLISHED", True),
        ("-m state --state NEW", True),
        ("-m conntrack --ctstate DNAT", False),
        ("-m mark --mark 0x0/0x4000", True),
        ("-m mark --mark 0x4000/0x4000", False),
        ("-m connmark --mark 0x1", False),
        ("-m addrtype --dst-type LOCAL", False),
        ("-m addrtype --src-type LOCAL", False),
        ("-m addrtype ! --dst-type LOCAL", True),
        ("-m addrtype --dst-type UNICAST", True),
        ("-m physdev --physdev-is-bridged", False),
        ("-m physdev ! --physdev-is-bridged", True),
        ("-m iprange --dst-range 10.96.0.10-10.96.0.30", True),
        ("-m pkttype --pkt-type broadcast", False),
        ("-m comment --comment anything -m nfacct --nfacct-name counted", True),
    ],
)
def test_a_match_that_can_be_known_decides(match: str, hits: bool) -> None:
    answer = ask(mangled(f"PREROUTING {match} -j DROP"), ADDRESSES, ROUTES)
    assert shares(answer) == {"dropped" if hits else "passed": ONE}


@pytest.mark.parametrize(
    "match",
    [
        "-p tcp -m tcp --sport 1024",
        "-m limit --limit 5/min",
        "-m time --timestart 08:00",
        "-m owner --uid-owner 0",
        "-m set --match-set unknown dst",
        "-m physdev --physdev-in veth1",
    ],
)
def test_what_cannot_be_known_is_answered_both_ways(match: str) -> None:
    answer = ask(mangled(f"PREROUTING {match} -j DROP"), ADDRESSES, ROUTES)
    assert sorted(o.verdict for o in answer.outcomes) == ["dropped", "passed"]
    assert all(o.probability == 1 and len(o.when) == 1 for o in answer.outcomes)
    assert (answer.verdict, answer.exit_status) == ("unknown", 2)


def test_an_unmodelled_match_is_named() -> None:
    answer = ask(filtered("FORWARD -m time --timestart 08:00 -j DROP"), ADDRESSES, ROUTES)
    [unknown] = [f for f in answer.findings if f.id == "unknown-match"]
    assert "--timestart 08:00" in unknown.message
    assert unknown.object == "filter/FORWARD rule 1"
    assert [f.share for f in answer.findings] == [None, None]


def test_an_unmodelled_match_that_decides_nothing_is_not_mentioned() -> None:
    answer = ask(filtered("FORWARD -m time --timestart 08:00 -j LOG", "FORWARD -m limit --limit 1/sec"), ADDRESSES)
    assert (answer.verdict, answer.outcomes[0].when, ids(answer)) == ("passed", (), [])


def test_an_unknown_match_and_its_opposite_are_one_question() -> None:
    rules = filtered("FORWARD -m set --match-set s dst -j DROP", "FORWARD -m set ! --match-set s dst -j DROP")
    assert shares(ask(rules, ADDRESSES, ROUTES)) == {"dropped": ONE}


def test_an_unmodelled_target_ends_in_not_known() -> None:
    answer = ask(filtered("FORWARD -j NFQUEUE --queue-num 1"), ADDRESSES, ROUTES)
    assert (answer.verdict, ids(answer)) == ("unknown", ["unknown-match"])


def test_the_shares_of_a_spread_are_those_of_the_kernels_grid() -> None:
    rules = nat(
        "PREROUTING -d 10.96.0.20/32 -j SVC",
        "SVC -m statistic --mode random --probability 0.33333333349 -j A",
        "SVC -m statistic --mode random --probability 0.50000000000 -j B",
        "SVC -j C",
        *(f"{c} -p tcp -j DNAT --to-destination 10.244.2.{n}:8080" for n, c in enumerate("ABC", start=1)),
        chains="SVC A B C",
    )
    third = Fraction(715827883, GRID)
    assert shares(ask(rules)) == {
        "10.244.2.1:8080": third,
        "10.244.2.2:8080": (1 - third) / 2,
        "10.244.2.3:8080": (1 - third) / 2,
    }


def test_400_endpoints_of_five_decimals_are_uneven_by_what_the_grid_makes_of_them() -> None:
    backends = 400
    rules = [
        f"SVC -m statistic --mode random --probability {1 / (backends - n):.5f} "
        f"-j DNAT --to-destination 10.2.{n // 200}.{n % 200 + 1}"
        for n in range(backends - 1)
    ]
    answer = ask(nat("PREROUTING -p tcp -j SVC", *rules, "SVC -j DNAT --to-destination 10.3.0.1", chains="SVC"))
    found = [o.probability for o in answer.outcomes]
    assert sum(found) == 1
    assert f"{float(min(found)):.10f} {float(max(found)):.10f}" == "0.0024955315 0.0025046944"


def test_nth_is_a_share_over_many_connections() -> None:
    rules = nat(
        "PREROUTING -m statistic --mode nth --every 4 --packet 0 -j DNAT --to-destination 10.244.2.1",
        "PREROUTING -j DNAT --to-destination 10.244.2.2",
    )
    answer = ask(rules)
    assert shares(answer) == {"10.244.2.1:80": Fraction(1, 4), "10.244.2.2:80": Fraction(3, 4)}
    assert {o.basis for o in answer.outcomes} == {"longRun"}


def test_a_client_that_is_remembered_has_an_answer_of_its_own() -> None:
    rules = nat(
        "PREROUTING -j SVC",
        *(f"SVC -m recent --rcheck --seconds 60 --name {c} --rsource -j {c}" for c in "AB"),
        "SVC -m statistic --mode random --probability 0.5 -j A",
        "SVC -j B",
        *(
            f"{c} -p tcp -m recent --set --name {c} --rsource -j DNAT --to-destination 10.244.2.{n}:80"
            for n, c in enumerate("AB", start=1)
        ),
        chains="SVC A B",
    )
    answer = ask(rules)
    half = Fraction(1, 2)
    assert shares(answer) == {
        "the client is not remembered 10.244.2.1:80": half,
        "the client is not remembered 10.244.2.2:80": half,
        "the client is in list A within 60 s 10.244.2.1:80": ONE,
        "the client is in list B within 60 s 10.244.2.2:80": ONE,
    }
    assert answer.verdict == "delivered"


def test_return_goes_back_and_goto_does_not() -> None:
    jump = filtered("FORWARD -j A", "FORWARD -j DROP", "A -j B", "B -j RETURN", "A -j ACCEPT", chains="A B")
    assert ask(jump, ADDRESSES).verdict == "passed"
    goto = filtered("FORWARD -j A", "FORWARD -j DROP", "A -g B", "B -j RETURN", "A -j ACCEPT", chains="A B")
    assert ask(goto, ADDRESSES).verdict == "dropped"


def test_a_return_from_a_built_in_chain_means_its_policy() -> None:
    answer = ask(filtered("FORWARD -j RETURN", "FORWARD -j ACCEPT", forward="DROP"), ADDRESSES, ROUTES)
    assert (answer.verdict, ids(answer)) == ("dropped", ["forward-policy-drop"])
    assert answer.steps[-1].rule == "policy drop"


def test_marks_are_set_in_part_and_kept() -> None:
    rules = mangled(
        "PREROUTING -j MARK --set-xmark 0x4000/0x4000",
        "PREROUTING -j MARK --set-xmark 0x1/0xff",
        "PREROUTING -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff",
        "PREROUTING -j MARK --set-xmark 0x0/0xffffffff",
        "FORWARD -m mark --mark 0x0 -m connmark --mark 0x4001 -j DROP",
    )
    assert ask(rules, ADDRESSES).verdict == "dropped"


def test_a_chain_that_is_not_there_is_said_not_passed_over() -> None:
    answer = ask("*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -j GONE\nCOMMIT\n", ADDRESSES)
    assert (answer.verdict, ids(answer)) == ("unknown", ["chain-missing"])
    assert answer.findings[0].object == "filter/GONE"


def test_a_circle_of_jumps_ends() -> None:
    answer = ask(filtered("FORWARD -j A", "A -j B", "B -j A", chains="A B"), ADDRESSES)
    assert answer.verdict == "unknown"
    assert "circle" in answer.reason


def test_nat_is_asked_once_and_filters_see_the_new_address() -> None:
    rules = nat("PREROUTING -j DNAT --to-destination 10.244.2.2:8080") + filtered("FORWARD -d 10.244.2.2/32 -j DROP")
    answer = ask(rules, ADDRESSES, ROUTES)
    assert (answer.verdict, answer.outcomes[0].backend) == ("dropped", "")
    assert str(answer.steps[-1].packet_before) == "tcp 10.244.1.7 -> 10.244.2.2:8080"


def test_an_untracked_packet_is_not_translated() -> None:
    raw = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -j CT --notrack\nCOMMIT\n"
    assert ask(raw, nat("PREROUTING -j DNAT --to-destination 10.244.2.2:80"), ADDRESSES).verdict == "passed"


def test_masquerade_takes_the_address_of_the_way_out() -> None:
    rules = nat("PREROUTING -j DNAT --to-destination 10.244.2.2:80", "POSTROUTING -j MASQUERADE")
    [outcome] = ask(rules, ADDRESSES, ROUTES).outcomes
    assert (outcome.masquerade, outcome.source) == (True, "192.168.50.11")
    [near] = ask(rules.replace("10.244.2.2", "10.244.1.9"), ADDRESSES, ROUTES).outcomes
    assert near.source == "10.244.1.1"
    [unknown] = ask(rules).outcomes
    assert (unknown.masquerade, unknown.source) == (True, "")


def test_masquerade_of_what_the_node_sends_itself_takes_whichever_address_the_kernel_lists_first() -> None:
    rules = nat("OUTPUT -j DNAT --to-destination 192.168.50.11:6443", "POSTROUTING -j MASQUERADE")
    [outcome] = ask(rules, ADDRESSES, ROUTES, source="node").outcomes
    assert (outcome.masquerade, outcome.source) == (True, "")
    answer = ask(rules, filtered("INPUT -s 10.244.1.0/24 -j DROP"), ADDRESSES, ROUTES, source="node")
    assert {o.verdict for o in answer.outcomes} == {"dropped", "delivered"}, "by the bridge's address, or by another"


def test_a_packet_for_the_node_meets_input_and_no_postrouting() -> None:
    rules = nat("PREROUTING -j DNAT --to-destination 192.168.50.11:6443", "POSTROUTING -j MASQUERADE")
    [outcome] = ask(rules, ADDRESSES, ROUTES).outcomes
    assert not outcome.masquerade
    assert ask(rules, filtered("INPUT -j DROP"), ADDRESSES, ROUTES).verdict == "dropped"
    assert ask(rules, filtered("FORWARD -j DROP"), ADDRESSES, ROUTES).verdict == "delivered"


def test_the_nodes_own_packets_begin_in_output() -> None:
    rules = nat("OUTPUT -j DNAT --to-destination 10.244.2.2:80")
    assert ask(rules, ADDRESSES, ROUTES, source="node").outcomes[0].backend == "10.244.2.2:80"
    assert ask(rules, ADDRESSES, ROUTES).verdict == "passed"
    assert ask(filtered("OUTPUT -j DROP"), ADDRESSES, source="node").verdict == "dropped"
    assert ask(filtered("FORWARD -j DROP"), ADDRESSES, source="node").verdict == "passed"


def test_what_the_node_sends_to_itself_comes_back_by_the_loopback() -> None:
    rules = filtered("INPUT -i lo -p tcp -m tcp --dport 22 -j DROP")
    assert ask(rules, ADDRESSES, source="node", to="192.168.50.11:22").verdict == "dropped"


def test_a_blackhole_route_and_a_node_that_does_not_forward_drop() -> None:
    rules = nat("PREROUTING -j DNAT --to-destination 10.244.9.2:80")
    assert ask(rules, ADDRESSES, ROUTES + "blackhole 10.244.9.0/24\n").verdict == "dropped"
    answer = ask(rules, ADDRESSES, ROUTES, "net.ipv4.ip_forward = 0\nnet.ipv4.conf.all.rp_filter = 0\n")
    assert (answer.verdict, "ip_forward" in answer.reason) == ("dropped", True)


@pytest.mark.parametrize(("members", "verdict"), [("10.96.0.0/16,tcp:80", "dropped"), ("10.96.0.20,udp:80", "passed")])
def test_sets_are_looked_up(members: str, verdict: str) -> None:
    sets = f"create s hash:net,port family inet\nadd s {members}\n"
    rules = filtered("FORWARD -m set --match-set s dst,dst -j DROP")
    assert ask(rules, sets, ADDRESSES).verdict == verdict


def test_in_a_set_an_exception_outweighs_the_network_around_it() -> None:
    sets = "create s hash:net family inet\nadd s 10.96.0.0/16\nadd s 10.96.0.16/28 nomatch\n"
    rules = filtered("FORWARD -m set --match-set s dst -j DROP")
    assert ask(rules, sets, ADDRESSES).verdict == "passed"
    assert ask(rules, sets, ADDRESSES, to="10.96.1.1:80").verdict == "dropped"


def test_a_large_chain_is_walked_like_a_small_one() -> None:
    others = [f"PREROUTING -d 10.96.1.{n}/32 -p tcp -m tcp --dport 80 -j DROP" for n in range(40)]
    ports = [f"PREROUTING -p tcp -m tcp --dport {n} -j DROP" for n in range(1000, 1040)]
    first = mangled(*others, "PREROUTING -j MARK --set-xmark 0x1/0x1", *ports, "PREROUTING -d 10.96.0.20/32 -j ACCEPT")
    late = filtered("FORWARD -m mark --mark 0x1 -j DROP")
    assert ask(first, late, ADDRESSES).steps[-1].table == "filter"
    assert ask(first, late, ADDRESSES, to="10.96.1.39:80").steps[-1].table == "mangle"
    assert ask(first, late, ADDRESSES, to="10.96.0.20:1039").steps[-1].rule.endswith("--dport 1039 -j DROP")


def test_both_variants_run_and_neither_is_known_to_be_first() -> None:
    legacy = "# Generated by iptables-save v1.8.9 (legacy)\n" + nat(
        "PREROUTING -j DNAT --to-destination 10.244.1.17:80"
    )
    nft = "# Generated by iptables-save v1.8.9 (nf_tables)\n" + nat(
        "PREROUTING -j DNAT --to-destination 10.244.1.44:80"
    )
    answer = ask(legacy, nft, ADDRESSES, ROUTES)
    assert {o.backend: o.probability for o in answer.outcomes} == {"10.244.1.17:80": ONE, "10.244.1.44:80": ONE}
    assert all(len(o.when) == 1 for o in answer.outcomes)
    assert "duplicate-backends" in ids(answer)


def test_where_the_order_of_variants_does_not_matter_it_is_not_mentioned() -> None:
    legacy = "# Generated by iptables-save v1.8.9 (legacy)\n" + filtered("FORWARD -j ACCEPT")
    nft = "# Generated by iptables-save v1.8.9 (nf_tables)\n" + filtered("FORWARD -j DROP")
    assert shares(ask(legacy, nft, ADDRESSES)) == {"dropped": ONE}


def test_what_comes_back_by_the_loopback_is_not_translated_again() -> None:
    rules = nat("PREROUTING -j DNAT --to-destination 10.244.2.9:1", "INPUT -j SNAT --to-source 192.0.2.1")
    [outcome] = ask(rules, ADDRESSES, ROUTES, source="node", to="192.168.50.11:22").outcomes
    assert (outcome.verdict, outcome.masquerade) == ("passed", False)
    [other] = ask(rules.replace("-A PREROUTING", "-A OUTPUT"), ADDRESSES, ROUTES, to="192.168.50.11:22").outcomes
    assert (other.verdict, other.source) == ("passed", "192.0.2.1")

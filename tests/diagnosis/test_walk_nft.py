"""What each statement and expression of nftables does to a packet, and to its chances."""

from fractions import Fraction

import pytest
from tests.diagnosis.asking import ADDRESSES, ROUTES, ask, filtered, ids, nft, shares

ONE, HALF = Fraction(1), Fraction(1, 2)


def chain(*rules: str, hook: str = "prerouting", priority: str = "mangle", kind: str = "filter", more: str = "") -> str:
    """A table of one base chain, with `more` in front of it."""
    body = "\n".join(f"\t\t{rule}" for rule in rules)
    return nft(f"{more}\tchain first {{\n\t\ttype {kind} hook {hook} priority {priority}; policy accept;\n{body}\n\t}}")


def dnat(rule: str, more: str = "") -> str:
    return chain(rule, priority="dstnat", kind="nat", more=more)


@pytest.mark.parametrize(
    ("match", "hits"),
    [
        ("ip daddr 10.96.0.20", True),
        ("ip daddr 10.96.0.0/16", True),
        ("ip daddr != 10.96.0.0/16", False),
        ("ip daddr 10.96.0.10-10.96.0.30", True),
        ("ip saddr { 10.244.1.7, 10.244.1.8 }", True),
        ("ip saddr != { 10.244.1.7, 10.244.1.8 }", False),
        ("ip saddr { 10.244.0.0/16 }", True),
        ("ip6 daddr fd00::1", False),
        ("ip6 daddr != fd00::1", False),
        ("tcp dport 80", True),
        ("tcp dport != 80", False),
        ("tcp dport { 79-81 }", True),
        ("udp dport 80", False),
        ("udp dport != 80", False),
        ("th dport 80", True),
        ("meta l4proto tcp", True),
        ("meta l4proto { tcp, udp }", True),
        ("meta nfproto ipv4", True),
        ("ip protocol tcp", True),
        ("tcp flags syn / fin,syn,rst,ack", True),
        ("ct state new", True),
        ("ct state established,related", False),
        ("ct state { established, new }", True),
        ("ct state != new", False),
        ("ct status dnat", False),
        ("ct direction original", True),
        ("meta mark 0x00000000", True),
        ("meta mark & 0x00004000 != 0x00000000", False),
        ('iifname "cip0"', True),
        ('iifname "cip*"', True),
        ('iifname != "cip*"', False),
        ("fib daddr type local", False),
        ("fib daddr type != local", True),
        ("fib saddr type local", False),
        ("ip daddr . tcp dport { 10.96.0.20 . 80 }", True),
        ("ip daddr . tcp dport { 10.96.0.0/16 . 70-90 }", True),
        ("ip daddr . tcp dport { 10.96.0.20 . 81 }", False),
    ],
)
def test_a_match_that_can_be_known_decides(match: str, hits: bool) -> None:
    assert shares(ask(chain(f"{match} drop"), ADDRESSES, ROUTES)) == {"dropped" if hits else "passed": ONE}


@pytest.mark.parametrize(
    "match",
    [
        *("tcp sport 1024", "limit rate 5/second", "meta skuid 0", "ip ttl 63"),
        *("quota over 5 mbytes", "quota 5 mbytes", "quota until 5 mbytes used 3 kbytes"),
    ],
)
def test_what_cannot_be_known_is_answered_both_ways(match: str) -> None:
    answer = ask(chain(f"{match} drop"), ADDRESSES, ROUTES)
    assert sorted(o.verdict for o in answer.outcomes) == ["dropped", "passed"]
    assert answer.verdict == "unknown"


def test_a_question_and_its_opposite_are_one() -> None:
    assert shares(ask(chain("tcp sport 1024 drop", "tcp sport != 1024 drop"), ADDRESSES)) == {"dropped": ONE}


def test_a_named_set_may_hold_ranges_and_a_rest() -> None:
    elements = "10.96.0.0/24 : drop, * : continue"
    more = f"\tmap m {{\n\t\ttype ipv4_addr : verdict\n\t\tflags interval\n\t\telements = {{ {elements} }}\n\t}}\n"
    rules = chain("ip daddr vmap @m", "accept", more=more)
    assert ask(rules, ADDRESSES).verdict == "dropped"
    assert ask(rules, ADDRESSES, to="10.96.1.1:80").verdict == "passed"


def test_protocols_may_be_given_by_number() -> None:
    more = "\tset s {\n\t\ttype ipv4_addr . inet_proto . inet_service\n\t\telements = { 10.96.0.20 . 6 . 80 }\n\t}\n"
    assert ask(chain("ip daddr . meta l4proto . th dport @s drop", more=more), ADDRESSES).verdict == "dropped"


def test_numgen_random_is_even_and_inc_is_so_in_the_long_run() -> None:
    rule = "ip daddr 10.96.0.20 dnat ip to numgen {} mod 2 map {{ 0 : 10.244.2.1 . 8080, 1 : 10.244.2.2 . 8081 }}"
    for mode, basis in (("random", "exact"), ("inc", "longRun")):
        answer = ask(dnat(rule.format(mode)), ADDRESSES, ROUTES)
        assert shares(answer) == {"10.244.2.1:8080": HALF, "10.244.2.2:8081": HALF}
        assert {o.basis for o in answer.outcomes} == {basis}


def test_a_hash_is_a_share_over_many_clients() -> None:
    rule = "dnat ip to jhash ip saddr mod 2 seed 0x1 map { 0 : 10.244.2.1, 1 : 10.244.2.2 }"
    answer = ask(dnat(rule), ADDRESSES, ROUTES)
    assert shares(answer) == {"10.244.2.1:80": HALF, "10.244.2.2:80": HALF}
    assert {o.basis for o in answer.outcomes} == {"longRun"}


def test_a_draw_may_be_part_of_a_key() -> None:
    more = (
        "\tmap endpoints {\n\t\ttype ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service\n"
        "\t\telements = { 10.96.0.20 . tcp . 80 . 0x00000000 : 10.244.2.1 . 8080,\n"
        "\t\t\t     10.96.0.20 . tcp . 80 . 0x00000001 : 10.244.2.2 . 8080 }\n\t}\n"
    )
    rule = "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @endpoints"
    answer = ask(dnat(rule, more), ADDRESSES, ROUTES)
    third = Fraction(1, 3)
    assert shares(answer) == {"10.244.2.1:8080": third, "10.244.2.2:8080": third, "passed": third}


def test_a_verdict_map_leads_on_and_what_it_lacks_goes_by() -> None:
    more = (
        "\tmap services {\n\t\ttype ipv4_addr . inet_proto . inet_service : verdict\n"
        '\t\telements = { 10.96.0.20 . tcp . 80 comment "default/web" : goto web }\n\t}\n'
        "\tchain web {\n\t\tcounter packets 0 bytes 0 drop\n\t}\n"
    )
    rules = chain("ip daddr . meta l4proto . th dport vmap @services", more=more)
    answer = ask(rules, ADDRESSES)
    assert [(s.chain, s.effect) for s in answer.steps] == [("first", "goto web"), ("web", "drop")]
    assert ask(rules, ADDRESSES, to="10.96.0.20:81").verdict == "passed"


def test_a_set_that_rules_fill_is_asked_both_ways() -> None:
    more = "\tset a {\n\t\ttype ipv4_addr\n\t\tflags dynamic,timeout\n\t\ttimeout 3h\n\t}\n"
    rules = dnat("ip saddr @a dnat to 10.244.2.1:80", more).replace(
        "to 10.244.2.1:80", "to 10.244.2.1:80\n\t\tdnat to 10.244.2.2:80"
    )
    assert shares(ask(rules, ADDRESSES, ROUTES)) == {
        "the client is not remembered 10.244.2.2:80": ONE,
        "10.244.1.7 is in set a 10.244.2.1:80": ONE,
    }


def test_a_client_that_is_listed_is_known() -> None:
    kept = "\t\ttimeout 3h\n\t\telements = { 10.244.1.7 expires 2h }\n"
    more = f"\tset a {{\n\t\ttype ipv4_addr\n\t\tflags dynamic,timeout\n{kept}\t}}\n"
    assert shares(ask(dnat("ip saddr @a dnat to 10.244.2.1:80", more), ADDRESSES, ROUTES)) == {"10.244.2.1:80": ONE}


def test_accept_ends_its_own_chain_and_drop_all() -> None:
    early = chain("accept", priority="-200")
    late = nft("\tchain late {\n\t\ttype filter hook prerouting priority -100; policy accept;\n\t\tdrop\n\t}").replace(
        "test", "other"
    )
    assert ask(early + late, ADDRESSES).verdict == "dropped"


def test_chains_of_iptables_and_nft_meet_in_the_order_of_their_priorities() -> None:
    mark = chain("meta mark set meta mark | 0x00004000", hook="forward", priority="-10")
    late = chain("meta mark set 0x00004000", hook="forward", priority="10")
    rules = filtered("FORWARD -m mark --mark 0x4000/0x4000 -j DROP")
    assert ask(mark, rules, ADDRESSES).verdict == "dropped"
    assert ask(late, rules, ADDRESSES).verdict == "passed"


def test_tables_of_inet_see_both_families_and_dormant_ones_nothing() -> None:
    inet = chain("tcp dport 80 drop").replace("table ip ", "table inet ")
    assert ask(inet, ADDRESSES).verdict == "dropped"
    assert ask(inet, source="pod:fd00:1::7", to="[fd00:96::20]:80").verdict == "dropped"
    other = chain("tcp dport 80 drop") + chain("accept").replace("table ip ", "table ip6 ")
    assert ask(other, source="pod:fd00:1::7", to="[fd00:96::20]:80").verdict == "passed"
    assert ask(inet.replace("{\n", "{\n\tflags dormant\n", 1), ADDRESSES).verdict == "passed"


def test_a_policy_drops_what_falls_through() -> None:
    rules = chain("ip daddr 10.1.1.1 accept", hook="forward", priority="filter").replace("policy accept", "policy drop")
    answer = ask(rules, ADDRESSES, ROUTES)
    assert (answer.verdict, ids(answer)) == ("dropped", ["forward-policy-drop"])


def test_masquerade_and_reject() -> None:
    rules = dnat("dnat to 10.244.2.1:80") + chain(
        "masquerade fully-random", hook="postrouting", priority="srcnat", kind="nat"
    ).replace("test", "other")
    [outcome] = ask(rules, ADDRESSES, ROUTES).outcomes
    assert (outcome.masquerade, outcome.source) == (True, "192.168.50.11")
    answer = ask(chain("reject with tcp reset", hook="forward", priority="filter"), ADDRESSES)
    assert (answer.verdict, answer.steps[-1].effect) == ("rejected", "reject tcp reset")


def test_matches_of_iptables_that_nft_can_only_name_are_unknown() -> None:
    answer = ask(chain('xt match "statistic" drop'), ADDRESSES)
    assert (answer.verdict, "unknown-match" in ids(answer)) == ("unknown", True)


@pytest.mark.parametrize("rule", ["queue to 1", "tproxy to :1080", "meta mark set ct label"])
def test_a_statement_that_may_decide_and_is_not_modelled_ends_in_not_known(rule: str) -> None:
    assert ask(chain(rule), ADDRESSES).verdict == "unknown"


def test_what_iptables_save_tells_of_a_table_is_preferred() -> None:
    saved = "# Generated by iptables-save v1.8.9 (nf_tables)\n" + filtered("FORWARD -d 10.96.0.20/32 -j DROP")
    listed = nft(
        '\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy accept;\n\t\txt match "time" drop\n\t}'
    ).replace("test", "filter")
    assert shares(ask(saved, listed, ADDRESSES)) == {"dropped": ONE}

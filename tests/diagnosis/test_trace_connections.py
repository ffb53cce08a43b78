"""The connection table before the rules, and the way back."""

import pytest
from tests.diagnosis.asking import ADDRESSES, ROUTES, ask, filtered, ids, nat

from clusterip.diagnosis.findings import Evidence

SERVED = nat(
    "PREROUTING -j KUBE-SERVICES",
    'KUBE-SERVICES -d 10.96.0.20/32 -p tcp -m comment --comment "default/web cluster IP" -m tcp --dport 80 -j SVC',
    "SVC -p tcp -j DNAT --to-destination 10.244.2.1:8080",
    chains="KUBE-SERVICES SVC",
)
MASQUERADED = SERVED.replace(":SVC", ":POST - [0:0]\n:SVC").replace("COMMIT", "-A POSTROUTING -j MASQUERADE\nCOMMIT")
PORTED = "pod:10.244.1.7:40000"


def entry(reply: str, state: str = "ESTABLISHED", flags: str = "[ASSURED] ") -> str:
    return f"tcp      6 431999 {state} src=10.244.1.7 dst=10.96.0.20 sport=40000 dport=80 {reply} {flags}mark=0 use=1\n"


TO_OLD = entry("src=10.244.2.9 dst=10.244.1.7 sport=8080 dport=40000")


def test_an_entry_overrules_the_rules() -> None:
    [outcome] = ask(SERVED, TO_OLD, ADDRESSES, ROUTES, source=PORTED).outcomes
    assert (outcome.backend, outcome.masquerade) == ("10.244.2.9:8080", False)
    assert [s.table for s in outcome.steps if s.effect.startswith("destination")] == ["conntrack"]


def test_another_port_is_another_connection() -> None:
    answer = ask(SERVED, TO_OLD, ADDRESSES, ROUTES)
    assert (answer.outcomes[0].backend, ids(answer)) == ("10.244.2.1:8080", ["established-flows"])
    assert (
        ask(SERVED, TO_OLD, ADDRESSES, ROUTES, source="pod:10.244.1.7:40001").outcomes[0].backend == "10.244.2.1:8080"
    )


def test_filters_see_it_as_established() -> None:
    rules = filtered("FORWARD -m conntrack --ctstate NEW -j DROP")
    assert ask(SERVED, rules, TO_OLD, ADDRESSES, ROUTES, source=PORTED).verdict == "delivered"
    assert ask(SERVED, rules, ADDRESSES, ROUTES, source=PORTED).verdict == "dropped"


def test_an_entry_that_nobody_answered_is_still_new() -> None:
    waiting = entry("src=10.244.2.9 dst=10.244.1.7 sport=8080 dport=40000", "SYN_SENT", "[UNREPLIED] ")
    rules = filtered("FORWARD -m conntrack --ctstate NEW -j DROP")
    assert ask(SERVED, rules, waiting, ADDRESSES, ROUTES, source=PORTED).verdict == "dropped"


def test_an_entry_that_was_never_translated_keeps_swallowing() -> None:
    lost = entry("src=10.96.0.20 dst=10.244.1.7 sport=80 dport=40000", "SYN_SENT", "[UNREPLIED] ")
    answer = ask(SERVED, lost, ADDRESSES, ROUTES, source=PORTED)
    assert (answer.verdict, ids(answer)) == ("passed", ["conntrack-blackhole"])
    assert answer.findings[0].remedy.startswith("conntrack -D -p tcp --orig-dst 10.96.0.20")
    fresh = ask(SERVED, lost, ADDRESSES, ROUTES)
    assert (fresh.verdict, ids(fresh)) == ("delivered", ["conntrack-blackhole"])


def test_the_answer_is_given_the_addresses_that_the_client_knows() -> None:
    answer = ask(SERVED, ADDRESSES, ROUTES)
    assert [(s.hook, s.effect) for s in answer.reply] == [
        ("backend", "answers"),
        ("prerouting", "pass"),
        ("forward", "pass"),
        ("postrouting", "source 10.96.0.20:80"),
        ("client", "receives"),
    ]
    assert str(answer.reply[0].packet_after) == "tcp 10.244.2.1:8080 -> 10.244.1.7"
    assert str(answer.reply[-1].packet_after) == "tcp 10.96.0.20:80 -> 10.244.1.7"


def test_masquerading_is_undone_first() -> None:
    answer = ask(MASQUERADED, ADDRESSES, ROUTES)
    assert str(answer.reply[0].packet_after) == "tcp 10.244.2.1:8080 -> 192.168.50.11"
    assert [s.effect for s in answer.reply[1:4]] == ["destination 10.244.1.7", "pass", "source 10.96.0.20:80"]


def test_what_drops_the_answer_is_named() -> None:
    rules = filtered("FORWARD -s 10.244.2.0/24 -j DROP")
    answer = ask(SERVED, rules, ADDRESSES, ROUTES)
    assert (answer.verdict, ids(answer)) == ("delivered", ["host-firewall"])
    assert "on its way back" in answer.findings[0].message
    allowed = filtered("FORWARD -m conntrack --ctstate ESTABLISHED -j ACCEPT", "FORWARD -s 10.244.2.0/24 -j DROP")
    assert ids(ask(SERVED, allowed, ADDRESSES, ROUTES)) == []


def test_an_answer_that_need_not_come_back_this_way_is_lost() -> None:
    answer = ask(SERVED, ADDRESSES, ROUTES, source="outside:203.0.113.9")
    assert ids(answer) == ["masquerade-missing"]
    assert ids(ask(MASQUERADED, ADDRESSES, ROUTES, source="outside:203.0.113.9")) == []


def test_an_answer_that_a_bridge_hands_over_by_itself_is_not_translated() -> None:
    bridge = ADDRESSES.replace(" qlen 1000\n    inet 10.244", "\n    bridge forward_delay 1500\n    inet 10.244")
    served = SERVED.replace("10.244.2.1", "10.244.1.9")
    silent = "net.bridge.bridge-nf-call-iptables = 0\nnet.ipv4.ip_forward = 1\n"
    assert ids(ask(served, bridge, ROUTES, silent)) == ["br-netfilter"]
    assert ids(ask(served, bridge, ROUTES, silent.replace("iptables = 0", "iptables = 1"))) == []
    assert ids(ask(SERVED, bridge, ROUTES, silent)) == []
    assert ids(ask(served.replace("COMMIT", "-A POSTROUTING -j MASQUERADE\nCOMMIT"), bridge, ROUTES, silent)) == []


@pytest.mark.parametrize(("rules", "found"), [(SERVED, ["masquerade-missing"]), (MASQUERADED, [])])
def test_a_pod_that_reaches_itself_must_be_masqueraded(rules: str, found: list[str]) -> None:
    answer = ask(rules, ADDRESSES, ROUTES, source="pod:10.244.2.1")
    assert (answer.verdict, ids(answer)) == ("delivered", found)


def test_evidence_that_stands_in_no_file_is_told_without_a_place() -> None:
    assert str(Evidence("tcp 10.244.1.7:4000", "", 7)) == "tcp 10.244.1.7:4000"
    assert str(Evidence("tcp 10.244.1.7:4000", "conntrack", 7)) == "conntrack:7: tcp 10.244.1.7:4000"

"""What a kernel told of a packet, beside the model: no kernel needed."""

from clusterip.diagnosis.facts import merge
from clusterip.diagnosis.observed import Observation, observe
from clusterip.diagnosis.trace import Tracer, told
from clusterip.rulesets import recognise
from clusterip.rulesets.traced import Headers, HookName, Traced

SAVE = """*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:WEB - [0:0]
-A PREROUTING -d 10.96.0.20/32 -p tcp -m tcp --dport 80 -j WEB
-A WEB -p tcp -m statistic --mode random --probability 0.50000000000 -j DNAT --to-destination 10.244.1.8:8080
-A WEB -p tcp -j DNAT --to-destination 10.244.1.9:8080
COMMIT
*filter
:FORWARD DROP [0:0]
-A FORWARD -m comment --comment "only counts"
-A FORWARD -m statistic --mode random --probability 0.50000000000 -j ACCEPT
-A FORWARD -j ACCEPT
COMMIT
"""
SENT = Headers("10.244.1.7", "10.96.0.20", "tcp", 40000, 80)
ONE = SENT._replace(destination="10.244.1.8", destination_port=8080)
TWO = SENT._replace(destination="10.244.1.9", destination_port=8080)


def event(hook: HookName, where: str, rule: int | None, verdict: str, headers: Headers = SENT) -> Traced:
    """`where`: "nat PREROUTING"; of iptables-legacy where there is no verdict."""
    table, chain = where.split()
    return Traced(
        program="nft" if verdict else "legacy",
        family="ip",
        hook=hook,
        priority=0,
        table=table,
        chain=chain,
        kind="policy" if rule is None else "rule",
        rule=rule,
        verdict=verdict,
        headers=headers,
        in_interface="cip0",
    )


def seen(events: list[Traced], landed: Headers | None, save: str = SAVE) -> Observation:
    tracer = Tracer(merge([recognise.read("save", save.encode())]))
    walked = tracer.walk(*tracer.asked("pod:10.244.1.7", "10.96.0.20:80"))
    return observe(walked, told(walked).outcomes, events, landed)


TO_TWO = [
    event("prerouting", "nat PREROUTING", 0, "jump WEB"),
    event("prerouting", "nat WEB", 1, "accept"),
    event("forward", "filter FORWARD", 0, "continue", TWO),
]


def test_the_backend_that_was_drawn_is_no_difference() -> None:
    for last in (1, 2):  # whichever of two rules accepted it, by chance
        found = seen([*TO_TWO, event("forward", "filter FORWARD", last, "accept", TWO)], TWO)
        assert found.difference is None
        assert (found.verdict, found.backend) == ("delivered", "10.244.1.9:8080")
        assert [step.effect for step in found.modelled] == ["jump WEB", "dnat 10.244.1.9:8080", "accept"]


def test_a_rule_that_only_counts_is_no_difference_and_is_shown() -> None:
    found = seen([*TO_TWO, event("forward", "filter FORWARD", 2, "accept", TWO)], TWO)
    assert [step.rule for step in found.steps][2] == '-A FORWARD -m comment --comment "only counts"'


def test_a_rule_that_the_kernel_passed_by_is_a_difference() -> None:
    found = seen([event("forward", "filter FORWARD", 2, "accept")], SENT)
    assert found.difference is not None
    assert found.difference.message.endswith("the model goes on with prerouting, nat, PREROUTING: " + RULE)


RULE = "-A PREROUTING -d 10.96.0.20/32 -p tcp -m tcp --dport 80 -j WEB"


def test_a_rule_that_the_model_passes_by_is_a_difference() -> None:
    without = SAVE.replace(RULE + "\n", "-A PREROUTING -d 10.96.0.21/32 -p tcp -m tcp --dport 80 -j WEB\n")
    found = seen([*TO_TWO, event("forward", "filter FORWARD", 2, "accept", TWO)], TWO, without)
    assert found.difference is not None
    assert found.difference.observed is not None
    assert found.difference.observed.chain == "WEB"


def test_a_rule_that_was_not_read_is_a_difference() -> None:
    found = seen([*TO_TWO, event("forward", "filter FORWARD", 7, "accept", TWO)], TWO)
    assert found.difference is not None
    assert "rule 8, which is not among the rules that were read" in found.difference.message


def test_another_source_than_the_model_has_is_a_difference() -> None:
    moved = TWO._replace(source="192.168.50.11")
    found = seen([*TO_TWO, event("forward", "filter FORWARD", 2, "accept", TWO)], moved)
    assert found.difference is not None
    assert "from 192.168.50.11; model: delivered to" in found.difference.message


def test_the_policy_of_a_legacy_chain_is_known_from_its_rules() -> None:
    closed = SAVE.replace("-A FORWARD -j ACCEPT\n", "").replace("-p tcp -j DNAT", "-d 10.96.0.20/32 -j DNAT")
    events = [
        event("prerouting", "nat PREROUTING", 0, ""),
        event("prerouting", "nat WEB", 1, ""),
        event("forward", "filter FORWARD", None, "", TWO),
    ]
    ended = events[-1]
    ended = Traced(**{name: getattr(ended, name) for name in Traced.__struct_fields__ if name != "rule"}, rule=2)
    found = seen([*events[:-1], ended], None, closed)
    assert found.difference is None
    assert (found.verdict, found.steps[-1].rule) == ("dropped", "policy drop")


def test_a_legacy_rule_without_a_match_is_told_as_the_end_of_its_chain() -> None:
    ended = event("forward", "filter FORWARD", None, "", TWO)
    ended = Traced(**{name: getattr(ended, name) for name in Traced.__struct_fields__ if name != "rule"}, rule=2)
    events = [
        event("prerouting", "nat PREROUTING", 0, ""),
        event("prerouting", "nat WEB", 1, ""),
        ended,
    ]
    found = seen(events, TWO)
    assert found.difference is None
    assert found.steps[-1].rule == "-A FORWARD -j ACCEPT"


def test_nothing_told_and_nothing_seen_is_no_answer() -> None:
    found = seen([], None)
    assert (found.verdict, found.difference) == ("unknown", None)

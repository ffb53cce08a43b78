"""`restore` against its own claims here; against the kernel in tests/dataplane."""

import pytest

from clusterip.rulesets.iptables import RestoreRefused, empty, line_text, parse, restore, ruleset_text

START = restore(empty("nat"), "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A B -s 10.0.0.1/32 -j ACCEPT\nCOMMIT\n")


def lines(text: str, chain: str = "A") -> list[str]:
    return [line_text(chain, r) for r in restore(START, f"*nat\n{text}\nCOMMIT\n").rules("nat", chain)]


def test_a_declaration_flushes_the_chain_and_leaves_the_others() -> None:
    assert lines(":A - [0:0]") == []
    assert lines(":A - [0:0]", "B") == ["-A B -s 10.0.0.1/32 -j ACCEPT"]


def test_a_declared_built_in_chain_keeps_its_rules() -> None:
    jumping = restore(START, "*nat\n-A OUTPUT -j A\nCOMMIT\n")
    after = restore(jumping, "*nat\n:OUTPUT DROP [0:0]\nCOMMIT\n")
    assert len(after.rules("nat", "OUTPUT")) == 1
    assert after.tables["nat"].chains["OUTPUT"].policy == "DROP"


def test_rules_are_appended_inserted_and_deleted() -> None:
    added = "-A A -j DROP\n-I A -j RETURN\n-I A 2 -j ACCEPT"
    assert lines(added) == ["-A A -j RETURN", "-A A -j ACCEPT", "-A A -j B", "-A A -j DROP"]
    assert lines(f"{added}\n-D A -j B\n-F B", "A") == ["-A A -j RETURN", "-A A -j ACCEPT", "-A A -j DROP"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-A X -j ACCEPT", "no chain 'X'"),
        ("-A A -j X", "leads to X"),
        ("-D A -j DROP", "no such rule"),
        ("-X B", "not empty"),
        ("-A A -j B\n:B - [0:0]\n-X B", "in use"),
        ("-N A", "there already"),
        ("-Q A", "not known"),
        ("-A A -j", "nothing follows"),
        (":A", "declares no chain"),
    ],
)
def test_a_refused_block_changes_nothing_but_those_before_it_stand(text: str, why: str) -> None:
    with pytest.raises(RestoreRefused, match=why) as refused:
        restore(START, f"*nat\n-A B -j DROP\nCOMMIT\n*nat\n:A - [0:0]\n{text}\nCOMMIT\n")
    assert refused.value.ruleset == restore(START, "*nat\n-A B -j DROP\nCOMMIT\n")


def test_the_line_that_failed_is_named() -> None:
    with pytest.raises(RestoreRefused) as refused:
        restore(START, "# a note\n*nat\n-A X -j ACCEPT\nCOMMIT\n")
    assert refused.value.line == 3


@pytest.mark.parametrize("text", ["*raw\nCOMMIT\n", "-A A -j B\n", "*nat\n-A A -j B\n"])
def test_a_text_that_is_no_input_is_refused(text: str) -> None:
    with pytest.raises(RestoreRefused):
        restore(START, text)


def test_a_saved_ruleset_restores_to_itself() -> None:
    assert parse(ruleset_text(restore(empty("nat"), ruleset_text(START)))) == START

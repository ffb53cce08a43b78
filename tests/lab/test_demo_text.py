"""The renderer, without a terminal."""

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from clusterip.cli.demo_text import Renderer, folded
from clusterip.kernel.capture import Flag, Packet
from clusterip.lab.demo.values import (
    Bars,
    Claim,
    Counted,
    Counters,
    Explained,
    Manifest,
    Packets,
    Ran,
    Say,
    Seen,
    Shown,
    Title,
    Wait,
)

SYN = Packet("10.244.1.4", "10.96.103.181", "tcp", 40123, 80, Flag.SYN)
ARRIVED = Packet("10.244.1.4", "10.244.2.7", "tcp", 40123, 8080, Flag.SYN)
EVERYTHING: tuple[Shown, ...] = (
    Title("A packet"),
    Say("word " * 60),
    Wait("waiting"),
    Manifest("app.yaml", "kind: Deployment\n"),
    Ran("node-1#", "iptables -t nat -L KUBE-SERVICES -n", "word " * 60 + "\nshort\n", 1, ("short",)),
    Packets((Seen("client, eth0", SYN), Seen("app-7c9d8f6b5-abcde, eth0", ARRIVED, "destination"))),
    Explained((("10.244.1.4:40123 > 10.96.103.181:80", "as the client sends"),)),
    Counters((Counted("KUBE-SEP-AAAAAAAAAAAAAAAA", 3, 4),)),
    Bars((("app-a", 98), ("app-b", 0))),
    Claim("It is so.", True),
)


def rendered(*values: Shown, encoding: str = "utf-8", terminal: bool = False) -> tuple[str, bool]:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    to = Renderer(
        Console(
            file=file,
            highlight=False,
            width=100,
            force_terminal=terminal,
            color_system="standard" if terminal else None,
        )
    )
    for value in values:
        to.show(value)
    held = to.summary(12.3)
    file.flush()
    return raw.getvalue().decode(encoding), held


def test_piped_it_is_plain_text_of_at_most_100_columns() -> None:
    text, held = rendered(*EVERYTHING)
    assert held
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert not any(line != line.rstrip() for line in text.splitlines() if line.startswith("    "))


def test_without_unicode_it_is_ascii() -> None:
    text, _ = rendered(*EVERYTHING, encoding="ascii")
    assert "?" not in text
    assert "  ok It is so." in text


def test_what_a_colour_says_is_said_by_a_word_too() -> None:
    text, _ = rendered(*EVERYTHING)
    changed = next(line for line in text.splitlines() if "app-7c9d8f6b5-abcde" in line)
    assert changed.endswith("<- destination changed")
    assert "10.244.1.4:40123 > 10.244.2.7:8080" in changed


def test_a_terminal_sees_the_changed_address_marked() -> None:
    text, _ = rendered(*EVERYTHING, terminal=True)
    assert "\x1b[1;33m10.244.2.7:8080" in text


def test_a_failed_claim_says_what_was_seen_and_fails_the_whole() -> None:
    text, held = rendered(Title("One"), Claim("Fine.", True), Claim("It is even.", False, "p = 0.00001"))
    assert not held
    assert "  ✗ It is even.\n    seen instead: p = 0.00001" in text
    assert "1 of 2 claims were observed" in text


def test_a_demo_that_claimed_nothing_has_shown_nothing() -> None:
    assert not rendered(Title("One"), Say("hello"))[1]


def test_only_the_wanted_lines_of_a_command_are_shown() -> None:
    ran = Ran("$", "cmd", "one a\ntwo b\nthree a\n", only=("a",))
    assert ran.lines == ("one a", "three a")
    text, _ = rendered(ran)
    assert "    one a\n    three a\n    (2 of 3 lines)\n" in text


def test_a_long_rule_is_broken_before_its_comment() -> None:
    rule = "KUBE-SEP-X  0    --  0.0.0.0/0            0.0.0.0/0       /* demo/app -> 10.244.1.3:8080 */ probability 0.5"
    assert folded(rule, 80, 76) == [
        "KUBE-SEP-X  0    --  0.0.0.0/0            0.0.0.0/0",
        "/* demo/app -> 10.244.1.3:8080 */ probability 0.5",
    ]


@given(st.text(alphabet="ab /*", max_size=80), st.integers(5, 30))
def test_folding_loses_nothing_but_blanks_and_keeps_to_the_width(line: str, width: int) -> None:
    pieces = folded(line, width, width - 2)
    assert all(len(piece) <= width for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(line.split())


def test_a_table_of_kubectl_is_cut_not_folded() -> None:
    text, _ = rendered(Ran("$", "kubectl get pods", "NAME " + "x" * 120))
    row = next(line for line in text.splitlines() if "NAME" in line)
    assert len(row) == 100
    assert row.endswith("…")

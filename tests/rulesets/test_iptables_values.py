"""`parse` and `text` are inverses, for all that is modelled and for what is not."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.rulesets import iptables
from clusterip.rulesets.iptables import BadRuleset, parse, parse_rule, rule_text, ruleset_text
from clusterip.rulesets.iptables import values as v

GOLDEN = Path(__file__).parents[1] / "golden"
SAVED = sorted(GOLDEN.glob("*/iptables-save.txt"))

negated = st.booleans()
port_ranges = st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(lambda p: v.PortRange(min(p), max(p)))
words32 = st.integers(0, 2**32 - 1)
names = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True).filter(lambda n: not n.startswith("-"))
interfaces = st.from_regex(r"[a-z]{1,8}[0-9]?\+?", fullmatch=True)
networks = st.sampled_from(["10.244.0.0/16", "10.96.0.10/32", "fd00::/64", "fd00::1/128"])
# An option's words: what begins with a dash is the next option.
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(lambda t: t[0] != "-")

MATCHES: tuple[st.SearchStrategy[v.Match], ...] = (
    st.builds(v.Source, networks, negated),
    st.builds(v.Destination, networks, negated),
    st.builds(v.InInterface, interfaces, negated),
    st.builds(v.OutInterface, interfaces, negated),
    st.builds(v.IPProtocol, st.sampled_from(["tcp", "udp", "sctp", "icmp", "47"]), negated),
    st.builds(v.Comment, st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)),
    st.builds(
        v.ConnState,
        st.lists(names, min_size=1, max_size=3).map(tuple),
        negated,
        st.sampled_from(["conntrack", "state"]),
    ),
    st.builds(v.Mark, words32, words32, negated),
    st.builds(v.Random, st.integers(0, 2**31), negated),
    st.builds(v.Nth, st.integers(1, 1000), st.integers(0, 1000), negated),
    st.builds(
        v.Recent,
        st.sampled_from(["set", "rcheck", "update", "remove"]),
        names,
        st.integers(0, 10**6),
        negated,
        st.integers(0, 20),
        negated,
        st.sampled_from(["", "255.255.255.255", "ffff::"]),
        st.sampled_from(["rsource", "rdest", ""]),
        negated,
    ),
    st.one_of(
        st.builds(v.AddrType, st.just("LOCAL"), source_negated=negated, limit=st.sampled_from(["in", "out", ""])),
        st.builds(v.AddrType, destination=st.just("UNICAST"), destination_negated=negated),
        st.builds(v.AddrType, st.just("LOCAL"), st.just("LOCAL"), negated, negated),
    ),
    st.builds(v.NfAcct, names),
    st.builds(v.InSet, names, st.lists(st.sampled_from(["src", "dst"]), min_size=1, max_size=3).map(tuple), negated),
    st.one_of(
        st.builds(
            v.Ports,
            st.sampled_from(["tcp", "udp", "sctp", "udplite", "dccp"]),
            port_ranges,
            port_ranges,
            negated,
            negated,
        ),
        st.builds(v.Ports, st.sampled_from(["tcp", "udp"])),
        st.builds(
            v.Ports,
            st.just("tcp"),
            st.none(),
            port_ranges,
            flag_mask=st.just("SYN,RST"),
            flags=st.sampled_from(["SYN", "NONE"]),
            flags_negated=negated,
        ),
    ),
    st.builds(
        v.MultiPort,
        st.sampled_from(["sports", "dports", "ports"]),
        st.lists(port_ranges, min_size=1, max_size=4).map(tuple),
        negated,
    ),
    st.one_of(
        st.builds(v.PhysDev, interfaces, interfaces, negated, negated),
        st.builds(
            v.PhysDev,
            is_in=st.sampled_from([None, True, False]),
            is_out=st.sampled_from([None, True, False]),
            is_bridged=st.sampled_from([None, True, False]),
        ),
    ),
    st.builds(v.Limit, st.sampled_from(["5/min", "10/sec"]), st.none() | st.integers(0, 1000)),
    st.builds(
        v.OtherMatch,
        st.sampled_from(["time", "policy", "bpf"]),
        st.lists(st.tuples(st.booleans(), names.map("--{}".format), st.lists(texts, max_size=2)), max_size=3).map(
            lambda options: tuple(w for no, name, rest in options for w in (*(["!"] if no else []), name, *rest))
        ),
    ),
)
TARGETS: tuple[st.SearchStrategy[v.Target], ...] = (
    st.none(),
    st.sampled_from([v.Accept(), v.Drop(), v.Return()]),
    st.builds(v.Reject, st.sampled_from(["", "icmp-port-unreachable", "tcp-reset"])),
    st.builds(v.SetMark, words32, words32),
    st.builds(v.Masquerade, st.sampled_from(["", "1024-65535"]), negated, negated),
    st.builds(v.DNAT, st.sampled_from(["10.244.0.3:80", "[fd00::3]:80"]), negated, negated),
    st.builds(v.SNAT, st.sampled_from(["10.0.0.1", "fd00::1"]), negated, negated, negated),
    st.builds(v.Jump, names.filter(lambda n: n not in iptables.EXTENSIONS)),
    st.builds(v.Goto, names),
    st.builds(v.OtherTarget, st.sampled_from(["LOG", "TRACE"]), st.sampled_from([(), ("--log-prefix", "a b")])),
)
rules = st.builds(
    v.Rule,
    st.lists(st.one_of(*MATCHES), max_size=4).map(tuple),
    st.one_of(*TARGETS),
    st.none() | st.builds(v.Counters, st.integers(0, 2**63), st.integers(0, 2**63)),
)


@st.composite
def tables(draw: st.DrawFn, name: str) -> v.Table:
    chains = draw(st.lists(names, max_size=3, unique=True))
    made = (
        v.Chain(
            chain,
            tuple(draw(st.lists(rules, max_size=2))),
            draw(st.sampled_from(["-", "ACCEPT", "DROP"])),
            v.Counters(draw(st.integers(0, 9)), draw(st.integers(0, 9))),
        )
        for chain in chains
    )
    return v.Table(name, {chain.name: chain for chain in made})


@given(rules)
def test_what_is_written_can_be_read(rule: v.Rule) -> None:
    assert parse_rule(rule_text(rule)) == v.Rule(rule.matches, rule.target)


@pytest.mark.parametrize("strategy", MATCHES, ids=lambda s: str(s)[:30])
def test_every_kind_of_match_is_read_back(strategy: st.SearchStrategy[v.Match]) -> None:
    @given(strategy)
    def holds(match: v.Match) -> None:
        assert parse_rule(rule_text(v.Rule((match,)))).matches == (match,)

    holds()


@given(tables("nat"), tables("filter"))
def test_whole_rulesets_are_read_back(nat: v.Table, filters: v.Table) -> None:
    ruleset = v.Ruleset({"nat": nat, "filter": filters})
    assert parse(ruleset_text(ruleset)) == ruleset


@pytest.mark.parametrize("saved", SAVED, ids=lambda p: p.parent.name)
def test_what_kube_proxy_wrote_is_read_in_full_and_written_as_it_was(saved: Path) -> None:
    text = saved.read_text()
    ruleset = parse(text)
    known = [re.sub(" +", " ", line) for line in text.splitlines() if line[0] != "#"]
    assert ruleset_text(ruleset).splitlines() == known
    everything = [
        part for table in ruleset for c in table.chains.values() for r in c.rules for part in (*r.matches, r.target)
    ]
    assert not [part for part in everything if isinstance(part, v.OtherMatch | v.OtherTarget)]


def test_there_are_golden_files() -> None:
    assert len(SAVED) == 12


@pytest.mark.parametrize(
    ("written", "saved"),
    [
        # kube-proxy's own order, and its other ways of writing a mark
        (
            '-m comment --comment "a b" -m tcp -p tcp -d 10.96.0.1/32 --dport 443 -j KUBE-SVC-X',
            '-m comment --comment "a b" -m tcp --dport 443 -p tcp -d 10.96.0.1/32 -j KUBE-SVC-X',
        ),
        ("-j MARK --or-mark 0x4000", "-j MARK --set-xmark 0x4000/0x4000"),
        ("-j MARK --xor-mark 0x4000", "-j MARK --set-xmark 0x4000/0x0"),
        ("-j MARK --and-mark 0xf", "-j MARK --set-xmark 0x0/0xfffffff0"),
        ("-j MARK --set-mark 1/2", "-j MARK --set-xmark 0x1/0x3"),
        ("-p tcp --dport 80 -j ACCEPT", "-p tcp -m tcp --dport 80 -j ACCEPT"),
        ("-p tcp -m comment --comment x --dport 80", "-p tcp -m comment --comment x -m tcp --dport 80"),
        ("-m tcp --syn", "-m tcp --tcp-flags FIN,SYN,RST,ACK SYN"),
        ("--protocol udp --match udp --source-port 1024: --jump DROP", "-p udp -m udp --sport 1024:65535 -j DROP"),
        (
            "-m statistic --mode random --probability 0.3333333333",
            "-m statistic --mode random --probability 0.33333333349",
        ),
        ("-m nfacct --nfacct-name  two_blanks -j DROP", "-m nfacct --nfacct-name two_blanks -j DROP"),
        ("! -s 10.0.0.0/8 ! -i eth0", "! -s 10.0.0.0/8 ! -i eth0"),
    ],
)
def test_other_ways_of_writing_a_rule_mean_the_same(written: str, saved: str) -> None:
    assert rule_text(parse_rule(written)) == saved
    assert parse_rule(saved) == parse_rule(written)


@pytest.mark.parametrize(
    "spec",
    [
        "-m time --timestart 08:00 ! --weekdays Sat,Sun -j ACCEPT",
        "-m conntrack --ctorigdst 10.96.0.10 --ctstate NEW",
        "-m recent --set --rcheck",
        "-p icmp -m icmp --icmp-type 8 -j ACCEPT",
        "-m tcp --dport http",
        "-m mark --mark 0x1ffffffff",
        "-m statistic --mode random --probability 1.5",
        '-j LOG --log-prefix "dropped here: " --log-level 4',
        "-j MASQUERADE --no-such-option",
        "-j MASQUERADE ! --random",
        "-m recent ! --rcheck ! --reap",
        "-j CONNMARK --save-mark",
    ],
)
def test_what_is_not_modelled_is_kept_word_for_word(spec: str) -> None:
    rule = parse_rule(spec)
    assert any(isinstance(part, v.OtherMatch | v.OtherTarget) for part in (*rule.matches, rule.target))
    assert rule_text(rule) == spec


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("-A X -j ACCEPT\n", 1),
        ("*nat\n-A X -j ACCEPT\nCOMMIT\n", 2),
        ("*nat\n:X\nCOMMIT\n", 2),
        ("*nat\n:X - [0:0]\n-A X -j\nCOMMIT\n", 3),
        ("*nat\n:X - [0:0]\n-A X -s 10.0.0.1 !\nCOMMIT\n", 3),
        ("*nat\n:X - [0:0]\n-Z X\nCOMMIT\n", 3),
        ("*nat\n:X - [0:0]\n", 3),
        ("nonsense\n", 1),
    ],
)
def test_what_is_no_ruleset_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(BadRuleset) as refused:
        parse(text)
    assert refused.value.line == line


@given(st.text('*:-ACOMIT natX![0]"\\\n#jsdp', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        ruleset = parse(text)
    except BadRuleset:
        return
    assert parse(ruleset_text(ruleset)) == ruleset


WORDS = ("-s", "-d", "-m", "-j", "!", "tcp", "--dport", "80", "KUBE-X", '"a b"', "-p", "--ctstate")


@given(st.lists(st.sampled_from(WORDS), max_size=8))
def test_any_words_are_a_rule_or_refused(given_words: list[str]) -> None:
    try:
        rule = parse_rule(" ".join(given_words))
    except BadRuleset:
        return
    assert parse_rule(rule_text(rule)) == rule


def test_counters_and_comments_are_kept() -> None:
    text = '# a note\n*nat\n:X - [3:4]\n[12:720] -A X -m comment --comment "say \\"hi\\"" -j ACCEPT\nCOMMIT\n'
    [rule] = parse(text).rules("nat", "X")
    assert (rule.counters, rule.comment) == (v.Counters(12, 720), 'say "hi"')
    assert ruleset_text(parse(text)) == text.removeprefix("# a note\n")


@pytest.mark.parametrize("comment", ["!", "-j", "-m", "--dport", "a ! b"])
def test_a_comment_may_look_like_an_option(comment: str) -> None:
    rule = parse_rule(f'-m comment --comment "{comment}" -j ACCEPT')
    assert rule.comment == comment
    assert parse_rule(rule_text(rule)) == rule

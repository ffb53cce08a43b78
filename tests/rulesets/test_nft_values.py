"""`parse_rule` and `rule_text` are inverses, and so are `read` and `ruleset_text`; what is not known is kept."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.rulesets import nft
from clusterip.rulesets.evidence import Origin
from clusterip.rulesets.nft import values as v

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("*/nft.txt"))

names = st.from_regex(r"[a-z][a-zA-Z0-9_/.-]{0,20}", fullmatch=True)
chains = names.map("service-{}".format)
numbers = st.integers(0, 2**32 - 1).map(v.Number)
ports = st.integers(0, 65535).map(v.Number)
v4 = st.ip_addresses(v=4).map(lambda a: v.Address(str(a)))
v6 = st.ip_addresses(v=6).map(lambda a: v.Address(str(a)))
prefixes = st.builds(lambda a, n: v.Prefix(a.text, n), v4, st.integers(0, 32))
words = st.sampled_from(["tcp", "udp", "established", "local", "echo-request", "broadcast"]).map(v.Word)
quoted = st.from_regex(r"[a-z]{1,8}[0-9]?\*?", fullmatch=True).map(v.Quoted)
ranges = st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(
    lambda p: v.Range(v.Number(min(p)), v.Number(max(p)))
)
atoms = v4 | v6 | prefixes | words | quoted | ports | ranges
comments = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"'), max_size=20)
durations = st.sampled_from(["", "3h", "1m30s"])

verdicts: st.SearchStrategy[v.Verdict] = st.one_of(
    st.just(v.Accept()),
    st.just(v.Drop()),
    st.just(v.Return()),
    st.just(v.Continue()),
    st.builds(v.Jump, chains),
    st.builds(v.Goto, chains),
)
fields = st.one_of(
    st.sampled_from([("ip", "daddr"), ("ip6", "saddr"), ("th", "dport"), ("tcp", "sport"), ("icmp", "type")]).map(
        lambda pair: v.Payload(*pair)
    ),
    st.sampled_from(["l4proto", "mark", "iifname", "oif", "nfproto", "skuid"]).map(v.Meta),
    st.builds(
        v.Ct, st.sampled_from(["state", "status", "mark", "proto-dst"]), st.sampled_from(["", "original", "reply"])
    ),
    st.builds(v.Fib, st.sampled_from([("daddr",), ("saddr", "iif"), ("daddr", "mark", "oif")]), st.just("type")),
    st.builds(v.Numgen, st.sampled_from(["random", "inc"]), st.integers(1, 1000), st.integers(0, 9)),
)
keys = fields | st.lists(fields, min_size=2, max_size=4).map(lambda parts: v.Concat(tuple(parts)))
hashes = st.builds(
    v.JHash, st.none() | keys, st.integers(1, 99), st.none() | st.integers(0, 2**32 - 1), st.integers(0, 9)
)
masked = st.builds(
    v.Binary,
    st.sampled_from(["&", "|", "^"]),
    st.sampled_from([v.Meta("mark"), v.Ct("mark"), v.Payload("ip", "daddr")]),
    numbers,
)
values = atoms | st.lists(atoms, min_size=2, max_size=4).map(lambda parts: v.Concat(tuple(parts)))
elements = st.builds(v.Element, values, st.none(), comments, durations)
map_elements = st.builds(v.Element, values, verdicts, comments, durations)
value_elements = st.builds(v.Element, values, values, comments, durations)
set_names = names.map(v.SetName)


def several(strategy: st.SearchStrategy[v.Element]) -> st.SearchStrategy[v.Elements]:
    return st.lists(strategy, min_size=1, max_size=4).map(lambda found: v.Elements(tuple(found)))


lookups = st.builds(v.Lookup, keys | hashes, set_names | several(value_elements))
flags = st.lists(st.sampled_from(["new", "established", "related"]), min_size=2, max_size=3, unique=True).map(
    lambda parts: v.Flags(tuple(map(v.Word, parts)))
)

STATEMENTS: tuple[st.SearchStrategy[v.Statement], ...] = (
    st.builds(
        v.Match, keys | masked, st.sampled_from(["", "==", "!=", "<", ">="]), values | set_names | several(elements)
    ),
    st.builds(v.Match, st.just(v.Ct("state")), st.sampled_from(["", "!="]), flags),
    st.builds(v.VerdictMap, keys | hashes, set_names | several(map_elements)),
    verdicts,
    st.builds(v.Reject, st.sampled_from(["", "with tcp reset"[5:], "icmpx admin-prohibited"])),
    st.builds(
        v.Nat,
        st.sampled_from(["dnat", "snat"]),
        v4 | v6,
        st.none() | ports | ranges,
        st.sampled_from(["", "ip", "ip6"]),
        flags=st.sampled_from([(), ("random",), ("fully-random", "persistent")]),
    ),
    st.builds(v.Nat, st.just("dnat"), lookups, family=st.just("ip")),
    st.builds(v.Nat, st.sampled_from(["masquerade", "redirect"]), st.none(), st.none() | ports | ranges),
    st.builds(v.Mangle, st.sampled_from([v.Meta("mark"), v.Ct("mark")]), numbers | masked | fields | lookups),
    st.builds(v.Update, st.sampled_from(["add", "update", "delete"]), names, keys, st.none() | fields, durations),
    st.builds(v.Counter, st.integers(0, 2**63), st.integers(0, 2**63)),
    st.builds(v.Counter, name=names),
    st.builds(
        v.Limit, st.sampled_from(["10/minute", "1 mbytes/second"]), st.booleans(), st.sampled_from(["", "5 packets"])
    ),
    st.builds(v.Log, st.sampled_from(["", 'prefix "a b: " level info', "group 5", "flags tcp options"])),
    st.just(v.NoTrack()),
    st.builds(v.Xt, st.sampled_from(["match", "target"]), st.sampled_from(["recent", "MASQUERADE"])),
)
rules = st.builds(
    v.Rule,
    st.lists(st.one_of(*STATEMENTS), min_size=1, max_size=5).map(tuple),
    comments,
)
hooks = st.none() | st.builds(
    v.Hook,
    st.sampled_from(["filter", "nat", "route"]),
    st.sampled_from(["prerouting", "input", "forward", "output", "postrouting"]),
    st.integers(-400, 400),
    st.sampled_from(["accept", "drop"]),
    st.sampled_from([(), ("eth0",), ("eth0", "eth1")]),
)
sets = st.builds(
    v.Set,
    st.just("x"),
    st.lists(st.sampled_from(["ipv4_addr", "inet_service", "ifname"]), min_size=1, max_size=3).map(tuple),
    flags=st.sampled_from([(), ("interval",), ("dynamic", "timeout")]),
    timeout=durations,
    size=st.integers(0, 2**31),
    elements=st.lists(elements, max_size=4).map(tuple),
    comment=comments,
)


@pytest.mark.parametrize("strategy", STATEMENTS, ids=lambda s: str(s)[:40])
def test_every_kind_of_statement_is_read_back(strategy: st.SearchStrategy[v.Statement]) -> None:
    @given(strategy)
    def holds(statement: v.Statement) -> None:
        assert nft.parse_rule(nft.statement_text(statement)).statements == (statement,)

    holds()


@given(rules)
def test_what_is_written_can_be_read(rule: v.Rule) -> None:
    assert nft.parse_rule(nft.rule_text(rule)) == rule


@given(st.lists(rules, max_size=3).map(tuple), hooks, sets, comments)
def test_whole_rulesets_are_read_back(
    rules: tuple[v.Rule, ...], hook: v.Hook | None, found: v.Set, comment: str
) -> None:
    chain = v.Chain("c", rules, hook, comment)
    table = v.Table("inet", "t", {"c": chain}, {"x": found}, comment=comment)
    ruleset = v.Ruleset({v.TableName("inet", "t"): table})
    reading = nft.read(nft.ruleset_text(ruleset))
    assert reading.problems == ()
    assert reading.values == ruleset


@given(st.text(max_size=200))
def test_any_line_is_some_rule(line: str) -> None:
    rule = nft.parse_rule(line)
    nft.rule_text(rule)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.parent.name)
def test_what_kube_proxy_made_is_read_in_full_and_written_as_it_was(path: Path) -> None:
    text = path.read_text()
    reading = nft.read(text)
    assert reading.problems == ()
    chains = [chain for table in reading.values for chain in table.chains.values()]
    statements = [s for chain in chains for rule in chain.rules for s in rule.statements]
    assert "Other" not in repr(statements)
    assert nft.read(nft.ruleset_text(reading.values)).values == reading.values
    lines = text.splitlines()
    for table in reading.values:
        for chain in table.chains.values():
            for number, rule in enumerate(chain.rules):
                line = reading.places.line(f"{table.family} {table.name}", chain.name, number)
                assert nft.rule_text(rule) == lines[line - 1].strip()


def test_there_are_golden_files() -> None:
    assert len(GOLDEN) == 12


def test_the_line_of_a_rule_is_known() -> None:
    hook = "type nat hook output priority -100; policy accept;"
    text = f"table ip t {{\n\tchain a {{\n\t\t{hook}\n\n\t\tdrop\n\t\taccept\n\t}}\n}}\n"
    places = nft.read(text, Origin("f", 11)).places
    assert [places.line("ip t", "a", i) for i in range(3)] == [15, 16, 0]


def test_a_rule_of_several_lines_is_one_rule() -> None:
    text = "table ip t {\n  chain a {\n    tcp dport { 80,\n      443 } accept\n    drop\n  }\n}\n"
    reading = nft.read(text)
    chain = reading.values.tables[v.TableName("ip", "t")].chains["a"]
    assert len(chain.rules) == 2
    assert [reading.places.line("ip t", "a", i) for i in range(2)] == [3, 5]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("meta mark set mark or 0x4000", "meta mark set meta mark | 0x00004000"),  # as iptables-nft's rules are shown
        ("mark and 0xff == 0x10", "meta mark & 0x000000ff == 0x00000010"),
        ("tcp flags syn / fin,syn,rst,ack", "tcp flags & (fin | syn | rst | ack) == syn"),
        ("ip saddr { 10.0.0.1,10.0.0.2 }", "ip saddr { 10.0.0.1, 10.0.0.2 }"),
        ("tcp dport {80,443}", "tcp dport { 80, 443 }"),
        ("meta mark eq 1", "meta mark == 0x00000001"),
        ("reject with icmp type port-unreachable", "reject with icmp port-unreachable"),
        ("xt match recent", 'xt match "recent"'),
        ("dnat to 10.0.0.1:80-90", "dnat to 10.0.0.1:80-90"),
        ("dnat ip6 to [fd00::1]-[fd00::9]:80", "dnat ip6 to [fd00::1]-[fd00::9]:80"),
        ("dnat ip addr . port to numgen random mod 1 map { 0 : 10.0.0.1 . 80 }",) * 2,
        ('meta hour "08:00"-"17:00" drop',) * 2,
    ],
)
def test_other_ways_of_writing_a_rule_mean_the_same(written: str, meant: str) -> None:
    assert nft.rule_text(nft.parse_rule(written)) == meant


@pytest.mark.parametrize(
    "line",
    ['osf name "Linux" drop', "frobnicate the packet", "ip daddr", "vmap @x", "tcp dport { 80", "jump", "xt x y"],
)
def test_what_is_not_understood_is_kept_word_by_word(line: str) -> None:
    rule = nft.parse_rule(f"ip daddr 10.0.0.1 {line}")
    assert rule.statements[0] == v.Match(v.Payload("ip", "daddr"), "", v.Address("10.0.0.1"))
    assert " ".join(map(nft.statement_text, rule.statements[1:])) == line


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("table ip t {\n chain a {\n  drop\n", "chain a does not end"),
        ("table ip t {\n chain a {\n  drop\n }\n", "table ip t does not end"),
        ("table ip t {\n nonsense\n}\n", "nonsense"),
        ("table ip t {\n chain a {\n }\n chain a {\n drop\n }\n}\n", "chain a comes a second time"),
        ("table ip t {\n}\ntable ip t {\n}\n", "table ip t comes a second time"),
        ("chain a {\n", "chain a {"),
    ],
)
def test_what_is_wrong_with_a_dump_is_said(text: str, problem: str) -> None:
    problems = nft.read(text).problems
    assert any(problem in found.why for found in problems), problems


def test_text_that_is_no_json_of_nft_is_a_problem() -> None:
    for text in ("", "{}", "[1]", '{"nftables": 7}', '{"nftables": [{"rule": {"family": "ip"}}]}', '{"nftables": [{'):
        reading = nft.read_json(text)
        assert len(reading.problems) == 1


def test_json_expressions_that_nobody_knows_are_kept() -> None:
    text = """{"nftables": [{"table": {"family": "ip", "name": "t"}},
        {"chain": {"family": "ip", "table": "t", "name": "c"}},
        {"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"warp": {"speed": 9}}, {"drop": null}]}}]}"""
    chain = nft.read_json(text).values.tables[v.TableName("ip", "t")].chains["c"]
    assert chain.rules[0].statements == (v.OtherStatement('{"warp":{"speed":9}}'), v.Drop())


def test_one_element_that_is_not_understood_hides_no_other() -> None:
    elements = "10.0.0.1 timeout 1m expires 5s, 10.0.0.2 last used 3s timeout 1m,\n 10.0.0.3 counter packets 1 bytes 60"
    text = (
        f"table ip t {{\n set s {{\n  type ipv4_addr\n  flags dynamic,timeout\n  elements = {{ {elements} }}\n }}\n}}\n"
    )
    found = nft.read(text).values.tables[v.TableName("ip", "t")].sets["s"]
    assert found.elements == (
        v.Element(v.Address("10.0.0.1"), timeout="1m", expires="5s"),
        v.Element(v.OtherExpression("10.0.0.2 last used 3s timeout 1m")),
        v.Element(v.Address("10.0.0.3"), counters=(v.Counter(1, 60),)),
    )


@pytest.mark.parametrize(
    ("text", "family", "value"),
    [
        ("dstnat - 10", "ip", -110),
        ("filter", "inet", 0),
        ("srcnat + 5", "ip", 105),
        ("-150", "ip", -150),
        ("dstnat", "bridge", -300),
        ("filter", "bridge", -200),
        ("raw", "ip6", -300),
    ],
)
def test_priorities_are_numbers(text: str, family: str, value: int) -> None:
    dump = f"table {family} t {{\n chain c {{\n  type filter hook output priority {text}; policy drop;\n }}\n}}\n"
    hook = nft.read(dump).values.tables[v.TableName(family, "t")].chains["c"].hook
    assert hook == v.Hook("filter", "output", value, "drop")


@pytest.mark.parametrize(
    "element",
    ['{"prefix": {"addr": "10.0.0.0"}}', '{"elem": {}}', '{"concat": [{"range": [1]}]}', "null", '{"a": 1, "b": 2}'],
)
def test_an_element_of_json_that_is_not_understood_hides_no_other(element: str) -> None:
    head = '"family": "ip", "table": "t", "name": "s", "type": "ipv4_addr"'
    item = f'{{"set": {{{head}, "elem": [{element}, "10.0.0.1"]}}}}'
    reading = nft.read_json(f'{{"nftables": [{{"table": {{"family": "ip", "name": "t"}}}}, {item}]}}')
    odd, plain = reading.values.tables[v.TableName("ip", "t")].sets["s"].elements
    assert isinstance(odd.key, v.OtherExpression)
    assert plain == v.Element(v.Address("10.0.0.1"))


@pytest.mark.parametrize("odd", ["10.0.0.2 : goto", "10.0.0.2 : goto a b", "10.0.0.2 : ", "10.0.0.2 : drop . drop"])
def test_an_element_whose_value_is_cut_off_hides_no_other(odd: str) -> None:
    elements = f"10.0.0.1 : drop, {odd}, 10.0.0.3 : accept"
    text = f"table ip t {{\n map m {{\n  type ipv4_addr : verdict\n  elements = {{ {elements} }}\n }}\n}}\n"
    first, second, third = nft.read(text).values.tables[v.TableName("ip", "t")].sets["m"].elements
    assert (first.value, third.value) == (v.Drop(), v.Accept())
    assert isinstance(second.key, v.OtherExpression)

"""What we read of nft's output, and print again, is what nft loads: asked of the real nft in a namespace."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from clusterip.kernel import netns as namespaces
from clusterip.rulesets import nft
from clusterip.rulesets.nft import values as v

HERE = Path(__file__).parent
GOLDEN = sorted((HERE.parent / "golden").glob("*/nft.txt"))
CASES = sorted((HERE.parent / "cases").glob("*/*.nft"))  # kube-proxy 1.29
SOURCES = [HERE / "data" / "every-statement.nft", *GOLDEN, *CASES]

pytestmark = pytest.mark.kernel


@pytest.fixture
def netns() -> Iterator[str]:
    name = f"nft-{uuid4().hex[:8]}"
    namespaces.create(name)
    yield name
    namespaces.delete(name)


def run(netns: str, *argv: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["ip", "netns", "exec", netns, *argv], input=stdin, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def listed(netns: str) -> v.Ruleset:
    reading = nft.read(run(netns, "nft", "list", "ruleset"))
    assert reading.problems == ()
    return reading.values


def without_what_time_changes(text: str) -> str:
    return re.sub(r" expires \S+", "", text)


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.parent.name + "/" + p.name)
def test_what_we_print_loads_and_lists_as_before(netns: str, source: Path) -> None:
    run(netns, "nft", "-f", "-", stdin=source.read_text())
    before = run(netns, "nft", "list", "ruleset")
    printed = nft.ruleset_text(nft.read(before).values)
    run(netns, "nft", "-f", "-", stdin="flush ruleset\n" + printed)
    assert without_what_time_changes(run(netns, "nft", "list", "ruleset")) == without_what_time_changes(before)
    assert nft.read(printed).values == nft.read(before).values


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.parent.name + "/" + p.name)
def test_the_json_gives_the_values_of_the_text(netns: str, source: Path) -> None:
    run(netns, "nft", "-f", "-", stdin=source.read_text())
    text = listed(netns)
    told = nft.read_json(run(netns, "nft", "-j", "list", "ruleset"))
    assert told.problems == ()
    assert list(told.values.tables) == list(text.tables)
    for table in text:
        other = told.values.tables[v.TableName(table.family, table.name)]
        assert list(other.chains) == list(table.chains)
        for chain in table.chains.values():
            found = other.chains[chain.name]
            assert [(r.statements, r.comment) for r in found.rules] == [(r.statements, r.comment) for r in chain.rules]
            assert (found.hook is None) == (chain.hook is None)
            if found.hook and chain.hook and found.hook.hook != "ingress":  # 1.0.6 forgets the device
                assert found.hook == chain.hook
        for name, expected in table.sets.items():
            given = other.sets[name]
            # 1.0.6 says neither the flag "dynamic" nor "typeof" nor "auto-merge" in JSON.
            assert given.elements == expected.elements
            assert set(given.flags) == set(expected.flags) - {"dynamic"}
            assert (given.timeout, given.size) == (expected.timeout, expected.size)


def test_handles_are_read_and_change_nothing_else(netns: str) -> None:
    run(netns, "nft", "-f", "-", stdin=SOURCES[0].read_text())
    plain, handled = listed(netns), nft.read(run(netns, "nft", "-a", "list", "ruleset")).values
    for table in plain:
        other = handled.tables[v.TableName(table.family, table.name)]
        assert other.handle > 0
        for chain in table.chains.values():
            found = other.chains[chain.name]
            assert found.handle > 0
            assert all(rule.handle > 0 for rule in found.rules)
            assert tuple(msgspec.structs.replace(rule, handle=0) for rule in found.rules) == chain.rules


def test_rules_of_iptables_inside_nft_tables_are_read(netns: str) -> None:
    saved = (HERE / "data" / "foreign.iptables-save").read_text()
    run(netns, "iptables-nft-restore", stdin=saved)
    ruleset = listed(netns)
    rules = [rule for table in ruleset for chain in table.chains.values() for rule in chain.rules]
    assert len(rules) == saved.count("\n-A ")
    assert {s.name for rule in rules for s in rule.statements if isinstance(s, v.Xt)} >= {
        "recent",
        "CHECKSUM",
        "policy",
    }
    assert not [s for rule in rules for s in rule.statements if isinstance(s, v.OtherStatement)]
    nat = ruleset.tables[v.TableName("ip", "nat")]
    masqueraded = nat.chains["FLANNEL-POSTRTG"].rules[2]
    assert masqueraded.statements[:2] == (
        v.Match(v.Payload("ip", "saddr"), "", v.Prefix("10.244.0.0", 16)),
        v.Match(v.Payload("ip", "daddr"), "!=", v.Prefix("224.0.0.0", 4)),
    )
    assert masqueraded.statements[-1] == v.Nat("masquerade", flags=("fully-random",))

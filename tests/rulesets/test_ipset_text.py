"""`ipset save`, `ipset list` and what we print say the same; the real ipset loads it."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.kernel import netns as namespaces
from clusterip.rulesets import ipset

ALL_TYPES = (Path(__file__).parent / "data" / "all-types.ipset").read_text()


@pytest.fixture
def netns() -> Iterator[str]:
    name = f"ipset-{uuid4().hex[:8]}"
    namespaces.create(name)
    yield name
    namespaces.delete(name)


def run(netns: str, *argv: str, stdin: str = "") -> str:
    command = ["ip", "netns", "exec", netns, "ipset", *argv]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def comparable(sets: ipset.IPSets) -> dict[str, object]:
    return {
        name: (s.type, s.options, {(m.parts, *(o for o in m.options if not o.isdecimal())) for m in s.members})
        for name, s in sets.sets.items()
    }


@pytest.mark.kernel
def test_what_we_print_is_what_ipset_saves(netns: str) -> None:
    run(netns, "restore", stdin=ALL_TYPES)
    before = ipset.read(run(netns, "save"))
    assert before.problems == ()
    run(netns, "flush")  # a list of sets holds others, which cannot go before
    run(netns, "destroy")
    run(netns, "restore", stdin=ipset.text(before.values))
    assert comparable(ipset.read(run(netns, "save")).values) == comparable(before.values)


@pytest.mark.kernel
def test_a_listing_says_what_save_says(netns: str) -> None:
    run(netns, "restore", stdin=ALL_TYPES)
    listed = ipset.read(run(netns, "list"))
    assert listed.problems == ()
    assert comparable(listed.values) == comparable(ipset.read(run(netns, "save")).values)
    only_heads = ipset.read(run(netns, "list", "-t"))
    assert only_heads.problems == ()
    assert list(only_heads.values.sets) == list(listed.values.sets)


def test_sets_know_what_their_members_are() -> None:
    sets = ipset.read(ALL_TYPES).values.sets
    assert sets["KUBE-LOOP-BACK"].dimensions == ("ip", "port", "ip")
    assert sets["KUBE-LOOP-BACK"].members[0].parts == ("10.244.1.5", "tcp:80", "10.244.1.5")
    assert sets["KUBE-6-CLUSTER-IP"].family == "inet6"
    assert [member.nomatch for member in sets["networks"].members] == [False, True]
    assert sets["addresses"].members[0].options[-2:] == ("comment", "the first one")
    assert sets["KUBE-NODE-PORT-TCP"].family == "inet"


names = st.from_regex(r"[A-Z][A-Z-]{0,20}", fullmatch=True)
parts = st.sampled_from(["10.0.0.1", "tcp:80", "10.0.0.0/8", "eth0", "0x00004000"])
options = st.lists(
    st.sampled_from([("nomatch",), ("timeout", "30"), ("comment", "a b"), ("packets", "1", "bytes", "2")]),
    max_size=3,
    unique=True,
).map(lambda found: tuple(word for words in found for word in words))
sets = st.builds(
    ipset.IPSet,
    names,
    st.just("hash:ip,port"),
    st.sampled_from([(), ("family", "inet6", "hashsize", "1024")]),
    st.lists(st.builds(ipset.Member, st.tuples(parts, parts), options), max_size=4).map(tuple),
)


@given(st.lists(sets, max_size=3, unique_by=lambda s: s.name))
def test_what_is_written_can_be_read(given_sets: list[ipset.IPSet]) -> None:
    reading = ipset.read(ipset.text(ipset.IPSets({s.name: s for s in given_sets})))
    assert reading.problems == ()
    found = [(s.name, s.type, s.options, s.members) for s in reading.values.sets.values()]
    assert found == [(s.name, s.type, s.options, s.members) for s in given_sets]


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("add X 10.0.0.1\n", 1, "create is missing"),
        ("create X hash:ip\nadd X 10.0.0.1,tcp:80\n", 2, "has 1 parts"),
        ("create X hash:ip\ncreate X hash:ip\n", 2, "second time"),
        ("create X nonsense\n", 1, "cannot be read"),
        ("Type: hash:ip\n", 1, "before the name"),
        ("flush X\n", 1, "cannot be read"),
        ("create X hash:ip,port\nadd X 10.0.0.1,\n", 2, "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(text: str, line: int, why: str) -> None:
    problems = ipset.read(text).problems
    assert [(p.line, why in p.why) for p in problems] == [(line, True)], problems

"""Transactions of nf_tables against the real kernel: all or nothing, onto one generation, refusals with a name."""

import errno
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.spaces import fresh

from clusterip.kernel.netlink import attribute, nested
from clusterip.kernel.nftables import (
    CREATE,
    Command,
    GenerationPassed,
    Message,
    Tables,
    TransactionRefused,
    items,
)

pytestmark = pytest.mark.kernel


@pytest.fixture
def netns() -> Iterator[str]:
    with fresh("nft") as name:
        yield name


def table(name: str, command: Command = Command.NEW_TABLE) -> Message:
    return Message(command, attribute(1, name.encode() + b"\0"), CREATE, f"{command.name.lower()} {name}")


def names(tables: Tables) -> list[bytes]:
    return [found[1].rstrip(b"\0") for found in tables.dump(Command.GET_TABLE, b"", "tables") or ()]


def test_a_transaction_raises_the_generation_by_one(netns: str) -> None:
    with Tables("IPv4", netns) as tables:
        before = tables.generation()
        tables.commit([table("a"), table("b")])
        assert tables.generation() == before + 1
        assert sorted(names(tables)) == [b"a", b"b"]


def test_a_refusal_names_the_message_and_undoes_the_others(netns: str) -> None:
    with Tables("IPv4", netns) as tables:
        with pytest.raises(TransactionRefused, match="delete_table nowhere") as caught:
            tables.commit([table("a"), table("nowhere", Command.DELETE_TABLE), table("b")])
        assert (caught.value.errno, caught.value.index) == (errno.ENOENT, 1)
        assert names(tables) == []
        tables.commit([table("c")])
        assert names(tables) == [b"c"], "the next one is judged by itself"


def test_more_refusals_than_the_socket_holds_are_one_and_are_over_with_it(netns: str) -> None:
    with Tables("IPv4", netns) as tables:
        with pytest.raises(TransactionRefused) as caught:
            tables.commit([table("nowhere", Command.DELETE_TABLE)] * 60_000)
        assert (caught.value.errno, caught.value.index) == (errno.ENOENT, 0)
        tables.commit([table("a")])
        assert names(tables) == [b"a"]


def test_a_transaction_for_a_generation_that_has_passed_is_not_done(netns: str) -> None:
    with Tables("IPv4", netns) as ours, Tables("IPv6", netns) as others:
        known = ours.generation()
        others.commit([table("theirs")])
        with pytest.raises(GenerationPassed):
            ours.commit([table("ours")], known)
        assert names(ours) == []
        ours.commit([table("ours")], ours.generation())
        assert names(ours) == [b"ours"]


def test_who_may_not_write_is_told_which_capability_it_takes() -> None:
    program = """
from clusterip.errors import Unavailable
from clusterip.kernel.nftables import Tables
try:
    Tables("IPv4")
except Unavailable as error:
    print(error.message, error.hint, sep="; ")
"""
    without = ("setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin")
    done = subprocess.run((*without, sys.executable, "-c", program), capture_output=True, text=True, timeout=30)
    assert done.stdout.startswith("nf_tables: Operation not permitted; "), done.stderr
    assert "CAP_NET_ADMIN" in done.stdout


def test_a_family_sees_its_own_tables_only(netns: str) -> None:
    with Tables("IPv4", netns) as four, Tables("IPv6", netns) as six:
        four.commit([table("a")])
        six.commit([table("b")])
        assert (names(four), names(six)) == ([b"a"], [b"b"])


def test_a_large_transaction_goes_in_one_piece(netns: str) -> None:
    with Tables("IPv4", netns) as tables:
        before = tables.generation()
        tables.commit([table(f"table-{i:05}-{'x' * 200}") for i in range(2000)])
        assert (len(names(tables)), tables.generation()) == (2000, before + 1)


def test_what_is_not_there_is_none_and_not_an_error(netns: str) -> None:
    with Tables("IPv4", netns) as tables:
        assert tables.dump(Command.GET_SET, attribute(1, b"nowhere\0"), "sets") in (None, [])


def test_items_of_a_list_are_its_payloads_and_a_torn_one_ends_it() -> None:
    body = attribute(1, b"abc") + nested(1, attribute(2, b"x"))
    assert list(items(body)) == [b"abc", attribute(2, b"x")]
    assert list(items(b"\1\0\1\0rest")) == []

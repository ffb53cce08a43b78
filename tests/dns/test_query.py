"""The reader of queries: any bytes give a query, an error reply or silence."""

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.dns.query import BADVERS, FORMERR, NOTIMP, Query, Refusal, failure, parse


def query(name: str = "web.default.svc.cluster.local", rtype: str = "A") -> dns.message.QueryMessage:
    return dns.message.make_query(name, rtype)


def test_a_query_is_read() -> None:
    read = parse(query("Web.example", "SRV").to_wire())
    assert isinstance(read, Query)
    assert (read.labels, read.rtype, read.rclass, read.edns, read.payload) == (("web", "example"), 33, 1, False, 512)


@pytest.mark.parametrize(("asked", "given"), [(100, 512), (800, 800), (4096, 1232)])
def test_edns_says_how_much_the_client_can_take_within_what_is_safe(asked: int, given: int) -> None:
    message = query()
    message.use_edns(0, payload=asked, options=[dns.edns.GenericOption(dns.edns.OptionType.COOKIE, b"\1" * 8)])
    read = parse(message.to_wire())
    assert isinstance(read, Query)
    assert (read.edns, read.payload) == (True, given)


def test_a_reply_is_never_answered() -> None:
    message = query()
    message.flags |= dns.flags.QR
    assert parse(message.to_wire()) is None


def test_less_than_a_header_is_never_answered() -> None:
    assert parse(b"\0" * 11) is None


def refused(packet: bytes) -> int:
    read = parse(packet)
    assert isinstance(read, Refusal), read
    reply = dns.message.from_wire(read.reply)
    assert reply.id == int.from_bytes(packet[:2], "big")
    return int(reply.rcode())


def test_what_is_malformed_is_told_so() -> None:
    wire = query().to_wire()
    assert refused(wire[:-1]) == FORMERR
    assert refused(wire + b"x") == FORMERR
    assert refused(wire[:4] + b"\0\2" + wire[6:]) == FORMERR, "two questions"
    assert refused(wire[:4] + b"\0\0" + wire[6:]) == FORMERR, "no question"
    assert refused(wire[:10] + b"\0\2" + wire[12:]) == FORMERR, "two additional records"
    assert refused(wire[:12] + b"\1a" * 140 + b"\0\0\1\0\1") == FORMERR, "a name too long"


def test_other_operations_are_not_implemented() -> None:
    wire = query().to_wire()
    assert refused(wire[:2] + bytes([wire[2] | 5 << 3]) + wire[3:]) == NOTIMP


def test_a_later_edns_is_told_which_one_is_known() -> None:
    message = query()
    message.use_edns(1)
    read = parse(message.to_wire())
    assert isinstance(read, Refusal)
    assert dns.message.from_wire(read.reply).rcode() == BADVERS


def test_a_name_whose_last_label_runs_out_is_no_name() -> None:
    read = parse(query().to_wire()[:12] + b"\3ab\0" + b"\0\1\0\1")
    assert isinstance(read, Query)
    with pytest.raises(ValueError, match="not a name"):
        _ = read.labels


@given(st.binary(max_size=600))
def test_any_bytes_give_a_query_an_error_or_silence(packet: bytes) -> None:
    read = parse(packet)
    if isinstance(read, Query):
        dns.message.from_wire(failure(read._replace(name=b"\0"), FORMERR))
    elif isinstance(read, Refusal):
        assert dns.message.from_wire(read.reply).rcode() != dns.rcode.NOERROR


@given(st.data())
def test_a_query_with_a_few_bytes_changed_gives_a_query_an_error_or_silence(data: st.DataObject) -> None:
    message = query()
    if data.draw(st.booleans()):
        message.use_edns(0, payload=1232)
    wire = bytearray(message.to_wire())
    for _ in range(data.draw(st.integers(1, 4))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    read = parse(bytes(wire))
    if isinstance(read, Query):
        try:
            assert all(len(label) < 64 for label in read.labels)
        except ValueError:
            return
        assert dns.message.from_wire(failure(read, FORMERR)).question

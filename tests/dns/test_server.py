"""A real server on loopback, asked by dnspython over UDP and TCP; where it forwards, to a real server of ours."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import dns.asyncquery
import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clusterip.client.view import View
from clusterip.dns.addresses import Addresses
from clusterip.dns.forward import Forwarder, Upstream, upstreams
from clusterip.dns.responder import Pending, Responder
from clusterip.dns.server import Listen, Server, listen
from clusterip.dns.tally import Exposition, Tally
from clusterip.dns.zone import Zone
from clusterip.errors import BadInput, Unavailable
from clusterip.model.objects import Endpoint, EndpointSlice, Namespace, ObjectMeta, Service, ServiceSpec, Value

S = "default.svc.cluster.local"
BIG = 120  # endpoints: more than fit into a datagram


class Names:
    """The zone of a few objects that a test can change, and the responder that answers from it."""

    def __init__(self, *servers: Upstream) -> None:
        self.view = View()
        self.addresses = Addresses()
        self.responder = Responder(Zone(("cluster", "local"), self.view, self.addresses), Forwarder(servers), 5)
        self.responder.ready = True
        self.put(Namespace(metadata=ObjectMeta(name="default")))
        self.put(service("web", "10.96.0.20"))
        self.put(service("out", "", external="www.example.com"))
        self.put(service("heads", "None"))
        self.put(endpoints("heads", 3))
        self.put(service("many", "None"))
        self.put(endpoints("many", BIG))

    def put(self, value: Value) -> None:
        self.responder.forget(self.addresses.follow([(self.view.put(value), value)]))


def service(name: str, ip: str, external: str = "") -> Service:
    spec = ServiceSpec(type="ExternalName" if external else "ClusterIP", cluster_ip=ip, external_name=external)
    return Service(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)


def endpoints(name: str, count: int) -> EndpointSlice:
    meta = ObjectMeta(name=f"{name}-1", namespace="default", labels={"kubernetes.io/service-name": name})
    addresses = (f"10.244.{n // 250}.{n % 250 + 2}" for n in range(count))
    return EndpointSlice(metadata=meta, endpoints=tuple(Endpoint(addresses=(a,)) for a in addresses))


@asynccontextmanager
async def serving(responder: Responder, tally: Tally | None = None) -> AsyncIterator[int]:
    server = Server(responder, tally or Tally(), Listen("127.0.0.1", 0))
    task = asyncio.create_task(server.run())
    await asyncio.sleep(0)
    try:
        yield server.port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


Ask = Callable[..., Awaitable[dns.message.Message]]


async def udp(port: int, name: str, rtype: str = "A", **more: object) -> dns.message.Message:
    query = dns.message.make_query(name, rtype, **more)  # type: ignore[arg-type]
    return await dns.asyncquery.udp(query, "127.0.0.1", port=port, timeout=10)


async def tcp(port: int, name: str, rtype: str = "A", **more: object) -> dns.message.Message:
    query = dns.message.make_query(name, rtype, **more)  # type: ignore[arg-type]
    return await dns.asyncquery.tcp(query, "127.0.0.1", port=port, timeout=10)


def data(message: dns.message.Message) -> set[str]:
    return {item.to_text() for rrset in message.answer for item in rrset}


@pytest.mark.parametrize("ask", [udp, tcp])
async def test_a_cluster_ip_is_answered_with_authority_and_its_time_to_live(ask: Ask) -> None:
    async with serving(Names().responder) as port:
        for _ in range(2):  # the second is from the cache
            reply = await ask(port, f"web.{S}")
            assert data(reply) == {"10.96.0.20"}
            assert reply.answer[0].ttl == 5
            assert reply.flags & dns.flags.AA
            assert reply.flags & dns.flags.RD
            assert not reply.flags & dns.flags.RA


async def test_no_such_name_and_no_such_record_are_told_apart() -> None:
    async with serving(Names().responder) as port:
        missing, other = await udp(port, f"nobody.{S}"), await udp(port, f"web.{S}", "AAAA")
    assert (missing.rcode(), other.rcode()) == (dns.rcode.NXDOMAIN, dns.rcode.NOERROR)
    for reply in (missing, other):
        assert not reply.answer
        assert reply.authority[0].rdtype == dns.rdatatype.SOA


async def test_the_question_comes_back_in_its_own_case_from_the_cache_too() -> None:
    async with serving(Names().responder) as port:
        for name in (f"web.{S}", f"WeB.{S}", "wEb.DEFAULT.svc.cluster.local"):
            reply = await udp(port, name)
            assert reply.question[0].name.to_text() == f"{name}."
            assert reply.answer[0].name.to_text() == f"{name}."


async def test_a_change_is_answered_at_once() -> None:
    names = Names()
    async with serving(names.responder) as port:
        assert data(await udp(port, f"web.{S}")) == {"10.96.0.20"}
        assert (await udp(port, f"late.{S}")).rcode() == dns.rcode.NXDOMAIN
        names.put(service("web", "10.96.0.21"))
        names.put(service("late", "10.96.0.22"))
        assert data(await udp(port, f"web.{S}")) == {"10.96.0.21"}
        assert data(await udp(port, f"late.{S}")) == {"10.96.0.22"}
        assert data(await udp(port, "21.0.96.10.in-addr.arpa", "PTR")) == {f"web.{S}."}
        names.put(service("web", "10.96.0.23"))
        assert (await udp(port, "21.0.96.10.in-addr.arpa", "PTR")).rcode() == dns.rcode.REFUSED


async def test_the_first_address_changes_from_reply_to_reply() -> None:
    async with serving(Names().responder) as port:
        replies = [await udp(port, f"heads.{S}") for _ in range(6)]
    assert {next(iter(r.answer[0])).to_text() for r in replies} == {"10.244.0.2", "10.244.0.3", "10.244.0.4"}
    assert all(len(data(r)) == 3 for r in replies)


@pytest.mark.parametrize(("edns", "largest"), [(False, 512), (0, 1232)])
async def test_what_does_not_fit_a_datagram_is_cut_and_whole_over_tcp(edns: int, largest: int) -> None:
    async with serving(Names().responder) as port:
        for _ in range(2):
            cut = await udp(port, f"many.{S}", use_edns=edns, payload=4096)
            assert cut.flags & dns.flags.TC
            assert 0 < len(data(cut)) < BIG
            assert len(cut.to_wire()) <= largest
            whole = await tcp(port, f"many.{S}", use_edns=edns)
            assert not whole.flags & dns.flags.TC
            assert len(data(whole)) == BIG


async def test_one_stream_carries_many_questions() -> None:
    async with serving(Names().responder) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        queries = [dns.message.make_query(f"{name}.{S}", "A").to_wire() for name in ("web", "heads", "nobody") * 5]
        writer.write(b"".join(len(q).to_bytes(2, "big") + q for q in queries))
        for query in queries:
            reply = await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))
            assert reply[:2] == query[:2]
        writer.close()
        await writer.wait_closed()


async def test_a_stream_of_something_else_is_closed() -> None:
    async with serving(Names().responder) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"\0\3abc")
        assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("rtype", ["AXFR", "IXFR"])
async def test_the_zone_is_not_given_away(rtype: str) -> None:
    wire = dns.message.make_query("cluster.local", rtype).to_wire()
    reply = Names().responder.respond(wire, 65535)
    assert isinstance(reply, bytes)
    assert dns.message.from_wire(reply).rcode() == dns.rcode.REFUSED


async def test_other_classes_are_refused() -> None:
    async with serving(Names().responder) as port:
        assert (await udp(port, "version.bind", "TXT", rdclass="CH")).rcode() == dns.rcode.REFUSED


async def test_before_the_objects_are_known_nothing_is_denied() -> None:
    names = Names()
    names.responder.ready = False
    async with serving(names.responder) as port:
        assert (await udp(port, f"nobody.{S}")).rcode() == dns.rcode.SERVFAIL
        names.responder.ready = True
        assert (await udp(port, f"nobody.{S}")).rcode() == dns.rcode.NXDOMAIN


async def test_without_a_forwarder_other_names_are_refused_and_a_cname_stands_alone() -> None:
    async with serving(Names().responder) as port:
        assert (await udp(port, "example.com")).rcode() == dns.rcode.REFUSED
        reply = await udp(port, f"out.{S}")
    assert data(reply) == {"www.example.com."}
    assert reply.rcode() == dns.rcode.NOERROR


class Outside:
    """A name server for www.example.com; `big` has more records than a datagram holds, `mute` is never answered."""

    def respond(self, packet: bytes, stream_limit: int = 0) -> bytes | None:
        query = dns.message.from_wire(packet)
        reply = dns.message.make_response(query)
        name = query.question[0].name
        match name.to_text():
            case "www.example.com.":
                reply.answer.append(dns.rrset.from_text(name, 60, "IN", "A", "203.0.113.7"))
            case "big.example.com.":
                texts = [f"203.0.113.{n}" for n in range(1, 200)]
                reply.answer.append(dns.rrset.from_text_list(name, 60, "IN", "A", texts))
            case "mute.example.com.":
                return None
            case _:
                reply.set_rcode(dns.rcode.NXDOMAIN)
        return reply.to_wire(max_size=stream_limit or 512, prefer_truncation=True)

    async def finish(self, pending: Pending) -> bytes:
        raise AssertionError(pending)


@asynccontextmanager
async def forwarding() -> AsyncIterator[int]:
    async with serving(Outside()) as outside, serving(Names(Upstream("127.0.0.1", outside)).responder) as port:  # type: ignore[arg-type]
        yield port


@pytest.mark.parametrize("ask", [udp, tcp])
async def test_other_names_are_asked_elsewhere(ask: Ask) -> None:
    async with forwarding() as port:
        reply = await ask(port, "www.example.com")
        assert data(reply) == {"203.0.113.7"}
        assert (await ask(port, "no.example.com")).rcode() == dns.rcode.NXDOMAIN
        assert (await ask(port, f"web.{S}")).flags & dns.flags.RA


async def test_a_reply_that_was_cut_is_fetched_whole_for_who_can_take_it() -> None:
    async with forwarding() as port:
        assert len(data(await tcp(port, "big.example.com"))) == 199
        cut = await udp(port, "big.example.com")
        assert cut.flags & dns.flags.TC


@pytest.mark.parametrize("ask", [udp, tcp])
async def test_an_external_name_comes_with_the_addresses_it_leads_to(ask: Ask) -> None:
    async with forwarding() as port:
        assert data(await ask(port, f"out.{S}")) == {"www.example.com.", "203.0.113.7"}


async def test_an_upstream_that_is_silent_is_a_failure_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterip.dns.forward.TIMEOUT", 0.05)
    async with forwarding() as port:
        assert (await udp(port, "mute.example.com")).rcode() == dns.rcode.SERVFAIL


async def test_an_upstream_that_is_not_there_is_a_failure_of_the_server() -> None:
    async with serving(Names().responder) as gone:
        pass
    async with serving(Names(Upstream("127.0.0.1", gone)).responder) as port:
        assert (await udp(port, "www.example.com")).rcode() == dns.rcode.SERVFAIL


async def test_too_many_waiting_questions_are_failures_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterip.dns.forward.MAX_IN_FLIGHT", 0)
    async with forwarding() as port:
        assert (await udp(port, "www.example.com")).rcode() == dns.rcode.SERVFAIL


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (":53", Listen("", 53)),
        ("10.96.0.10:53", Listen("10.96.0.10", 53)),
        ("[fd00:96::a]:53", Listen("fd00:96::a", 53)),
    ],
)
def test_where_to_listen_is_an_address_and_a_port_or_a_port_alone(option: str, expected: Listen) -> None:
    assert listen(option) == expected
    assert str(expected) == option


@pytest.mark.parametrize("option", ["53", "", ":", ":x", ":70000", "here:53", "10.96.0.10", "fd00:96::a"])
def test_what_is_nowhere_to_listen_is_told_with_how_to_write_it(option: str) -> None:
    with pytest.raises(BadInput) as caught:
        listen(option)
    assert "fd00:96::a" in caught.value.hint


async def test_a_taken_port_is_told() -> None:
    async with serving(Names().responder) as port:
        with pytest.raises(Unavailable, match="cannot be listened on"):
            Server(Names().responder, Tally(), Listen("127.0.0.1", port))


async def test_queries_and_replies_are_counted() -> None:
    tally = Tally()
    async with serving(Names().responder, tally) as port:
        await udp(port, f"web.{S}")
        await tcp(port, f"nobody.{S}")
    text = Exposition(tally).text().decode()
    assert 'clusterip_dns_requests_total{proto="udp"} 1.0' in text
    assert 'clusterip_dns_requests_total{proto="tcp"} 1.0' in text
    assert 'clusterip_dns_responses_total{rcode="NXDOMAIN"} 1.0' in text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=300), max_size=5), st.binary(max_size=63))
def test_any_bytes_get_a_reply_that_can_be_read_or_none(packets: list[bytes], label: bytes) -> None:
    responder = Names().responder
    name = bytes([len(label)]) + label + b"\3svc\7cluster\5local\0"
    spelled = b"\0\7\1\0\0\1\0\0\0\0\0\0" + name + b"\0\1\0\1"
    for packet in (*packets, spelled, spelled):
        for limit in (0, 65535):
            reply = responder.respond(packet, limit)
            if isinstance(reply, bytes):
                assert len(reply) <= (limit or 1232)
                assert dns.message.from_wire(reply).id == int.from_bytes(packet[:2], "big")


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("none", ()),
        ("192.0.2.1", (Upstream("192.0.2.1", 53),)),
        ("192.0.2.1:5353,192.0.2.2", (Upstream("192.0.2.1", 5353), Upstream("192.0.2.2", 53))),
        ("2001:db8::1", (Upstream("2001:db8::1", 53),)),
        ("[2001:db8::1]:5353", (Upstream("2001:db8::1", 5353),)),
    ],
)
def test_an_upstream_is_written_with_or_without_port(option: str, expected: tuple[Upstream, ...]) -> None:
    assert upstreams(option) == expected


@pytest.mark.parametrize("option", ["somewhere", "192.0.2.1:0", "192.0.2.1:x", "192.0.2.1:99999", "1.2.3"])
def test_what_is_no_upstream_is_told_with_how_to_write_one(option: str) -> None:
    with pytest.raises(BadInput) as caught:
        upstreams(option)
    assert option in caught.value.message
    assert caught.value.hint


def test_upstreams_are_read_from_a_resolv_conf(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("etc") / "resolv.conf"
    path.write_text("# said\nsearch a b\nnameserver 192.0.2.1\nnameserver fe80::1%eth0\n")
    assert upstreams(str(path)) == (Upstream("192.0.2.1"), Upstream("fe80::1"))
    path.write_text("search a\n")
    with pytest.raises(BadInput, match="names no nameserver"):
        upstreams(str(path))

import asyncio
import socket
import struct
import uuid
from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterip.kernel import netns
from clusterip.kernel.capture import CaptureFailed, Flag, Packet, capture, decode, decode_ip, end, involving
from clusterip.kernel.run import run

MACS = bytes(12)


def packed(address: str) -> bytes:
    return ip_address(address).packed


def ethernet(kind: int, body: bytes) -> bytes:
    return MACS + struct.pack("!H", kind) + body


def ipv4(source: str, destination: str, number: int, body: bytes, fragment: int = 0, options: bytes = b"") -> bytes:
    size = 20 + len(options)
    head = struct.pack("!BBHHHBBH", 0x40 | size // 4, 0, size + len(body), 1, fragment, 64, number, 0)
    return head + packed(source) + packed(destination) + options + body


def ipv6(source: str, destination: str, number: int, body: bytes) -> bytes:
    return struct.pack("!IHBB", 6 << 28, len(body), number, 64) + packed(source) + packed(destination) + body


def tcp(source: int, destination: int, flags: Flag, payload: bytes = b"") -> bytes:
    return struct.pack("!HHIIBBHHH", source, destination, 1, 0, 5 << 4, flags, 64240, 0, 0) + payload


def udp(source: int, destination: int, payload: bytes = b"") -> bytes:
    return struct.pack("!HHHH", source, destination, 8 + len(payload), 0) + payload


ROWS = [
    (ipv4("10.244.1.5", "10.96.103.181", 6, tcp(41234, 80, Flag.SYN)), "10.244.1.5:41234 > 10.96.103.181:80 tcp SYN"),
    (
        ipv4("10.96.103.181", "10.244.1.5", 6, tcp(80, 41234, Flag.SYN | Flag.ACK), options=bytes(8)),
        "10.96.103.181:80 > 10.244.1.5:41234 tcp SYN,ACK",
    ),
    (
        ipv4("10.0.0.1", "10.0.0.2", 6, tcp(1, 2, Flag.PSH | Flag.ACK, b"x" * 78)),
        "10.0.0.1:1 > 10.0.0.2:2 tcp PSH,ACK 78 bytes",
    ),
    (ipv4("10.0.0.1", "10.0.0.2", 17, udp(53, 999, b"abc")), "10.0.0.1:53 > 10.0.0.2:999 udp 3 bytes"),
    (
        ipv4("10.244.1.1", "10.244.1.5", 1, struct.pack("!BBHI", 8, 0, 0, 0)),
        "10.244.1.1 > 10.244.1.5 icmp echo request",
    ),
    (ipv4("10.0.0.1", "10.0.0.2", 17, b"rest of it", fragment=0x0010), "10.0.0.1 > 10.0.0.2 udp 10 bytes"),
    (ipv4("10.0.0.1", "10.0.0.2", 132, b"12345678"), "10.0.0.1 > 10.0.0.2 132 8 bytes"),
    (ipv6("fd00:1:1::5", "fd00:96::7", 6, tcp(41234, 80, Flag.RST)), "[fd00:1:1::5]:41234 > [fd00:96::7]:80 tcp RST"),
    (
        ipv6("fd00::1", "fd00::2", 0, struct.pack("!BB6x", 60, 0) + struct.pack("!BB14x", 17, 1) + udp(5, 6)),
        "[fd00::1]:5 > [fd00::2]:6 udp 0 bytes",
    ),
    (
        ipv6("fd00::1", "fd00::2", 44, struct.pack("!BBHI", 17, 0, 8 << 3, 7) + b"later"),
        "fd00::1 > fd00::2 udp 5 bytes",
    ),
    (
        ipv6("fd00::1", "fd00::2", 58, struct.pack("!BBHI", 135, 0, 0, 0)),
        "fd00::1 > fd00::2 icmpv6 neighbour solicitation",
    ),
]


@pytest.mark.parametrize(("data", "text"), ROWS, ids=[text for _, text in ROWS])
def test_a_packet_reads_as_one_line(data: bytes, text: str) -> None:
    kind = 0x86DD if data[0] >> 4 == 6 else 0x0800
    packet = decode(ethernet(kind, data))
    assert packet is not None
    assert packet.text.strip() == text


def test_an_icmp_error_says_which_packet_it_is_about() -> None:
    about = ipv4("10.244.1.5", "10.96.0.9", 17, udp(4000, 53))
    packet = decode_ip(ipv4("10.244.1.1", "10.244.1.5", 1, struct.pack("!BBHI", 3, 3, 0, 0) + about))
    assert packet is not None
    assert packet.text == "10.244.1.1 > 10.244.1.5 icmp port unreachable (10.244.1.5:4000 > 10.96.0.9:53 udp)"


def test_eight_quoted_bytes_are_enough_to_name_a_tcp_connection() -> None:
    about = ipv4("10.244.1.5", "10.96.0.9", 6, tcp(4000, 80, Flag.SYN))[:28]
    packet = decode_ip(ipv4("10.244.1.1", "10.244.1.5", 1, struct.pack("!BBHI", 3, 3, 0, 0) + about))
    assert packet is not None
    assert packet.quoted is not None
    assert (packet.quoted.source_port, packet.quoted.destination_port) == (4000, 80)


def test_the_padding_of_a_short_frame_is_no_payload() -> None:
    packet = decode(ethernet(0x0800, ipv4("10.0.0.1", "10.0.0.2", 6, tcp(1, 2, Flag.ACK)) + bytes(6)))
    assert packet is not None
    assert packet.payload == 0


def test_the_padding_of_a_short_frame_is_no_header_either() -> None:
    assert decode(ethernet(0x0800, ipv4("10.0.0.1", "10.0.0.2", 17, b"12") + bytes(24))) is None


def test_vlan_tags_are_looked_through() -> None:
    inner = ipv4("10.0.0.1", "10.0.0.2", 17, udp(1, 2))
    tagged = MACS + struct.pack("!HHHHH", 0x88A8, 7, 0x8100, 8, 0x0800) + inner
    assert decode(tagged) == decode(ethernet(0x0800, inner)) != None  # noqa: E711


def test_arp_is_no_packet() -> None:
    assert decode(ethernet(0x0806, bytes(28))) is None


@given(st.sampled_from([data for data, _ in ROWS]), st.integers(0, 60))
def test_a_frame_cut_short_is_a_packet_or_nothing_but_never_an_error(data: bytes, kept: int) -> None:
    kind = 0x86DD if data[0] >> 4 == 6 else 0x0800
    decode(ethernet(kind, data)[:kept])


@given(st.binary(max_size=120))
def test_random_bytes_are_a_packet_or_nothing_but_never_an_error(data: bytes) -> None:
    decode(data)
    decode_ip(data)


ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)


@given(ADDRESSES, st.data(), st.integers(1, 65535), st.integers(1, 65535), st.binary(max_size=40))
def test_what_is_sent_is_what_is_decoded(source: str, data: st.DataObject, sport: int, dport: int, body: bytes) -> None:
    version = ip_address(source).version
    destination = str(data.draw(st.ip_addresses(v=version)))
    build = ipv4 if version == 4 else ipv6
    sent = Packet(source, destination, "tcp", sport, dport, Flag.PSH | Flag.ACK, payload=len(body))
    assert decode_ip(build(source, destination, 6, tcp(sport, dport, Flag.PSH | Flag.ACK, body))) == sent


def test_a_match_wants_address_and_port_at_the_same_end() -> None:
    wanted = involving("10.0.0.1", 80, "tcp")
    assert wanted(Packet("10.0.0.1", "10.0.0.2", "tcp", 80, 5))
    assert wanted(Packet("10.0.0.2", "10.0.0.1", "tcp", 5, 80))
    assert not wanted(Packet("10.0.0.1", "10.0.0.2", "tcp", 5, 80))
    assert not wanted(Packet("10.0.0.1", "10.0.0.2", "udp", 80, 5))


def test_an_ipv6_end_has_brackets_only_with_a_port() -> None:
    assert end("fd00::1", 53) == "[fd00::1]:53"
    assert end("fd00::1", 0) == "fd00::1"


# --- against the kernel ----------------------------------------------------------------------------------------


@pytest.fixture
def space() -> Iterator[str]:
    name = f"t{uuid.uuid4().hex[:8]}"
    netns.create(name)
    yield name
    netns.delete(name)


@pytest.mark.kernel
async def test_a_connection_is_seen_in_the_other_namespace_and_in_order(space: str) -> None:
    await run(("ip", "link", "set", "lo", "up"), netns=space)
    with netns.inside(space):
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.socket()
    port = server.getsockname()[1]
    async with capture(space, "lo", involving(port=port, protocol="tcp")) as packets:
        client.connect(("127.0.0.1", port))
        await packets.first(lambda p: p.flags == Flag.SYN | Flag.ACK)
        client.close()
    server.close()
    received = [packet for packet in packets.seen if not packet.outgoing]
    assert [packet.flags for packet in received[:3]] == [Flag.SYN, Flag.SYN | Flag.ACK, Flag.ACK]
    assert received[0].destination_port == received[1].source_port == port
    times = [packet.at for packet in received]
    assert times == sorted(times)
    assert times[0] > 0
    assert packets.lost == 0


@pytest.mark.kernel
async def test_what_passes_elsewhere_is_not_seen(space: str) -> None:
    for space_link in (("ip", "link", "set", "lo", "up"), ("ip", "link", "add", "quiet0", "type", "bridge")):
        await run(space_link, netns=space)
    await run(("ip", "link", "set", "quiet0", "up"), netns=space)
    with netns.inside(space):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    async with capture(space, "lo") as heard, capture(space, "quiet0", involving(protocol="udp")) as quiet:
        sender.sendto(b"hello", ("127.0.0.1", 9))
        await heard.first(involving(port=9, protocol="udp"))
    sender.close()
    assert quiet.seen == ()


@pytest.mark.kernel
async def test_frames_that_wait_when_the_capture_ends_are_not_lost(space: str) -> None:
    await run(("ip", "link", "set", "lo", "up"), netns=space)
    with netns.inside(space):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    async with capture(space, "lo", involving(port=9, protocol="udp")) as packets:
        for _ in range(1500):
            sender.sendto(b"hello", ("127.0.0.1", 9))
    sender.close()
    # Each passes lo twice: sent and received. The ICMP refusals quote the port but are not UDP.
    assert len(packets.seen) == 3000


@pytest.mark.kernel
async def test_waiting_for_a_packet_that_does_not_come_ends(space: str) -> None:
    await run(("ip", "link", "set", "lo", "up"), netns=space)
    async with capture(space, "lo") as packets:
        with pytest.raises(TimeoutError):
            await packets.first(within=0.05)


@pytest.mark.kernel
async def test_an_interface_that_is_not_there_is_named_in_the_error(space: str) -> None:
    with pytest.raises(CaptureFailed, match="interface nope0"):
        async with capture(space, "nope0"):
            pass


@pytest.mark.kernel
async def test_the_process_stays_in_its_own_namespace(space: str) -> None:
    import os

    before = os.readlink("/proc/thread-self/ns/net")
    async with capture(space, "lo"):
        await asyncio.sleep(0)
        assert os.readlink("/proc/thread-self/ns/net") == before

"""A node with three pods, and the world behind its uplink, each in a network namespace of its own.

                 client 10.244.1.7 ─┐
    backend one.    10.244.1.8 ─────┼─ cip0 10.244.1.1 · node · eth0 192.168.50.11 ── 192.168.50.1 far
    backend two     10.244.1.9 ─────┘                                                 203.0.113.9, 10.244.2.5

`far` plays the client outside and the backend on another node. The pods' bridge passes its frames to the rules
(br_netfilter), and its ports are hairpins, as the laboratory's are.
"""

import os
import secrets
import select
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from clusterip.kernel import netns
from clusterip.kernel.capture import Flag, Packet, decode
from clusterip.rulesets.traced import Headers

NODE_IP, GATEWAY, FAR_IP = "192.168.50.11", "10.244.1.1", "192.168.50.1"
CLIENT, ONE, TWO = "10.244.1.7", "10.244.1.8", "10.244.1.9"
OUTSIDE, REMOTE = "203.0.113.9", "10.244.2.5"
PODS = {"client": CLIENT, "one": ONE, "two": TWO}
TCP_PORTS, UDP_PORT = (8080, 9090), 5353  # where every backend answers
HERE = b"here"  # what UDP answers


class Source(NamedTuple):
    """Who sends: as `clusterip trace` is asked, and where the packet is made."""

    asked: str
    place: str  # of the topology
    address: str  # "": the routes choose


SOURCES = (
    Source(f"pod:{CLIENT}", "client", CLIENT),
    Source(f"pod:{ONE}", "one", ONE),
    Source("node", "node", ""),
    Source(f"outside:{OUTSIDE}", "far", OUTSIDE),
    Source(f"pod:{REMOTE}", "far", REMOTE),
)


@dataclass(frozen=True, slots=True)
class Topology:
    prefix: str
    _sockets: list[socket.socket] = field(default_factory=list)  # that listen, everywhere
    _taps: list[socket.socket] = field(default_factory=list)  # raw: packets as they reach a pod or the world

    def netns(self, place: str) -> str:
        return f"{self.prefix}-{place}"

    def answer(self) -> None:
        """Accept what was connected, and answer datagrams: a socket's queue is short."""
        while True:
            ready, _, _ = select.select(self._sockets, [], [], 0)
            if not ready:
                return
            for one in ready:
                with suppress(BlockingIOError, ConnectionError, PermissionError):
                    if one.type == socket.SOCK_STREAM:
                        accepted, _ = one.accept()
                        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                        accepted.close()
                    else:
                        _, peer = one.recvfrom(2048)
                        one.sendto(HERE, peer)

    def arrived(self) -> Headers | None:
        """The last first packet of a flow that reached a pod or the world since this was asked before."""
        last: Headers | None = None
        for tap in self._taps:
            with suppress(BlockingIOError):
                while True:
                    frame, address = tap.recvfrom(2048)
                    packet = None if address[2] == socket.PACKET_OUTGOING else decode(frame)
                    if packet and _is_first(packet):
                        ends = (packet.source, packet.destination, packet.protocol)
                        last = Headers(*ends, packet.source_port, packet.destination_port)
        return last


def _is_first(packet: Packet) -> bool:
    if packet.protocol == "udp":
        return packet.payload > len(HERE)  # longer than any answer
    return packet.protocol == "tcp" and packet.flags == Flag.SYN


@contextmanager
def topology() -> Iterator[Topology]:
    made = Topology(f"mk{os.getpid()}{secrets.token_hex(2)}")
    places = ("node", *PODS, "far")
    with ExitStack() as undo:
        for place in places:
            netns.create(made.netns(place))
            undo.callback(netns.delete, made.netns(place))
        _connect(made)
        for place in places:
            with netns.inside(made.netns(place)):
                for address in _addresses(place):
                    made._sockets.extend(undo.enter_context(one) for one in _listening(address))
                if place != "node":
                    made._taps.append(undo.enter_context(_tap()))
        yield made


def _addresses(place: str) -> Sequence[str]:
    return {"node": (NODE_IP,), "far": (REMOTE, OUTSIDE)}.get(place) or (PODS[place],)


def _listening(address: str) -> Iterator[socket.socket]:
    for port in (*TCP_PORTS, UDP_PORT):
        kind = socket.SOCK_DGRAM if port == UDP_PORT else socket.SOCK_STREAM
        one = socket.socket(socket.AF_INET, kind)
        one.bind((address, port))
        one.setblocking(False)
        if kind == socket.SOCK_STREAM:
            one.listen(64)
        yield one


def _tap() -> socket.socket:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    tap.bind(("eth0", 0x0800))
    tap.setblocking(False)
    return tap


def _connect(made: Topology) -> None:
    node, far = made.netns("node"), made.netns("far")
    for place in ("node", *PODS, "far"):
        _sysctl(made.netns(place), "net/ipv4/conf/all/rp_filter", "0")
        _sysctl(made.netns(place), "net/ipv4/conf/default/rp_filter", "0")
        _ip(made.netns(place), "link set lo up")
    _sysctl(node, "net/ipv4/ip_forward", "1")
    _ip(
        node,
        "link add cip0 address 0a:58:0a:f4:01:01 type bridge forward_delay 0",
        f"address add {GATEWAY}/24 dev cip0",
        "link set cip0 up",
        f"link add eth0 type veth peer name eth0 netns {far}",
        f"address add {NODE_IP}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {FAR_IP}",
        f"route add 10.244.2.0/24 via {FAR_IP}",
    )
    _ip(
        far,
        "link set eth0 up",
        f"address add {FAR_IP}/24 dev eth0",
        f"address add {OUTSIDE}/32 dev lo",
        f"address add {REMOTE}/32 dev lo",
        f"route add default via {NODE_IP}",
    )
    for name, address in PODS.items():
        _ip(
            node,
            f"link add v{name} type veth peer name eth0 netns {made.netns(name)}",
            f"link set v{name} master cip0",
            f"link set v{name} type bridge_slave hairpin on",
            f"link set v{name} up",
        )
        _ip(
            made.netns(name),
            f"address add {address}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {GATEWAY}",
        )


def _ip(namespace: str, *lines: str) -> None:
    subprocess.run(("ip", "-n", namespace, "-batch", "-"), input="\n".join(lines), text=True, check=True)


def _sysctl(namespace: str, name: str, value: str) -> None:
    with netns.inside(namespace), open(f"/proc/sys/{name}", "w") as file:
        file.write(value)


def run(namespace: str, *argv: str, stdin: str = "") -> str:
    """What the program said, in the namespace; its own words if it fails."""
    done = subprocess.run(
        ("nsenter", f"--net=/run/netns/{namespace}", "--", *argv), input=stdin, text=True, capture_output=True
    )
    assert not done.returncode, f"{' '.join(argv)}: {done.stderr}\n{stdin}"
    return done.stdout

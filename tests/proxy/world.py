"""A node with two pods, a pod on another node, and a client outside, in namespaces of their own.

    outside 203.0.113.9 ---- node 192.168.50.11 (10.244.1.1, bridge cip0) ---- pod a 10.244.1.2, pod b 10.244.1.3
    far pod 10.244.2.2  ----/

Servers answer a connection or datagram with "<their name> <the address they saw>".
"""

import contextlib
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator

from clusterip.kernel import netns as namespaces

POD_A, POD_B, FAR, OUTSIDE = "10.244.1.2", "10.244.1.3", "10.244.2.2", "203.0.113.9"
NODE, GATEWAY = "192.168.50.11", "10.244.1.1"
POD_A6, POD_B6, FAR6, OUTSIDE6 = "fd00:1:1::2", "fd00:1:1::3", "fd00:1:2::2", "2001:db8::9"
NODE6, GATEWAY6 = "fd00:50::11", "fd00:1:1::1"
SIX = {POD_A: POD_A6, POD_B: POD_B6, FAR: FAR6, OUTSIDE: OUTSIDE6, NODE: NODE6}
PORT = 8080


class World:
    def __init__(self) -> None:
        tag = uuid.uuid4().hex[:6]
        self.node = f"px-{tag}-node"
        self.pods = {POD_A: f"px-{tag}-a", POD_B: f"px-{tag}-b", FAR: f"px-{tag}-far", OUTSIDE: f"px-{tag}-out"}
        self._ends: list[socket.socket] = []

    def build(self) -> None:
        for name in (self.node, *self.pods.values()):
            namespaces.create(name)
            self.run(name, "ip link set lo up")
        for name in (self.node, *self.pods.values()):
            self.run(name, "sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0")
        # A kernel sends six refusals to one client and then one a second; a test asks more often.
        self.run(self.node, "sysctl -qw net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0")
        self.run(
            self.node,
            "ip link add cip0 type bridge forward_delay 0 mcast_snooping 0",
            f"ip addr add {GATEWAY}/24 dev cip0",
        )
        self.run(self.node, "ip link set cip0 up", f"ip addr add {NODE}/32 dev lo")
        for number, address in enumerate((POD_A, POD_B)):
            self.run(self.node, f"ip link add v{number} type veth peer name eth0 netns {self.pods[address]}")
            self.run(self.node, f"ip link set v{number} master cip0 up", f"bridge link set dev v{number} hairpin on")
            self.run(self.pods[address], f"ip addr add {address}/24 dev eth0", "ip link set eth0 up")
            self.run(self.pods[address], f"ip route add default via {GATEWAY}")
        for number, address in enumerate((FAR, OUTSIDE)):
            self.run(self.node, f"ip link add w{number} type veth peer name eth0 netns {self.pods[address]}")
            self.run(self.node, f"ip link set w{number} up", f"ip route add {address} dev w{number} src {NODE}")
            self.run(self.pods[address], "ip link set eth0 up", f"ip addr add {address}/32 dev eth0")
            self.run(self.pods[address], f"ip route add {NODE} dev eth0", f"ip route add default via {NODE}")
        self._build_six()
        # A node hands packets for Services on by its default route, before any rule has changed where they go.
        self.run(self.node, "ip route add default dev w1 src " + NODE)

    def _build_six(self) -> None:
        for name in (self.node, *self.pods.values()):
            self.run(name, "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0")
        self.run(self.node, "sysctl -qw net.ipv6.conf.all.forwarding=1 net.ipv6.icmp.ratelimit=0")
        self.run(self.node, f"ip addr add {GATEWAY6}/64 dev cip0 nodad")
        for address in (POD_A, POD_B):
            self.run(self.pods[address], f"ip addr add {SIX[address]}/64 dev eth0 nodad")
            self.run(self.pods[address], f"ip route add default via {GATEWAY6} dev eth0")
        for number, address in enumerate((FAR, OUTSIDE)):
            pod = self.pods[address]
            # IPv6 answers for an address only on the link that has it, so both links have the node's.
            self.run(self.node, f"ip addr add {NODE6}/128 dev w{number} nodad")
            self.run(self.node, f"ip route add {SIX[address]}/128 dev w{number} src {NODE6}")
            self.run(pod, f"ip addr add {SIX[address]}/128 dev eth0 nodad", f"ip route add {NODE6}/128 dev eth0")
            self.run(pod, f"ip route add default via {NODE6} dev eth0")
        self.run(self.node, f"ip route add default dev w1 src {NODE6}")
        for address in self.pods:
            self._until_reachable(SIX[address])

    def _until_reachable(self, address: str) -> None:
        """A new link may say only after a second that it is up, and IPv6 answers for no address before that."""
        with namespaces.inside(self.node):
            asker = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        with asker:
            for _ in range(100):
                asker.sendto(b"?", (address, 9))
                if any(state in self.run(self.node, f"ip -6 neigh show {address}") for state in ("REACHABLE", "DELAY")):
                    return
                time.sleep(0.05)
        raise AssertionError(f"{address} does not answer for its address")

    def remove(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for name in (self.node, *self.pods.values()):
            namespaces.delete(name)

    def run(self, netns: str, *commands: str) -> str:
        said = ""
        for command in commands:
            argv = ("nsenter", f"--net=/run/netns/{netns}", "--", *command.split())
            said += subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        return said

    def on_node(self, *commands: str) -> str:
        return self.run(self.node, *commands)

    def rules(self) -> str:
        return self.on_node("iptables-save")

    def serve(self, address: str, name: str = "", port: int = PORT) -> None:
        """TCP and UDP at a pod's address."""
        with namespaces.inside(self.pods[address]):
            tcp = socket.create_server(("::", port), family=socket.AF_INET6, backlog=64, dualstack_ipv6=True)
            udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            udp.bind(("::", port))
        self._ends += [tcp, udp]
        threading.Thread(target=_serve_tcp, args=(tcp, name or address), daemon=True).start()
        threading.Thread(target=_serve_udp, args=(udp, name or address), daemon=True).start()

    def socket(
        self, client: str, kind: int = socket.SOCK_STREAM, timeout: float = 3.0, six: bool = False
    ) -> socket.socket:
        """In the namespace of `client`, an IPv4 address of a pod; NODE is the node."""
        with namespaces.inside(self.node if client == NODE else self.pods[client]):
            made = socket.socket(socket.AF_INET6 if six else socket.AF_INET, kind)
        made.settimeout(timeout)
        return made

    def ask(self, client: str, address: str, port: int = 80, timeout: float = 3.0) -> tuple[str, str]:
        """Which server answered, and which client address it saw. Raises ConnectionRefusedError or TimeoutError."""
        with self.socket(client, timeout=timeout, six=":" in address) as connection:
            connection.connect((address, port))
            said = connection.recv(200).decode().split()
        return said[0], said[1]


def _answer(name: str, peer: str) -> bytes:
    return f"{name} {peer.removeprefix('::ffff:')}".encode()


def _serve_tcp(listener: socket.socket, name: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, peer = listener.accept()
            with contextlib.suppress(OSError), connection:
                connection.sendall(_answer(name, peer[0]))


def _serve_udp(end: socket.socket, name: str) -> None:
    with contextlib.suppress(OSError):
        while True:
            _, peer = end.recvfrom(2000)
            if peer is None:  # shut down
                return
            end.sendto(_answer(name, peer[0]), peer)


@contextlib.contextmanager
def world() -> Iterator[World]:
    made = World()
    try:
        made.build()
        yield made
    finally:
        made.remove()

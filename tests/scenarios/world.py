"""The members of the pages as network namespaces, with servers in them, and sockets opened in them from one process.

    outside, x, z, node2 ---- node ---- bridge cip0 ---- a, b, c
                              default route ---- beyond

`beyond` is the rest of the world: it answers whatever it is sent, so that a packet that was let pass is told from one
that was dropped.
"""

import contextlib
import selectors
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.scenarios.members import BRIDGE, FAMILIES, GATEWAY, LOCAL_PODS, MEMBERS, NODE
from tests.scenarios.page import PORT

from clusterip.kernel import netns as namespaces
from clusterip.kernel import sysctl
from clusterip.services.table import Family

BEYOND = "beyond"
FAR = ("outside", "x", "z", "node2")  # each on a link of its own to the node
CATCHES = 7  # the port at which `beyond` hears everything
AF: dict[Family, socket.AddressFamily] = {"IPv4": socket.AF_INET, "IPv6": socket.AF_INET6}
_BEYOND: dict[Family, str] = {"IPv4": "198.51.100.1", "IPv6": "2001:db8:51::1"}


class Servers:
    """All servers in one thread. Each tells a client `NAME PORT CLIENT'S-ADDRESS`, then gives back what it is sent."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._alarm, self._ears = socket.socketpair()
        self._selector.register(self._ears, selectors.EVENT_READ, None)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def add(self, name: str, stream: socket.socket, datagram: socket.socket) -> None:
        port = stream.getsockname()[1]
        for end, work in ((stream, self._accept), (datagram, self._answer)):
            end.setblocking(False)
            self._selector.register(end, selectors.EVENT_READ, (work, f"{name} {port}"))
        self._alarm.send(b".")

    def close(self) -> None:
        self._alarm.close()
        self._thread.join(5)
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    if not self._ears.recv(100):
                        return
                    continue
                work, name = key.data
                with contextlib.suppress(OSError):
                    work(key.fileobj, name)

    def _accept(self, listener: socket.socket, name: str) -> None:
        connection, peer = listener.accept()
        connection.send(_told(name, peer))
        connection.setblocking(False)
        self._selector.register(connection, selectors.EVENT_READ, (self._echo, b""))

    def _echo(self, connection: socket.socket, _: object) -> None:
        try:
            said = connection.recv(1 << 16)
            if said:
                connection.settimeout(2)
                connection.sendall(said)
                connection.setblocking(False)
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._selector.unregister(connection)
        connection.close()

    def _answer(self, end: socket.socket, name: str) -> None:
        said, peer = end.recvfrom(1 << 16)
        end.sendto(_told(name, peer) + said, peer)


def _told(name: str, peer: tuple[str, int]) -> bytes:
    return f"{name} {peer[0].removeprefix('::ffff:')}\n".encode()


def _here(work: Callable[[], socket.socket]) -> socket.socket:
    return work()


@dataclass
class World:
    """`opener` opens the sockets of this node's pods and processes: in eBPF mode a thread in the node's cgroup does."""

    mark: str
    servers: Servers
    opener: Callable[[Callable[[], socket.socket]], socket.socket] = _here
    ports: set[int] = field(default_factory=set)  # that the members serve

    def netns(self, name: str) -> str:
        return f"sc-{self.mark}-{name}"

    @property
    def node(self) -> str:
        return self.netns("node")

    def socket(self, member: str, family: Family, kind: int, protocol: int = 0) -> socket.socket:
        """Opened in the namespace of the member."""

        def make() -> socket.socket:
            with namespaces.inside(self.netns(member)):
                return socket.socket(AF[family], kind, protocol)

        return self.opener(make) if member in (*LOCAL_PODS, "node") else make()

    def serve(self, port: int) -> None:
        """At all members that can be a backend, in both families."""
        if port in self.ports:
            return
        self.ports.add(port)
        for member in (*LOCAL_PODS, "x", "z", "node", "node2"):
            for family in FAMILIES:
                # Each at the member's own address: an answer from the node must not come from another of its own.
                self.serve_at(member, family, (MEMBERS[member].address(family), port))

    def serve_at(self, member: str, family: Family, at: tuple[str, int]) -> None:
        ends = [self.socket(member, family, kind) for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
        for end in ends:
            if family == "IPv6":
                end.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            end.bind(at)
        ends[0].listen(256)
        self.servers.add(member, *ends)


@contextlib.contextmanager
def world() -> Iterator[World]:
    made = World(uuid.uuid4().hex[:6], Servers())
    names = [made.netns(name) for name in (*MEMBERS, BEYOND)]
    try:
        for name in names:
            namespaces.create(name)
            _settle(name)
        _connect_node(made)
        for member in (*MEMBERS, BEYOND):
            if member != "node":
                _connect(made, member)
        made.serve(PORT)
        _catch_all(made)
        for member in (*LOCAL_PODS, "x", "z", "node2"):
            for family in FAMILIES:
                _until_answers(made, "node", family, (MEMBERS[member].address(family), PORT))
        for client in (*LOCAL_PODS, *FAR, "node"):
            for family in FAMILIES:
                _until_answers(made, client, family, (_BEYOND[family], 80))
        yield made
    finally:
        made.servers.close()
        for name in names:
            namespaces.delete(name)


def _ip(netns: str, *lines: str) -> None:
    subprocess.run(("ip", "-n", netns, "-batch", "-"), input="\n".join(lines), text=True, check=True)


def _settle(netns: str) -> None:
    """Addresses serve at once; packets may come by another link than their answers go; refusals are not counted."""
    for version in ("ipv4", "ipv6"):
        for name in ("all", "default"):
            wanted = "rp_filter" if version == "ipv4" else "accept_dad"
            sysctl.ensure(f"net.{version}.conf.{name}.{wanted}", "0", netns)
    sysctl.ensure("net.ipv4.icmp_ratelimit", "0", netns)
    sysctl.ensure("net.ipv6.icmp.ratelimit", "0", netns)
    _ip(netns, "link set lo up")


def _connect_node(made: World) -> None:
    _ip(
        made.node,
        f"link add {BRIDGE} type bridge forward_delay 0 mcast_snooping 0",
        f"addr add {GATEWAY.four}/24 dev {BRIDGE}",
        f"addr add {GATEWAY.six}/64 dev {BRIDGE} nodad",
        f"link set {BRIDGE} up",
        f"addr add {NODE.four}/32 dev lo",
    )
    forwarding = ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")
    for setting in (*forwarding, "net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"):
        sysctl.ensure(setting, "1", made.node)


def _connect(made: World, member: str) -> None:
    """Pods of the node to its bridge; everybody else to a link of his own."""
    netns, link = made.netns(member), f"v-{member}"
    four, six = (_BEYOND[f] if member == BEYOND else MEMBERS[member].address(f) for f in FAMILIES)
    _ip(made.node, f"link add {link} type veth peer name eth0 netns {netns}", f"link set {link} up")
    if member in LOCAL_PODS:
        _ip(made.node, f"link set {link} master {BRIDGE}", f"link set {link} type bridge_slave hairpin on")
        _ip(netns, f"addr add {four}/24 dev eth0", f"addr add {six}/64 dev eth0 nodad", "link set eth0 up")
        _ip(netns, f"route add default via {GATEWAY.four}", f"route add default via {GATEWAY.six} dev eth0")
        return
    # IPv6 answers for an address only on the link that has it, so each link has the node's.
    _ip(
        made.node,
        f"addr add {NODE.six}/128 dev {link} nodad",
        f"route add {four}/32 dev {link} src {NODE.four}",
        f"route add {six}/128 dev {link} src {NODE.six}",
    )
    _ip(netns, f"addr add {four}/32 dev eth0", f"addr add {six}/128 dev eth0 nodad", "link set eth0 up")
    _ip(netns, *(f"route add default via {NODE.address(f)} dev eth0 onlink" for f in FAMILIES))
    if member == BEYOND:
        _ip(made.node, *(f"route add default via {_BEYOND[f]} dev {link} src {NODE.address(f)}" for f in FAMILIES))


def _catch_all(made: World) -> None:
    """`beyond` takes what is for anybody, and answers as that one."""
    for program in ("iptables", "ip6tables"):
        for protocol in ("tcp", "udp"):
            rule = f"-A PREROUTING -i eth0 -p {protocol} -j REDIRECT --to-ports {CATCHES}"
            argv = ("nsenter", f"--net=/run/netns/{made.netns(BEYOND)}", "--", program, "-w", "-t", "nat")
            subprocess.run((*argv, *rule.split()), check=True)
    made.serve_at(BEYOND, "IPv4", ("0.0.0.0", CATCHES))
    made.serve_at(BEYOND, "IPv6", ("::", CATCHES))


def _until_answers(made: World, client: str, family: Family, to: tuple[str, int]) -> None:
    """A link may say only after a second that it is up, and IPv6 answers for no address before that."""
    ends = time.monotonic() + 10
    while True:
        with made.socket(client, family, socket.SOCK_STREAM) as asking:
            asking.settimeout(0.5)
            try:
                asking.connect(to)
                assert asking.recv(100)
                return
            except OSError as error:
                if time.monotonic() > ends:
                    raise AssertionError(f"{client} hears nothing of {to}: {error}") from error
        time.sleep(0.05)

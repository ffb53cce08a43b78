"""A node, a client pod and two backend pods as network namespaces; this process is in the node's cgroup meanwhile.

A socket belongs to the namespace and the cgroup it was opened in, so the tests need no process for each pod.
"""

import os
import socket
import struct
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from clusterip.dataplane.ebpf.apply import SocketMaps
from clusterip.dataplane.ebpf.attach import Place, Sockets, remove
from clusterip.dataplane.ebpf.compile import Piece, compile_entry
from clusterip.dataplane.ebpf.config import Config
from clusterip.dataplane.ebpf.delta import delta, load
from clusterip.dataplane.ebpf.program import shipped
from clusterip.kernel import bpf, cgroup, netns, sysctl
from clusterip.services.table import Entry, Family
from clusterip.services.tracker import Change

NODE_IP, NODE_IP6 = "10.244.1.1", "fd00:1:1::1"
PODS = {"client": 9, "b1": 11, "b2": 12}
CONFIGS: dict[Family, Config] = {
    "IPv4": Config("IPv4", (NODE_IP,)),
    "IPv6": Config("IPv6", (NODE_IP6,)),
}


def four(pod: str) -> str:
    return f"10.244.1.{PODS[pod]}"


def six(pod: str) -> str:
    return f"fd00:1:1::{PODS[pod]}"


def _ip(namespace: str, *lines: str) -> None:
    subprocess.run(["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines), text=True, check=True)


@dataclass
class Node:
    """`pieces` is what was last applied."""

    prefix: str
    place: Place
    sockets: Sockets
    pieces: dict[Family, list[Piece]] = field(default_factory=lambda: {"IPv4": [], "IPv6": []})

    def namespace(self, member: str) -> str:
        return f"{self.prefix}{member}"

    def open(self, member: str, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> socket.socket:
        with netns.inside(self.namespace(member)):
            made = socket.socket(family, kind)
        made.settimeout(5)
        return made

    async def serve(self, *entries: Entry) -> None:
        """From whatever is in the maps to these entries."""
        for family, config in CONFIGS.items():
            maps = SocketMaps(self.sockets, family)
            pieces = [compile_entry(e, config) for e in entries if e.family == family]
            await maps.apply(load(pieces, await maps.observe()))
            self.pieces[family] = pieces

    async def change(self, before: Entry | None, after: Entry | None) -> None:
        family = (before or after).family  # type: ignore[union-attr]  # one of them is given
        change = Change(*(compile_entry(e, CONFIGS[family]) if e else None for e in (before, after)))
        await SocketMaps(self.sockets, family).apply(delta([change]))

    def detach(self, hook: str) -> None:
        """As `bpftool link detach` does it: the link stays pinned."""
        link = bpf.pinned(self.place.directory / "links" / hook)
        assert link is not None
        with link:
            bpf._call(34, struct.pack("<I", link.fd), "link: detach")

    def ask(
        self, address: str, port: int, *, member: str = "client", kind: int = socket.SOCK_STREAM, patience: float = 5
    ) -> str:
        """Which backend answers a new connection, or datagram, of a new socket, within `patience` seconds."""
        with self.open(member, socket.AF_INET6 if ":" in address else socket.AF_INET, kind) as asking:
            asking.settimeout(patience)
            if kind == socket.SOCK_DGRAM:
                asking.sendto(b"?", (address, port))
            else:
                asking.connect((address, port))
            return asking.recv(16).decode()


@contextmanager
def node(directory: Path) -> Iterator[Node]:
    prefix = f"e{uuid.uuid4().hex[:6]}"
    place = Place(cgroup.mount_point() / f"clusterip-test-{prefix}", directory / "bpf")
    with ExitStack() as stack:
        _network(prefix, stack)
        cgroup.create(place.cgroup)
        stack.callback(cgroup.delete, place.cgroup)
        home = cgroup.mount_point() / Path("/proc/self/cgroup").read_text().split("0::/", 1)[1].split("\n")[0]
        cgroup.add(place.cgroup, os.getpid())
        stack.callback(cgroup.add, home, os.getpid())
        sockets = Sockets(place, shipped().smaller(4096), netns.cookie(f"{prefix}node"))
        stack.callback(remove, place.directory)
        stack.callback(sockets.close)
        sockets.attach()
        made = Node(prefix, place, sockets)
        for pod in ("b1", "b2"):
            _backend(made, pod, stack)
        yield made


def _network(prefix: str, stack: ExitStack) -> None:
    for member in ("node", *PODS):
        netns.create(f"{prefix}{member}")
        stack.callback(netns.delete, f"{prefix}{member}")
    bridge = ("link set lo up", "link add cip0 type bridge", "link set cip0 up", f"addr add {NODE_IP}/24 dev cip0")
    _ip(f"{prefix}node", *bridge, f"addr add {NODE_IP6}/64 dev cip0 nodad")
    for setting in ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.bridge.bridge-nf-call-iptables"):
        sysctl.ensure(setting, "1", f"{prefix}node")  # for tests with packet rules beneath
    for pod in PODS:
        name = f"{prefix}{pod}"
        _ip(
            f"{prefix}node", f"link add v{pod} type veth peer name eth0 netns {name}", f"link set v{pod} master cip0 up"
        )
        up = ("link set lo up", f"addr add {four(pod)}/24 dev eth0", f"addr add {six(pod)}/64 dev eth0 nodad")
        _ip(name, *up, "link set eth0 up", f"route add default via {NODE_IP}", f"route add default via {NODE_IP6}")


def _backend(made: Node, pod: str, stack: ExitStack) -> None:
    """Tells its name on 8080, over TCP to whoever connects and over UDP to whoever sends."""
    with netns.inside(made.namespace(pod)):
        stream = socket.create_server(("::", 8080), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512)
        datagram = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        datagram.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        datagram.bind(("::", 8080))

    def answer_streams() -> None:
        with suppress(OSError):
            while True:
                connection, _ = stream.accept()
                with connection, suppress(OSError):
                    connection.sendall(pod.encode())

    def answer_datagrams() -> None:
        with suppress(OSError):
            while True:
                _, sender = datagram.recvfrom(16)
                if sender is None:  # it was shut down
                    return
                datagram.sendto(pod.encode(), sender)

    for work, held in ((answer_streams, stream), (answer_datagrams, datagram)):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        stack.callback(thread.join, 5)
        stack.callback(_shut, held)


def _shut(held: socket.socket) -> None:
    with suppress(OSError):
        held.shutdown(socket.SHUT_RDWR)
    held.close()

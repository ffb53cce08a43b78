"""A node with IPVS, pods on its bridge and a client outside, in namespaces of their own; and sockets in them."""

import contextlib
import socket
import threading
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from clusterip.dataplane.ipvs import Book, Config, compile_entry, delta
from clusterip.dataplane.ipvs.apply import Rules, prepare, settings
from clusterip.dataplane.node import FromCIDR
from clusterip.kernel import iptables, links, sysctl
from clusterip.kernel import netns as namespaces
from clusterip.services.table import Backend, Entry
from clusterip.services.tracker import Change

VIP, NODE, OUTSIDE = "10.96.0.20", "203.0.113.1", "203.0.113.5"
PODS = {"client": "10.244.1.10", "one": "10.244.1.2", "two": "10.244.1.3"}
ONE, TWO = Backend(PODS["one"], 8080, True), Backend(PODS["two"], 8080, True)
CONFIG = Config(
    node_ip=NODE,
    detector=FromCIDR("10.244.0.0/16"),
    node_addresses=(NODE,),
    host_addresses=frozenset({NODE, "10.244.1.1"}),
)


@dataclass
class Server:
    """Says its name and the client's address to whoever comes, then repeats what it hears. TCP and UDP."""

    name: str
    netns: str
    port: int = 8080
    live: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        with namespaces.inside(self.netns):
            self.tcp = socket.create_server(("0.0.0.0", self.port), backlog=64)
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("0.0.0.0", self.port))
        for work in (self._accept, self._answer):
            threading.Thread(target=work, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, peer = self.tcp.accept()
                self.live.append(connection)
                threading.Thread(target=self._talk, args=(connection, peer[0]), daemon=True).start()

    def _talk(self, connection: socket.socket, peer: str) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(f"{self.name} {peer}\n".encode())
            while said := connection.recv(4096):
                connection.sendall(said)
            connection.close()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                _, peer = self.udp.recvfrom(2048)
                if peer is None:  # it was shut down
                    return
                self.udp.sendto(f"{self.name} {peer[0]}\n".encode(), peer)

    def close(self) -> None:
        for each in (self.tcp, self.udp, *self.live):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@dataclass
class World:
    mark: str
    rules: Rules
    book: Book = field(default_factory=Book)

    def netns(self, name: str) -> str:
        return f"{name}-{self.mark}"

    async def load(self, *entries: Entry, config: Config = CONFIG) -> None:
        book = Book.of(compile_entry(entry, config) for entry in entries)
        change = delta.load(book, await self.rules.observe(config), config)
        await self.rules.apply(change)
        book.retire(change.retired)
        self.book = book

    async def change(self, before: Entry, after: Entry | None) -> None:
        changes = [Change(compile_entry(before, CONFIG), compile_entry(after, CONFIG) if after else None)]
        step = delta.delta(self.book.shift(changes), CONFIG)
        await self.rules.apply(step)
        self.book.write(changes)
        self.book.retire(step.retired)

    def dial(
        self, client: str, address: str = VIP, port: int = 80, *, port_from: int = 0
    ) -> tuple[socket.socket, str, str]:
        """The connection, the name of the server that answers, and the client's address as it sees it. `port_from`: the
        client's own port, also one of another connection; 0: one that the kernel chooses."""
        with namespaces.inside(self.netns(client)):
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.settimeout(3)
        try:
            if port_from:
                connection.bind(("", port_from))
            connection.connect((address, port))
            name, seen = connection.recv(200).decode().split()
        except BaseException:
            connection.close()
            raise
        return connection, name, seen

    def who(self, client: str, address: str = VIP, port: int = 80) -> tuple[str, str]:
        connection, name, seen = self.dial(client, address, port)
        connection.close()
        return name, seen

    def ask(self, client: str, address: str = VIP, port: int = 80) -> str:
        """By UDP: who answers. The answer must come from where the question went."""
        with namespaces.inside(self.netns(client)):
            asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with asking:
            asking.settimeout(3)
            asking.connect((address, port))
            asking.send(b"?")
            return asking.recv(200).decode().split()[0]


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    mark = uuid.uuid4().hex[:6]
    names = [f"{name}-{mark}" for name in ("node", "outside", *PODS)]
    for name in names:
        namespaces.create(name)
    servers: list[Server] = []
    try:
        await _connect(mark)
        node = f"node-{mark}"
        prepare(settings(strict_arp=False, kernel=(6, 1)), node)
        sysctl.ensure("net.bridge.bridge-nf-call-iptables", "1", node)
        servers += [Server(name, f"{name}-{mark}") for name in ("one", "two")]
        servers.append(Server("node", node, 2222))
        yield World(mark, Rules(await iptables.detect("IPv4", "nft", node)))
    finally:
        for server in servers:
            server.close()
        for name in names:
            namespaces.delete(name)


async def _connect(mark: str) -> None:
    lines = [
        links.up("lo"),
        links.bridge("cbr0", "10.244.1.1"),
        links.address("cbr0", "10.244.1.1/24"),
        links.up("cbr0"),
    ]
    for pod in PODS:
        port = f"v-{pod}"
        lines += [
            links.veth(port, "eth0", f"{pod}-{mark}"),
            links.attach(port, "cbr0"),
            links.hairpin(port),
            links.up(port),
        ]
    lines += [links.veth("up0", "eth0", f"outside-{mark}"), links.address("up0", f"{NODE}/24"), links.up("up0")]
    await links.configure(f"node-{mark}", *lines)
    for pod, address in PODS.items():
        inside = (links.up("lo"), links.address("eth0", f"{address}/24"), links.up("eth0"))
        await links.configure(f"{pod}-{mark}", *inside, links.route("default", "eth0", "10.244.1.1"))
    outside = (links.address("eth0", f"{OUTSIDE}/24"), links.up("eth0"), links.route("default", "eth0", NODE))
    await links.configure(f"outside-{mark}", *outside)

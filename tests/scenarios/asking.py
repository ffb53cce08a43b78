"""Real packets of a page's line, and what became of them."""

import contextlib
import errno
import itertools
import math
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.scenarios import sctp
from tests.scenarios.members import LOCAL_PODS, MEMBERS, family_of, is_nodes, name_of
from tests.scenarios.page import Answer, Line
from tests.scenarios.world import BEYOND, CATCHES, World

from clusterip.services.notation import Destination

KINDS = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}
ANSWERS, SILENCE = 5.0, 0.3  # seconds: to be answered, and to take nothing for an answer
_IP_RECVERR, _IPV6_RECVERR = 11, 25  # include/uapi/linux/in.h, in6.h
# Of datagrams, of all pages: for minutes IPVS remembers whom a client's port spoke to, when the Service is gone too.
_PORTS = itertools.cycle(range(20000, 30000))
CHANCE = 1e-10  # that a test of shares fails without cause
Seen = tuple[str, int, bool]  # name and port of the server; whether it saw an address of the node


@dataclass
class Asker:
    """Sends what lines say, and keeps the flows that they leave open."""

    world: World
    in_turn: bool = False  # the dataplane gives its backends turns, so that shares are exact
    flows: dict[tuple[str, str, Destination], tuple[socket.socket, bytes]] = field(default_factory=dict)

    def close(self) -> None:
        for held, _ in self.flows.values():
            held.close()

    def check(self, line: Line, wanted: Answer) -> list[str]:
        """What is not as it should be, in sentences. Those that wait do so at once."""
        pairs = list(line.sent())
        if wanted.sticky:
            return list(self._sticky(line, wanted))
        if wanted.kind == "delivered" and not line.flow:
            return [told for client, to in pairs for told in self._shares(line, client, to, wanted)]
        with ThreadPoolExecutor(16) as pool:
            return [told for found in pool.map(lambda pair: self._once(line, wanted, *pair), pairs) for told in found]

    def _once(self, line: Line, wanted: Answer, client: str, to: Destination) -> list[str]:
        if wanted.kind in ("healthy", "unhealthy"):
            said = self._health(client, to)
            return [] if said == wanted.kind else [f"{client} -> {to}: {said}, not {wanted}"]
        found = self._on_flow(line, client, to) if line.flow else self.ask(client, to, line.size, _patience(wanted))
        if isinstance(found, str):
            expected = "refused" if wanted.kind == "passed" and is_nodes(to.address) else wanted.kind
            return [] if found == expected else [f"{client} -> {to}: {found}, not {wanted}"]
        allowed = {_passed(client, to)} if wanted.kind == "passed" else set(wanted.backends)
        return [] if found in allowed else [f"{client} -> {to}: {found}, not {wanted}"]

    def _shares(self, line: Line, client: str, to: Destination, wanted: Answer) -> Iterator[str]:
        if self.in_turn and line.size and to.protocol == "UDP" and client in ("node", *LOCAL_PODS):
            # IPVS refuses what the way to it has left or made whole: docs/dataplanes/ipvs.md. Over IPv4 that teaches
            # the sender once what fits, over IPv6 it is no use.
            said = self.ask(client, to, line.size)
            if family_of(to.address) == "IPv6":
                yield from () if said == "too big" else (f"{client} -> {to}: {said}: IPVS can do it now",)
                return
        number = len(wanted.backends)
        tries = 2 * number if self.in_turn else samples(number)
        found = Counter(self.ask(client, to, line.size) for _ in range(tries))
        if set(found) != set(wanted.backends):
            yield f"{client} -> {to}: {dict(found)}, not {wanted}"
            return
        least, most = (2, 2) if self.in_turn else bounds(tries, 1 / number)
        if not all(least <= count <= most for count in found.values()):
            yield f"{client} -> {to}: {dict(found)} of {tries}: each should have {least} to {most}"

    def _sticky(self, line: Line, wanted: Answer) -> Iterator[str]:
        """All clients and destinations of the line together have one; in each family, for they know nothing of each
        other; or those of each destination."""
        together: dict[str, list[tuple[str, Destination]]] = {}
        for client, to in line.sent():
            together.setdefault(str(to) if wanted.apart else family_of(to.address), []).append((client, to))
        for pairs in together.values():
            if line.flow:
                found = {self._on_flow(line, *pair) for pair in pairs}
            else:
                found = {self.ask(*pair, line.size) for _ in range(8) for pair in pairs}
            if len(found) > 1 or not found <= set(wanted.backends):
                yield f"{pairs[0][0]} -> {', '.join(str(to) for _, to in pairs)}: {found}, not {wanted}"
            elif wanted.anew and not self.in_turn:  # IPVS remembers a client for minutes: docs/dataplanes/ipvs.md
                yield from self._anew(*pairs[0], wanted, found)

    def _anew(self, client: str, to: Destination, wanted: Answer, found: set[Seen | str]) -> Iterator[str]:
        """Each silence is a new chance to get another backend, so it should come soon."""
        for _ in range(math.ceil(math.log(CHANCE) / math.log(1 / len(wanted.backends)))):
            time.sleep(wanted.anew + 0.3)
            found.add(self.ask(client, to))
            if not found <= set(wanted.backends):
                break
            if len(found) > 1:
                return
        yield f"{client} -> {to}: {found} after silences of {wanted.anew:g} s, not {wanted}"

    def ask(self, client: str, to: Destination, size: int = 0, patience: float = ANSWERS) -> Seen | str:
        """A new connection, or the first datagram of a new socket: who answered, "refused" or "dropped"."""
        if to.protocol == "SCTP":
            told = sctp.ask(self.world, client, to, patience)
            return told if isinstance(told, str) else _seen(client, *told)
        with self._socket(client, to, patience) as asking:
            return _outcome(lambda: self._asked(asking, client, to, size))

    def _asked(self, asking: socket.socket, client: str, to: Destination, size: int) -> Seen:
        asking.connect((to.address, to.port))
        sent = bytes(size) or b"?"
        if to.protocol == "UDP":
            _send(asking, sent)
            told, _, back = asking.recv(1 << 16).partition(b"\n")
            assert back == sent, "what came back is not what was sent"
            return _heard(client, told)
        told, _, back = asking.recv(1000).partition(b"\n")
        if size:
            asking.sendall(sent)
            while len(back) < size:
                more = asking.recv(1 << 16)
                assert more, "the connection ended"
                back += more
        return _heard(client, told)

    def _on_flow(self, line: Line, client: str, to: Destination) -> Seen | str:
        """On the flow of the line, which is opened if it is not open yet. A datagram that is lost is sent again."""
        key = (line.flow, client, to)
        if to.protocol == "TCP":
            return _outcome(lambda: self._on_stream(key))
        if key not in self.flows:
            asking = self._socket(client, to, 1.0)
            # Not connected, it hears of refusals only if it says that it wants to.
            level, option = (
                (socket.IPPROTO_IPV6, _IPV6_RECVERR) if ":" in to.address else (socket.IPPROTO_IP, _IP_RECVERR)
            )
            asking.setsockopt(level, option, 1)
            self.flows[key] = asking, b""
        asking = self.flows[key][0]
        found: Seen | str = "dropped"
        for _ in range(3):
            found = _outcome(lambda: _on_datagrams(asking, client, to))
            if found != "dropped":
                break
        return found

    def _on_stream(self, key: tuple[str, str, Destination]) -> Seen:
        """Who is there told his name when it began."""
        _, client, to = key
        if key not in self.flows:
            asking = self._socket(client, to, ANSWERS)
            self.flows[key] = asking, b""
            asking.connect((to.address, to.port))
            self.flows[key] = asking, asking.recv(1000).partition(b"\n")[0]
        asking, told = self.flows[key]
        asking.sendall(b"?")
        assert asking.recv(10) == b"?", "the connection ended"
        return _heard(client, told)

    def _health(self, client: str, to: Destination) -> str:
        """Of the server at a health check node port."""
        with self._socket(client, to, ANSWERS) as asking:
            try:
                asking.connect((to.address, to.port))
                asking.sendall(b"GET / HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")
                status = asking.recv(1000).split()[1]
            except ConnectionRefusedError:
                return "refused"
        return {b"200": "healthy", b"503": "unhealthy"}.get(status, status.decode())

    def _socket(self, client: str, to: Destination, patience: float) -> socket.socket:
        made = self.world.socket(client, family_of(to.address), KINDS[to.protocol])
        made.settimeout(patience)
        if to.protocol == "UDP":  # a flow that has been goes on where it went; a new one has a port of its own
            made.bind(("", next(_PORTS)))
        return made


def _on_datagrams(asking: socket.socket, client: str, to: Destination) -> Seen:
    with contextlib.suppress(PermissionError):
        asking.sendto(b"?", (to.address, to.port))
    return _heard(client, asking.recv(1000).partition(b"\n")[0])


def _send(asking: socket.socket, data: bytes) -> None:
    """Whether rules of the node refuse a datagram of its own or drop it, sending it fails at once; which of them it was
    is heard afterwards."""
    with contextlib.suppress(PermissionError):
        asking.send(data)


def _outcome(work: Callable[[], Seen]) -> Seen | str:
    try:
        return work()
    except ConnectionRefusedError:
        return "refused"
    except TimeoutError:
        return "dropped"
    except OSError as error:
        if error.errno != errno.EMSGSIZE:
            raise
        return "too big"


def _heard(client: str, told: bytes) -> Seen:
    name, port, peer = told.decode().split()
    return _seen(client, name, int(port), peer)


def _seen(client: str, name: str, port: int, peer: str) -> Seen:
    hidden = (
        is_nodes(peer) or client == "node"
    )  # in IPVS mode it speaks with the very address it asks, which it has, too
    assert hidden or peer == MEMBERS[client].address(family_of(peer)), f"{name} saw {peer}, which is nobody's of them"
    return name, port, hidden


def _passed(client: str, to: Destination) -> Seen:
    """Who answers a packet that is no Service's: whoever has the address, or the rest of the world."""
    name = name_of(to.address)
    return (name, to.port, client == "node") if name in MEMBERS else (BEYOND, CATCHES, client == "node")


def _patience(wanted: Answer) -> float:
    return SILENCE if wanted.kind == "dropped" else ANSWERS


def samples(backends: int) -> int:
    """So many that none of `backends` is missed by chance."""
    return 1 if backends == 1 else math.ceil(math.log(CHANCE / backends) / math.log(1 - 1 / backends))


def bounds(tries: int, share: float) -> tuple[int, int]:
    """Between which numbers of successes lies, but for `CHANCE` at each end."""
    chances = [math.comb(tries, n) * share**n * (1 - share) ** (tries - n) for n in range(tries + 1)]
    least = next(n for n in range(tries + 1) if math.fsum(chances[: n + 1]) > CHANCE)
    most = next(n for n in range(tries, -1, -1) if math.fsum(chances[n:]) > CHANCE)
    return least, most

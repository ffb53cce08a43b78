"""One try: a connection, or a datagram, from a client's network namespace to a Service port.

The socket is opened inside the namespace and then used from our own event loop, so there is no process and no thread
a try. A try has the floor alone for its first moments; only those that must wait longer run side by side. So a time
of 0.3 ms is the kernel's and not the queue's, and a hundred ports that time out still take little longer than one.
"""

import asyncio
import errno
import os
import socket
import struct
import time

from clusterip.kernel import netns, sysctl
from clusterip.lab.check.values import Client, ClientKind, Outcome, Saw, Target
from clusterip.services.table import FrontendKind

ALONE = 0.01  # seconds a try has the floor for itself
AT_ONCE = 256  # tries that may wait at the same time: each holds a file descriptor
GREETING = b"hostname"  # the echo server answers it with its name
DNS_NAME = "kubernetes.default.svc.cluster.local"
# A datagram that a rule of our own node drops is refused to the sender with EPERM; TCP tries on in silence.
FAILURES = {errno.ETIMEDOUT: Saw.TIMED_OUT, errno.EPERM: Saw.DROPPED}
# include/uapi/linux/in6.h. Where all namespaces are of one kernel, a refusal comes back while connect() still holds the
# socket. Over IPv4 who waits for the socket is told at once; over IPv6 only with this, else when a second has passed.
IPV6_RECVERR = 25
# Addresses from outside the cluster, to which this machine has no route through it.
_ELSEWHERE = frozenset({FrontendKind.EXTERNAL_IP, FrontendKind.LOAD_BALANCER})


class Prober:
    """`timeout`: seconds until a try is given up."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._floor = asyncio.Lock()
        self._waiting = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, client: Client, target: Target) -> Outcome:
        # Left in reverse: the floor is given up first, then the group waits for the answer.
        async with self._waiting, asyncio.TaskGroup() as tries, self._floor:
            trial = tries.create_task(self._try(client, target))
            await asyncio.wait((trial,), timeout=ALONE)
        return trial.result()

    async def _try(self, client: Client, target: Target) -> Outcome:
        if client.kind is ClientKind.HOST and ":" in target.address and not sysctl.has_ipv6():
            return Outcome(Saw.NOT_TRIED, detail="this machine has IPv6 switched off")
        if client.kind is ClientKind.HOST and target.kind in _ELSEWHERE:
            return Outcome(Saw.NOT_TRIED, detail="this machine has routes to ClusterIPs alone")
        try:
            link = _open(client, target)
        except netns.NamespaceFailed:
            return Outcome(Saw.CLIENT_GONE, detail=f"{client.name} is gone")
        except OSError as error:
            return Outcome(Saw.NOT_TRIED, detail=f"this machine has no {target.protocol}: {error.strerror}")
        start = time.perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                detail = await _exchange(link, target)
            saw = Saw.REACHED
        except TimeoutError:
            saw, detail = (Saw.SILENT if target.protocol == "UDP" else Saw.TIMED_OUT), ""
        except ConnectionRefusedError:
            saw, detail = Saw.REFUSED, ""
        except OSError as error:
            saw = FAILURES.get(error.errno or 0, Saw.UNREACHABLE)
            detail = os.strerror(error.errno or 0) if saw is Saw.UNREACHABLE else ""
        finally:
            link.close()
        return Outcome(saw, time.perf_counter() - start, detail)


def _open(client: Client, target: Target) -> socket.socket:
    ipv6 = ":" in target.address
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    kind = socket.SOCK_DGRAM if target.protocol == "UDP" else socket.SOCK_STREAM
    number = socket.IPPROTO_SCTP if target.protocol == "SCTP" else 0
    if client.netns:
        with netns.inside(client.netns):
            link = socket.socket(family, kind, number)
    else:
        link = socket.socket(family, kind, number)
    link.setblocking(False)
    if ipv6 and kind == socket.SOCK_STREAM:
        link.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
    return link


async def _exchange(link: socket.socket, target: Target) -> str:
    """Connects; over UDP, and with a DNS server, also asks and waits for the answer. Says what was answered."""
    loop = asyncio.get_running_loop()
    await loop.sock_connect(link, (target.address, target.port))
    if target.dns:
        return await _ask_dns(link, over_tcp=target.protocol == "TCP")
    if target.protocol != "UDP":
        return ""
    try:
        await loop.sock_sendall(link, GREETING)
    except PermissionError:
        # A rule of our own node let it not out. One that refuses has also said so, and that waits to be fetched.
        if link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED:
            raise ConnectionRefusedError from None
        raise
    answer = await loop.sock_recv(link, 65_535)
    return f"answered {len(answer)} bytes"


async def _ask_dns(link: socket.socket, *, over_tcp: bool) -> str:
    """A port 53 that answers something else than DNS is reached all the same; what it said is told."""
    import dns.exception
    import dns.message
    import dns.rcode

    loop = asyncio.get_running_loop()
    query = dns.message.make_query(DNS_NAME, "A").to_wire()
    await loop.sock_sendall(link, struct.pack("!H", len(query)) + query if over_tcp else query)
    answer = await loop.sock_recv(link, 65_535)
    if over_tcp and len(answer) >= 2:
        (length,) = struct.unpack_from("!H", answer)
        while len(answer) < length + 2 and (more := await loop.sock_recv(link, 65_535)):
            answer += more
        answer = answer[2:]
    try:
        message = dns.message.from_wire(answer)
    except dns.exception.DNSException:
        return f"answered {len(answer)} bytes, not DNS"
    return f"answered {dns.rcode.to_text(message.rcode())}, {len(message.answer)} records"

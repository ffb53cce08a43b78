"""The kernel's own trace of one packet: which rules it met, in nftables (iptables-nft too) and in iptables-legacy.

    with listening("node-1") as listener, armed("node-1", flow):
        ...  # send the packet
        listener.wait(0.5)
    events = listener.events(flow)

What is armed ends with this process, however that ends: the table belongs to its socket, and a small process of its own
puts the logger back. A packet that is traced for nftables is traced in iptables-legacy's tables too. Blocking.

Source: kernel include/uapi/linux/netfilter/nf_tables.h (NFTA_TRACE_*), net/netfilter/nf_tables_trace.c.
"""

import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Literal

from clusterip.kernel import arming, nflog
from clusterip.kernel.capture import Packet, decode_ip
from clusterip.kernel.netlink import Netlink, NetlinkRefused, attributes, inside
from clusterip.kernel.nflog import Logged
from clusterip.rulesets.traced import Headers, Traced, merged

PREFIX = "clusterip-trace-"  # of the names of the tables that arm

_GROUP, _TRACE = 9, 17  # NFNLGRP_NFTRACE, NFT_MSG_TRACE
_TABLE, _CHAIN, _HANDLE, _TYPE, _VERDICT, _ID = 1, 2, 3, 4, 5, 6
_NETWORK, _TRANSPORT, _IN, _OUT, _MARK = 8, 9, 10, 12, 14
_KINDS: dict[int, Literal["policy", "return", "rule"]] = {1: "policy", 2: "return", 3: "rule"}
_VERDICTS = {0: "drop", 1: "accept", 2: "stolen", 3: "queue", -1: "continue", -2: "break", -5: "return"}
_JUMP, _GOTO = -3, -4
_FAMILIES = {socket.AF_INET: "ip", socket.AF_INET6: "ip6", arming.INET: "inet"}
# Priorities of iptables-legacy's tables. Source: include/uapi/linux/netfilter_ipv4.h, net/ipv4/netfilter/iptable_*.c.
_PRIORITIES = {"raw": -300, "mangle": -150, "nat": -100, "filter": 0, "security": 50}
_SOURCE_NAT = 100


@dataclass(frozen=True, slots=True)
class _Raw:
    """A message of nftables' trace."""

    family: int
    found: dict[int, bytes]

    def text(self, key: int) -> str:
        return self.found.get(key, b"").rstrip(b"\0").decode(errors="replace")

    def number(self, key: int) -> int:
        return int.from_bytes(self.found.get(key, b""), "big")

    @property
    def data(self) -> bytes:
        return self.found.get(_NETWORK, b"") + self.found.get(_TRANSPORT, b"")


@dataclass(slots=True)  # gathers what it hears
class Listener:
    """Hears every trace of its namespace, whoever armed it."""

    netns: str
    link: Netlink
    legacy: Netlink | None  # None: iptables-legacy has no tables there, or they cannot be traced
    missing: str = ""  # why those cannot be
    _nft: list[_Raw] = field(default_factory=list)
    _logged: list[Logged] = field(default_factory=list)

    def wait(self, seconds: float, quiet: float = 0.05) -> None:
        """Until nothing was told for `quiet` seconds after something was, at most for `seconds`."""
        links = [link for link in (self.link, self.legacy) if link]
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            heard = bool(self._nft or self._logged)
            ready, _, _ = select.select(links, [], [], min(left, quiet) if heard else left)
            self.hear()
            if not ready and heard:
                return

    def hear(self) -> None:
        """Take what has been told. Raises Unavailable if the kernel could not keep all of it."""
        for kind, body in self.link.heard():
            if kind == arming.SUBSYSTEM << 8 | _TRACE and body:
                self._nft.append(_Raw(body[0], attributes(body, 4)))
        if self.legacy:
            self._logged += nflog.heard(self.legacy)

    def forget(self) -> None:
        """All that was told so far."""
        self.hear()
        self._nft.clear()
        self._logged.clear()

    def sent(self, flow: Headers) -> Headers | None:
        """The first packet of `flow` that was traced, as it came here or was sent from here, before any rule. Its
        destination is another where a program at the socket gave it one. None: none was."""
        self.hear()
        first = self._first(flow)
        return _headers(first.data) if first else None

    def _first(self, flow: Headers) -> _Raw | None:
        def ours(headers: Headers | None) -> bool:
            return headers is not None and (headers.source, *headers[2:4]) == (flow.source, *flow[2:4])

        return next((raw for raw in self._nft if ours(_headers(raw.data))), None)

    def events(self, flow: Headers) -> tuple[Traced, ...]:
        """What became of the first packet of `flow` that was traced, wherever it went. () if none was."""
        self.hear()
        first = self._first(flow)
        if first is None:
            return ()
        signature = _signature(first.data)
        ids = {raw.found.get(_ID) for raw in self._nft if raw.data and _signature(raw.data) == signature}
        mine = [raw for raw in self._nft if raw.found.get(_ID) in ids and not raw.text(_TABLE).startswith(PREFIX)]
        with inside(self.netns), Netlink() as link:
            nft = list(_nft_events(link, mine))
            legacy = [_legacy_event(told) for told in self._logged if _signature(told.data) == signature]
        return merged(nft, [event for event in legacy if event])


@contextmanager
def listening(netns: str = "", *, ipv6: bool = False) -> Iterator[Listener]:
    """Hear the traces of the named namespace ("": our own), of iptables-legacy's tables in one family."""
    with ExitStack() as stack:
        link = stack.enter_context(Netlink(netns))
        link.join(_GROUP)
        listener = Listener(netns, link, None)
        if nflog.tables(netns, ipv6):
            try:
                legacy = stack.enter_context(Netlink(netns))
                nflog.listen(legacy, ipv6)
                stack.enter_context(nflog.logger(netns, ipv6))
                listener.legacy = legacy
            except (NetlinkRefused, OSError) as error:
                listener.missing = f"the rules of iptables-legacy cannot be traced here: {error}"
        yield listener
        listener.hear()


@contextmanager
def armed(netns: str, flow: Headers) -> Iterator[None]:
    """The next packet of `flow` in the named namespace is traced. Raises NetlinkRefused."""
    with Netlink(netns) as link:
        arming.arm(link, f"{PREFIX}{os.getpid()}-{os.urandom(3).hex()}", flow)
        yield


def _nft_events(link: Netlink, told: list[_Raw]) -> Iterator[Traced]:
    """With the place of each rule in its chain, and of each chain among the hooks."""
    places: dict[tuple[int, str, str], tuple[int, ...]] = {}
    bases: dict[tuple[int, str, str], arming.BaseChain | None] = {}
    base: arming.BaseChain | None = None
    headers, interfaces = Headers("", "", ""), ("", "")
    for raw in told:
        name = (raw.family, raw.text(_TABLE), raw.text(_CHAIN))
        if name not in bases:
            bases[name] = arming.base_chain(link, *name)
        base = bases[name] or base
        if raw.data:  # told once for each base chain
            headers = _headers(raw.data) or headers
            interfaces = (_interface(raw.number(_IN)), _interface(raw.number(_OUT)))
        handle = raw.number(_HANDLE)
        if handle and name not in places:
            places[name] = arming.rule_handles(link, *name)
        if base is None or raw.number(_TYPE) not in _KINDS:
            continue
        kind = _KINDS[raw.number(_TYPE)]
        yield Traced(
            program="nft",
            family=_FAMILIES.get(raw.family, str(raw.family)),
            hook=base.hook,
            priority=base.priority,
            table=name[1],
            chain=name[2],
            kind="return" if kind == "rule" and not handle else kind,  # a chain's end is told as a rule that is none
            rule=places[name].index(handle) if handle and handle in places[name] else None,
            verdict=_verdict(raw, kind),
            headers=headers,
            mark=raw.number(_MARK),
            in_interface=interfaces[0],
            out_interface=interfaces[1],
        )


def _verdict(raw: _Raw, kind: str) -> str:
    if kind == "policy":
        return _VERDICTS.get(raw.number(16), "")
    found = attributes(raw.found.get(_VERDICT, b""))
    code = int.from_bytes(found.get(1, b""), "big", signed=True)
    chain = found.get(2, b"").rstrip(b"\0").decode(errors="replace")
    if code in (_JUMP, _GOTO):
        return f"{'jump' if code == _JUMP else 'goto'} {chain}"
    return _VERDICTS.get(code, _VERDICTS.get(code & 0xFF, "")) if code >= 0 else _VERDICTS.get(code, "")


def _legacy_event(told: Logged) -> Traced | None:
    headers = _headers(told.data)
    if headers is None or told.hook >= len(arming.HOOKS):
        return None
    hook = arming.HOOKS[told.hook]
    priority = _PRIORITIES.get(told.table, 0)
    return Traced(
        program="legacy",
        family="ip6" if ":" in headers.destination else "ip",
        hook=hook,
        priority=_SOURCE_NAT if told.table == "nat" and hook in ("input", "postrouting") else priority,
        table=told.table,
        chain=told.chain,
        kind="rule" if told.kind == "rule" else "return" if told.kind == "return" else "policy",
        rule=told.number - 1,
        headers=headers,
        mark=told.mark,
        in_interface=_interface(told.in_index),
        out_interface=_interface(told.out_index),
    )


def _interface(index: int) -> str:
    """Of the thread's own namespace; the number if it has gone."""
    try:
        return socket.if_indextoname(index) if index else ""
    except OSError:
        return f"interface {index}"


def _headers(data: bytes) -> Headers | None:
    """Of an echo request the identifier, as the source port."""
    packet: Packet | None = decode_ip(data)
    if packet is None:
        return None
    protocol = "ipv6-icmp" if packet.protocol == "icmpv6" else packet.protocol
    port = packet.source_port
    if protocol in ("icmp", "ipv6-icmp"):
        (port,) = struct.unpack_from("!H", _transport(data) + b"\0" * 6, 4)
    return Headers(packet.source, packet.destination, protocol, port, packet.destination_port)


def _signature(data: bytes) -> bytes:
    """What no rule rewrites: TCP's sequence number, or the first bytes of what UDP and ICMP carry."""
    transport = _transport(data)
    return transport[4:8] if _protocol(data) == socket.IPPROTO_TCP else transport[8:20]


def _protocol(data: bytes) -> int:
    if not data:
        return 0
    return data[6] if data[0] >> 4 == 6 else data[9]


def _transport(data: bytes) -> bytes:
    if not data:
        return b""
    return data[40:] if data[0] >> 4 == 6 else data[(data[0] & 15) * 4 :]

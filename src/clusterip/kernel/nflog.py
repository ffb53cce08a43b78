"""What iptables-legacy logs of traced packets. It logs those that nftables' trace is set for, too. Blocking.

A namespace's kernel log takes such messages only in the machine's own namespace; elsewhere they need the logger
`nfnetlink_log`, which this switches to, and back, even when this process is killed.

Source: kernel include/uapi/linux/netfilter/nfnetlink_log.h; net/netfilter/nf_log.c; net/ipv4/netfilter/ip_tables.c.
"""

import re
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from clusterip.kernel.netlink import Netlink, NetlinkRefused, attribute, attributes, inside, netfilter

_SUBSYSTEM, _PACKET, _CONFIG = 4, 0, 1
_BIND, _COPY_PACKET, _COPIED = 1, 2, 256  # bytes of each packet: its headers
_GROUP = 0  # the one that traces go to
_TRACE = re.compile(r"TRACE: ([^:]+):(.+):(rule|return|policy):(\d+) ?$")
_HEADER, _MARK, _IN, _OUT, _PAYLOAD, _PREFIX = 1, 2, 4, 5, 9, 10
_RESTORE = 'cat >/dev/null; printf %s "$2" > "$1"'  # once its standard input ends


class Logged(NamedTuple):
    table: str
    chain: str
    kind: str  # "rule", "return", "policy"
    number: int  # of the rule, from 1
    hook: int
    mark: int
    in_index: int  # of an interface; 0: none
    out_index: int
    data: bytes  # the packet, from its IP header on


def tables(netns: str, ipv6: bool) -> tuple[str, ...]:
    """Of iptables-legacy, that are there. Looking makes none."""
    file = Path("/proc/thread-self/net") / ("ip6_tables_names" if ipv6 else "ip_tables_names")
    with inside(netns):
        try:
            return tuple(file.read_text().split())
        except OSError:
            return ()


@contextmanager
def logger(netns: str, ipv6: bool) -> Iterator[None]:
    """nfnetlink_log takes what the namespace's rules log, until the block ends. Raises OSError where it cannot be."""
    setting = Path(f"/proc/sys/net/netfilter/nf_log/{socket.AF_INET6 if ipv6 else socket.AF_INET}")
    with inside(netns):
        before = setting.read_text().strip()
    enter = ("nsenter", f"--net=/run/netns/{netns}", "--") if netns else ()
    argv = (*enter, "sh", "-c", _RESTORE, "sh", str(setting), before)
    # In a session of its own: what ends us from the terminal must not end it first.
    with subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True) as guard:
        try:
            with inside(netns):
                setting.write_text("nfnetlink_log")
            yield
        finally:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()


def listen(link: Netlink, ipv6: bool) -> None:
    """Have the log told to `link`. Raises NetlinkRefused if another program takes it already."""
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    wanted = (attribute(1, bytes([_BIND])), attribute(2, struct.pack("!IBx", _COPIED, _COPY_PACKET)))
    for number in link.tell([netfilter(_SUBSYSTEM, _CONFIG, family, option) for option in wanted]):
        if number:
            raise NetlinkRefused("iptables-legacy's traces (nfnetlink_log group 0)", number)


def heard(link: Netlink) -> Iterator[Logged]:
    """What has been told meanwhile."""
    for kind, body in link.heard():
        if kind != _SUBSYSTEM << 8 | _PACKET:
            continue
        found = attributes(body, 4)
        said = _TRACE.match(found.get(_PREFIX, b"").rstrip(b"\0").decode(errors="replace"))
        if not said or len(found.get(_HEADER, b"")) < 3:
            continue
        table, chain, what, number = said.groups()
        mark, came, goes = (int.from_bytes(found.get(key, b""), "big") for key in (_MARK, _IN, _OUT))
        hook = found[_HEADER][2]
        yield Logged(table, chain, what, int(number), hook, mark, came, goes, found.get(_PAYLOAD, b""))

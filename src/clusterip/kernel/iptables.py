"""The iptables programs of this machine: which there are, restore and save, and whether anybody else wrote.

Both variants are spoken to: the nft one (`iptables-nft`) and the legacy one. They keep rules of their own; a packet
passes both.
"""

import ctypes
import os
import re
import socket
from dataclasses import dataclass
from typing import Literal, TypeAlias

from clusterip.errors import ClusterIPError, Unavailable
from clusterip.kernel.netlink import Netlink, NetlinkRefused, attributes, inside, netfilter
from clusterip.kernel.run import ProgramFailed, run
from clusterip.services.table import Family

VariantName: TypeAlias = Literal["nft", "legacy"]
Version: TypeAlias = tuple[int, ...]

OLDEST: Version = (1, 4, 11)  # has what kube-proxy's rules need
WAITS: Version = (1, 6, 2)  # restore takes -w, MASQUERADE takes --random-fully
TABLES = ("mangle", "nat", "filter")

_LOCK_SECONDS = "5"
_TIMEOUT = 600.0  # seconds; a load of 10,000 Services x 10 takes 13 s on an idle core
_NF_TABLES, _GET_GENERATION, _GENERATION_ID = 10, 16, 1
_GET_INFO = 64  # IPT_SO_GET_INFO and IP6T_SO_GET_INFO
_INFO_SIZE = 84  # struct ipt_getinfo: name, hooks, entry points, underflows, number of entries, size
_SAID = re.compile(r"line:?\s+(\d+)")
_libc = ctypes.CDLL(None, use_errno=True)
_QUOTED = re.compile(r"[`']([^`']+)'")
_VERSION = re.compile(r"v(\d+(?:\.\d+)+)(?:\s+\((\w+)\))?")


@dataclass(frozen=True, slots=True)
class Programs:
    """One family's programs in one variant."""

    family: Family
    variant: VariantName
    version: Version
    name: str  # "iptables", "ip6tables-legacy": what the programs' names begin with
    netns: str = ""  # "": our own


class RestoreRefused(ClusterIPError):
    """`line` of the input, from 1, is what it refused; 0 if it did not say. Blocks before that one are in force."""

    def __init__(self, program: str, line: int, quoted: str, said: str) -> None:
        where = f"line {line} of the input: {quoted!r}: " if line else ""
        super().__init__(f"{program}: refused {where}{said}")
        self.line = line
        self.quoted = quoted


async def detect(family: Family, variant: VariantName | None = None, netns: str = "") -> Programs:
    """The family's programs of the wanted variant; without a wish those that plain `iptables` stands for here.

    Raises Unavailable if they are missing or too old.
    """
    name = ("ip6tables" if family == "IPv6" else "iptables") + (f"-{variant}" if variant else "")
    said = (await run((name, "--version"), netns=netns)).stdout.decode(errors="replace").strip()
    found = _VERSION.search(said)
    if not found:
        raise Unavailable(f"{name}: does not say its version: {said!r}")
    version = tuple(int(part) for part in found[1].split("."))
    if version < OLDEST:
        raise Unavailable(f"{name}: version {found[1]} is too old", hint=f"it takes {'.'.join(map(str, OLDEST))}")
    # Before 1.8 there was one variant, and it did not say so.
    return Programs(family, "nft" if found[2] == "nf_tables" else "legacy", version, name, netns)


async def restore(programs: Programs, text: str) -> None:
    """Feed `text` to iptables-restore, keeping what it does not name. Each COMMIT block is all or nothing.

    Raises RestoreRefused.
    """
    program = f"{programs.name}-restore"
    wait = ("-w", _LOCK_SECONDS) if programs.version >= WAITS else ()
    argv = (program, *wait, "--noflush", "--counters")
    try:
        await run(argv, stdin=text.encode(), timeout=_TIMEOUT, netns=programs.netns)
    except ProgramFailed as error:
        said = " ".join(line for line in error.stderr.splitlines() if line and not line.startswith("Try `"))
        line, quoted = _refused_line(text.splitlines(), said)
        raise RestoreRefused(program, line, quoted, said or f"exit status {error.returncode}") from error


def _refused_line(lines: list[str], said: str) -> tuple[int, str]:
    """The line number that `said` names, and that line."""
    numbers = _SAID.findall(said)
    number = int(numbers[-1]) if numbers else 0
    if not 0 < number <= len(lines):
        return 0, ""
    if lines[number - 1] == "COMMIT":  # the nft variant finds a missing chain only then: look for who names it
        blamed = [name for name in _QUOTED.findall(said) if name]
        for earlier in range(number - 1, 0, -1):
            words = lines[earlier - 1].split()
            if "COMMIT" in words:
                break
            if any(name in words for name in blamed):
                return earlier, lines[earlier - 1]
    return number, lines[number - 1]


async def save(programs: Programs, table: str = "") -> str:
    """What is in the kernel, of all tables or one, as iptables-save writes it."""
    argv = (f"{programs.name}-save", *(("-t", table) if table else ()))
    done = await run(argv, timeout=_TIMEOUT, netns=programs.netns)
    return done.stdout.decode(errors="replace")


async def has_chain(programs: Programs, table: str, chain: str) -> bool:
    """Reads that chain alone, which is quick however many rules there are (nft variant)."""
    wait = ("-w", _LOCK_SECONDS) if programs.version >= WAITS else ()
    argv = (programs.name, *wait, "-t", table, "-S", chain)
    return (await run(argv, check=False, netns=programs.netns)).returncode == 0


async def local_addresses(family: Family, netns: str = "") -> tuple[str, ...]:
    """The addresses of all interfaces, in the kernel's order."""
    done = await run(("ip", "-o", "-6" if family == "IPv6" else "-4", "addr", "show"), netns=netns)
    found = re.findall(r"\binet6? ([0-9a-fA-F.:]+)", done.stdout.decode(errors="replace"))
    return tuple(dict.fromkeys(found))


def nft_generation(netns: str = "") -> int:
    """Grows by one with every transaction of anybody in the namespace: iptables-nft, nft, a container runtime.

    0 if the kernel has no nf_tables.
    """
    with Netlink(netns) as link:
        try:
            body = link.ask(netfilter(_NF_TABLES, _GET_GENERATION, 0), "nf_tables: generation")
        except NetlinkRefused:
            return 0
    return int.from_bytes(attributes(body, 4).get(_GENERATION_ID, b""), "big")


def legacy_shape(family: Family, netns: str = "") -> bytes:
    """Where each table's chains begin, how many rules it has, and their size: a rule or chain more or less shows.

    Raises Unavailable if the kernel has no such tables.
    """
    ipv6 = family == "IPv6"
    level = socket.IPPROTO_IPV6 if ipv6 else socket.IPPROTO_IP
    with inside(netns), socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET, socket.SOCK_RAW, 255) as asker:
        return b"".join(_table_info(asker.fileno(), level, table) for table in TABLES)


def _table_info(fd: int, level: int, table: str) -> bytes:
    # Through libc: the option reads the table's name from the buffer it answers in, which Python leaves empty.
    buffer = ctypes.create_string_buffer(table.encode(), _INFO_SIZE)
    size = ctypes.c_uint32(_INFO_SIZE)
    if _libc.getsockopt(fd, level, _GET_INFO, buffer, ctypes.byref(size)):
        said = os.strerror(ctypes.get_errno())
        raise Unavailable(f"iptables-legacy: table {table}: {said}", hint="use the nft variant of iptables")
    return buffer.raw

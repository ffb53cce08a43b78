"""All that the programs of a node say of its rules, addresses and connections, read and never changed."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from clusterip.errors import Unavailable
from clusterip.kernel.run import ProgramFailed, run


class Command(NamedTuple):
    name: str  # how its output is called in an answer
    argv: Sequence[str]


COMMANDS: tuple[Command, ...] = (
    Command("iptables-nft-save", ("iptables-nft-save",)),
    Command("iptables-legacy-save", ("iptables-legacy-save",)),
    Command("ip6tables-nft-save", ("ip6tables-nft-save",)),
    Command("ip6tables-legacy-save", ("ip6tables-legacy-save",)),
    Command("nft", ("nft", "list", "ruleset")),
    Command("ipset", ("ipset", "save")),
    Command("ipvsadm", ("ipvsadm", "-Ln")),
    Command("conntrack", ("conntrack", "-L")),
    Command("ip-addr", ("ip", "-d", "addr")),
    Command("ip-route", ("ip", "route", "show", "table", "all")),
    Command("ip-6-route", ("ip", "-6", "route", "show", "table", "all")),
    Command("ip-rule", ("ip", "rule")),
    Command("sysctl", ("sysctl", "-a")),
)


class Said(NamedTuple):
    name: str
    output: bytes
    why: str  # there is none; "": there is


async def snapshot(netns: str = "") -> list[Said]:
    """Of a network namespace ("": our own), in the order of COMMANDS. A program that is not there or fails says why."""
    return list(await asyncio.gather(*(_said(command, netns) for command in COMMANDS)))


async def _said(command: Command, netns: str) -> Said:
    try:
        done = await run(command.argv, netns=netns)
    except (ProgramFailed, Unavailable) as error:
        return Said(command.name, b"", error.message)
    return Said(command.name, done.stdout, "")

"""Sets of addresses, by the program `ipset`."""

import re

from clusterip.errors import ClusterIPError, Unavailable
from clusterip.kernel.netlink import NEEDS_ROOT
from clusterip.kernel.run import ProgramFailed, run

OLDEST = (6, 0)  # has the kinds of sets that the rules ask
_LINE = re.compile(r"Error in line (\d+): (.*)")
_INSTALL = "apt-get install ipset, or use --proxy-mode nftables, which needs no program"


class SetRefused(ClusterIPError):
    """`line` of the input, from 1; 0 if it did not say. The lines before it have been done."""

    def __init__(self, line: int, quoted: str, said: str) -> None:
        where = f"line {line} of the input: {quoted!r}: " if line else ""
        super().__init__(f"ipset restore: refused {where}{said}")
        self.line = line


async def version(netns: str = "") -> tuple[int, ...]:
    """Raises Unavailable if there is no such program, or it is too old, or the kernel knows no sets."""
    try:
        said = (await run(("ipset", "version"), netns=netns)).stdout.decode(errors="replace")
    except Unavailable as error:
        raise Unavailable("ipset: no such program", hint=_INSTALL) from error
    except ProgramFailed as error:
        said = error.stderr.strip().removeprefix("ipset ") or "it failed"
        hint = NEEDS_ROOT if "not permitted" in said else _INSTALL
        raise Unavailable(f"ipset: {said}", hint=hint) from error
    found = re.search(r"v(\d+)\.(\d+)", said)
    if not found:
        raise Unavailable(f"ipset: does not say its version: {said.strip()!r}", hint=_INSTALL)
    number = (int(found[1]), int(found[2]))
    if number < OLDEST:
        raise Unavailable(f"ipset: version {found[1]}.{found[2]} is too old: 6.0 is the oldest", hint=_INSTALL)
    return number


async def restore(text: str, netns: str = "") -> None:
    """Each line of `text` by itself, up to the first that fails. Raises SetRefused."""
    try:
        await run(("ipset", "restore"), stdin=text.encode(), netns=netns)
    except ProgramFailed as error:
        found = _LINE.search(error.stderr)
        lines = text.splitlines()
        number = int(found[1]) if found else 0
        quoted = lines[number - 1] if 0 < number <= len(lines) else ""
        raise SetRefused(number, quoted, found[2] if found else error.stderr.strip()) from error


async def save(netns: str = "") -> str:
    """All sets and their members, as `ipset save` prints them."""
    return (await run(("ipset", "save"), netns=netns)).stdout.decode(errors="replace")

"""The edge of nftables mode: gives deltas to the kernel, reads back, and sees when others write. No program is run.

Nothing here decides what the rules are.
"""

import asyncio
import errno
import logging

from clusterip.dataplane.nftables import chains as c
from clusterip.dataplane.nftables.compare import Seen, SeenChain, Shape
from clusterip.dataplane.nftables.config import TABLE
from clusterip.dataplane.nftables.delta import Delta, Installed, Transaction, rebuild
from clusterip.dataplane.nftables.encode import messages
from clusterip.dataplane.nftables.expressions import name
from clusterip.errors import Unavailable
from clusterip.kernel import nftables as k
from clusterip.kernel.netlink import NetlinkRefused, attribute, attributes, nested
from clusterip.kernel.nftables import Command, GenerationPassed, Tables, TransactionRefused
from clusterip.services.table import Family

log = logging.getLogger(__name__)

_ATTEMPTS = 1000  # to write between others' transactions


class Generation:
    """Of the namespace's nf_tables, which counts the transactions of everybody, in all families: the rules of both
    families must share one. `epoch` grows whenever somebody else wrote: a reader who saw it stand still since its last
    look at the rules need not look again."""

    def __init__(self) -> None:
        self.epoch = 0
        self._known = -1

    def look(self, tables: Tables) -> int:
        """The epoch, up to date."""
        now = tables.generation()
        if now != self._known:
            self.epoch += 1
            self._known = now
        return self.epoch

    def commit(self, tables: Tables, transaction: list[k.Message]) -> None:
        """Only onto the generation that we know of; so that what others write is never taken for ours."""
        if self._known < 0:
            self.look(tables)
        for _ in range(_ATTEMPTS):
            try:
                tables.commit(transaction, self._known)
            except GenerationPassed:
                self.look(tables)
                continue
            self._known = (self._known + 1) & 0xFFFFFFFF or 1
            return
        raise Unavailable(f"nf_tables: others wrote {_ATTEMPTS} times before we could", hint="nft monitor")


class Rules:
    """One family's table in the kernel. Not for two tasks at a time."""

    def __init__(self, family: Family, generation: Generation | None = None, netns: str = "") -> None:
        """Raises Unavailable."""
        self.family: Family = family
        self.generation = generation or Generation()
        self._tables = Tables(family, netns)

    def __repr__(self) -> str:
        return f"Rules({self.family} epoch={self.generation.epoch})"

    def close(self) -> None:
        self._tables.close()

    async def apply(self, delta: Delta) -> None:
        """Raises TransactionRefused: the transactions before the refused one are then in force."""
        await asyncio.to_thread(self.apply_now, delta)

    async def load(self, load: Delta) -> None:
        """As `apply`; but what is there may be of another make, as after an upgrade, and then has to go first."""
        try:
            await self.apply(load)
        except TransactionRefused as error:
            log.warning("nftables.table.rebuilt family=%s reason=%r", self.family, error.message)
            await self.apply(rebuild(load))

    def apply_now(self, delta: Delta) -> None:
        """As `apply`, for those without an event loop."""
        for transaction in delta.transactions:
            self._commit(transaction)

    def _commit(self, transaction: Transaction) -> None:
        self.generation.commit(self._tables, messages(transaction, self.family))

    async def look(self) -> int:
        """The generation's epoch, up to date; costs microseconds."""
        return self.generation.look(self._tables)

    async def observe(self) -> Installed:
        """Names and sizes: all that a load needs to know."""
        return await asyncio.to_thread(self._observe)

    def _observe(self) -> Installed:
        found_sets, found_chains = self._list_sets(), self._chains()
        if found_chains is None or found_sets is None:
            return Installed()
        return Installed(True, frozenset(found_chains), {_text(s[k.SET_NAME]): _size(s) for s in found_sets})

    async def glance(self) -> Shape:
        """All but the elements."""
        return await asyncio.to_thread(self._glance)

    async def read(self) -> Seen:
        """All of it, every element: hundreds of milliseconds for a hundred thousand."""
        return await asyncio.to_thread(self._read)

    def _glance(self) -> Shape:
        table = self._tables.dump(Command.GET_TABLE, b"", "nf_tables: list tables")
        ours = next((t for t in table or () if _text(t[k.TABLE_NAME]) == TABLE), None)
        found_chains, found_sets = self._chains(), self._list_sets()
        if ours is None or found_chains is None or found_sets is None:
            return Shape()
        dormant = int.from_bytes(ours.get(k.TABLE_FLAGS, b""), "big") & k.TABLE_DORMANT
        rules: dict[str, list[bytes]] = {chain: [] for chain in found_chains}
        for rule in self._tables.dump(Command.GET_RULE, name(k.RULE_TABLE, TABLE), "nf_tables: list rules") or ():
            rules.setdefault(_text(rule[k.RULE_CHAIN]), []).append(rule.get(k.RULE_EXPRESSIONS, b""))
        chains = {chain: SeenChain(hook, tuple(rules[chain])) for chain, hook in found_chains.items()}
        return Shape(True, bool(dormant), chains, {_text(s[k.SET_NAME]): _count(s) for s in found_sets})

    def _read(self) -> Seen:
        shape = self._glance()
        return Seen(shape, {n: self._elements(n) for n in shape.sets if not n.startswith(c.CLIENTS)})

    def _chains(self) -> dict[str, bytes] | None:
        """Hook by name. The kernel lists those of all tables."""
        listed = self._tables.dump(Command.GET_CHAIN, name(k.CHAIN_TABLE, TABLE), "nf_tables: list chains")
        if listed is None:
            return None
        ours = [chain for chain in listed if _text(chain[k.CHAIN_TABLE]) == TABLE]
        return {_text(chain[k.CHAIN_NAME]): _hook(chain) for chain in ours}

    def _list_sets(self) -> list[dict[int, bytes]] | None:
        return self._tables.dump(Command.GET_SET, name(k.SET_TABLE, TABLE), "nf_tables: list sets")

    def _elements(self, known: str) -> dict[bytes, bytes]:
        wanted = name(k.ELEMENTS_TABLE, TABLE) + name(k.ELEMENTS_SET, known)
        found: dict[bytes, bytes] = {}
        for chunk in self._tables.dump(Command.GET_ELEMENT, wanted, f"nf_tables: list elements of {known}") or ():
            for item in k.items(chunk.get(k.ELEMENTS_LIST, b"")):
                element = attributes(item)
                key = attributes(element.get(k.ELEMENT_KEY, b"")).get(k.DATA_VALUE, b"")
                data = attributes(element.get(k.ELEMENT_DATA, b""))
                found[key] = data.get(k.DATA_VALUE) or data.get(k.DATA_VERDICT, b"")
        return found


def _text(payload: bytes) -> str:
    return payload.rstrip(b"\0").decode(errors="replace")


def _hook(chain: dict[int, bytes]) -> bytes:
    """As `encode.hook_bytes` writes it."""
    found = chain.get(k.CHAIN_HOOK)
    if found is None:
        return b""
    place = _some(attributes(found), k.HOOK_NUMBER, k.HOOK_PRIORITY)
    return nested(k.CHAIN_HOOK, place) + _some(chain, k.CHAIN_POLICY, k.CHAIN_TYPE)


def _some(found: dict[int, bytes], *kinds: int) -> bytes:
    return b"".join(attribute(kind, found.get(kind, b"")) for kind in kinds)


def _size(found: dict[int, bytes]) -> int:
    description = attributes(found.get(k.SET_DESCRIPTION, b""))
    return int.from_bytes(description.get(k.DESCRIPTION_SIZE, b""), "big")


def _count(found: dict[int, bytes]) -> int | None:
    count = found.get(k.SET_COUNT)
    return None if count is None else int.from_bytes(count, "big")


async def clean_up(family: Family, table: str = TABLE, netns: str = "") -> bool:
    """Take a table away, whatever is in it; True if it was there. Where there is no nf_tables there is nothing.

    Raises ClusterIPError.
    """
    return await asyncio.to_thread(_clean_up, family, table, netns)


def _clean_up(family: Family, table: str, netns: str) -> bool:
    with Tables(family, netns) as tables:
        try:
            listed = tables.dump(Command.GET_TABLE, b"", "nf_tables: list tables") or ()
            if not any(_text(found[k.TABLE_NAME]) == table for found in listed):
                return False
            what = f"delete table {table} ({family})"
            tables.commit([k.Message(Command.DELETE_TABLE, name(k.TABLE_NAME, table), 0, what)])
        except NetlinkRefused as error:
            if error.errno in (errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP):  # gone meanwhile; no such kernel
                return False
            raise
        return True

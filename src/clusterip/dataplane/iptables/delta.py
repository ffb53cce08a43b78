"""What to feed `iptables-restore --noflush --counters`, given what changed. Pure.

A load writes everything, from whatever is there. A delta writes one change and leaves the rest alone: it never
rewrites a shared chain, single rules go in by -I and out by -D, because iptables-nft pays for every line it reads
and for every chain a line names.

Order, so that no packet meets a gap: refusals come in, then the nat table changes in one transaction, then refusals
that are no longer true go. A packet that is sent to a backend never meets a refusal, so both may stand at once. Only
a packet that is not served before or not after may be dropped in between, and it never goes on as if it were nobody's.

One COMMIT is one transaction. Where a block fails, the blocks before it stand: they leave nothing but chains that
nobody jumps to, or what was there before.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from clusterip.dataplane.iptables import names
from clusterip.dataplane.iptables.compile import Line, OwnChain, Piece
from clusterip.dataplane.iptables.config import Config
from clusterip.dataplane.iptables.program import (
    NONE,
    Counts,
    FixedChain,
    Jump,
    count,
    fixed,
    fixed_counts,
    jumps,
    shared_lines,
)
from clusterip.services.tracker import Change


class Variant(Enum):
    """Which `iptables-restore`. The nft one takes more than quadratic time in the size of one block."""

    NFT = "nft"
    LEGACY = "legacy"


# Services in one block of a load, nft variant: the program's time grows with the square of a block, the kernel's with
# the number of blocks. Measured, 2,000 and 6,000 Services x 10: a fifth less than with 100, as much less as with 25.
BLOCK_PIECES = 50
BLOCK_CHANGES = 100  # in one block of a delta, nft variant: each makes the kernel check all that leads anywhere
BLOCK_STALE = 1000  # chains removed in one block


@dataclass(frozen=True, slots=True)
class Installed:
    """What was found in the kernel; empty: nothing of ours."""

    chains: frozenset[tuple[str, str]] = frozenset()  # (table, chain), KUBE-* only
    jumps: frozenset[Jump] = frozenset()  # ours, from built-in chains


@dataclass(frozen=True, slots=True)
class Delta:
    """`text` is one input for `iptables-restore --noflush --counters`; "": there is nothing to do."""

    text: str = ""
    written: Counts = NONE  # rules in `text`, for the metric iptables_last
    change: Counts = NONE  # what is added to the number of rules in the kernel, for iptables_total
    stale: frozenset[str] = frozenset()  # nat chains that nobody refers to any more and that `text` leaves standing


def installed(save: str, config: Config) -> Installed:
    """What an `iptables-save` of all tables shows of ours."""
    wanted = {f"-A {j.chain} {j.spec}": j for j in jumps(config)}
    table = ""
    chains: set[tuple[str, str]] = set()
    found: set[Jump] = set()
    for line in save.splitlines():
        match line[:1]:
            case "*":
                table = line[1:].strip()
            case ":" if line.startswith(":KUBE-"):
                chains.add((table, line[1:].split(" ", 1)[0]))
            case "-" if "-j KUBE-" in line and (jump := wanted.get(line)) and jump.table == table:
                found.add(jump)
    return Installed(frozenset(chains), frozenset(found))


def load(pieces: Iterable[Piece], installed: Installed, config: Config, variant: Variant) -> Delta:
    """Everything. `change` counts from zero: it is the number of rules afterwards.

    Service and endpoint chains come first, in blocks, unreferenced; then the chains that lead to them, in one block;
    then chains that nobody uses any more are removed.
    """
    ordered = sorted(pieces, key=lambda p: p.key)
    size = BLOCK_PIECES if variant is Variant.NFT else max(1, len(ordered))
    # What a packet meets first changes all at once: IPVS mode may be in force, in chains of these names.
    heads = (names.SERVICES, names.NODE_PORTS, names.POSTROUTING)
    first = [c for c in fixed(config) if c.table == "nat" and c.name not in heads]
    last = [c for c in fixed(config) if c.table == "nat" and c not in first]
    inserts = [j for j in jumps(config) if j not in installed.jumps]
    own = [[c for p in ordered[i : i + size] for c in p.chains] for i in range(0, len(ordered), size)]
    used = {c.name for chains in own for c in chains}
    stale = [c for table, c in installed.chains if table == "nat" and names.is_own_chain(c) and c not in used]
    mangle = [c for c in fixed(config) if c.table == "mangle"]
    filters = [c for c in fixed(config) if c.table == "filter"]
    text = (
        _block("mangle", _write_fixed(mangle, {}))
        + _block("filter", _write_fixed(filters, shared_lines(ordered, "filter")) + _insert(inserts, "filter"))
        + _block("nat", _write_fixed(first, {}))
        + "".join(_block("nat", _write_own(chains)) for chains in own)
        + _block("nat", _write_fixed(last, shared_lines(ordered, "nat")) + _insert(inserts, "nat"))
        + remove_chains(stale)
    )
    total = sum((count(p) for p in ordered), fixed_counts(config))
    return Delta(text, written=total, change=total)


def delta(
    changes: Iterable[Change[Piece]],
    config: Config,
    stale: frozenset[str] = frozenset(),
    variant: Variant = Variant.NFT,
) -> Delta:
    """Only what `changes` need. `stale` is what earlier deltas left standing.

    The nft variant gets a block for every hundred changes, each with all that belongs to them; the legacy one writes
    the whole table at every COMMIT, so it gets one.

    A large cluster defers the removal of stale chains: the caller passes `Delta.stale` on, and calls `sweep` now
    and then.
    """
    pairs = [(c.before, c.after) for c in changes if c.before != c.after]
    size = BLOCK_CHANGES if variant is Variant.NFT else max(1, len(pairs))
    parts = [pairs[i : i + size] for i in range(0, len(pairs), size)]
    used = {c.name for _, after in pairs if after for c in after.chains}
    unused = (stale | {c.name for before, _ in pairs if before for c in before.chains}) - used
    drop = frozenset() if config.large_cluster else unused
    filter_out, filter_in = _moves(pairs, "filter")
    text = (
        _block("filter", [f"-I {line.chain} {line.spec}\n" for line in reversed(filter_in)])
        + "".join(_block("nat", lines) for lines in _nat_blocks(parts, drop))
        + remove_chains(drop & stale)
        + _block("filter", [f"-D {line.chain} {line.spec}\n" for line in filter_out])
    )
    written = sum(c.rules.count("\n") for c in _changed_chains(pairs)) + len(_moves(pairs, "nat")[1])
    return Delta(
        text,
        written=Counts(written, len(filter_in)),
        change=sum((count(after) - count(before) for before, after in pairs), NONE),
        stale=unused - drop,
    )


_Pairs: TypeAlias = Sequence[tuple[Piece | None, Piece | None]]


def _nat_blocks(parts: Sequence[_Pairs], drop: frozenset[str]) -> list[list[str]]:
    """One part is one transaction. Of several, all come before any goes: an address may move from one Service to
    another, and between two transactions it must be somebody's."""
    if len(parts) == 1:
        return [_arrive(parts[0]) + _leave(parts[0], drop)]
    return [_arrive(part) for part in parts] + [_leave(part, drop) for part in parts]


def _arrive(pairs: _Pairs) -> list[str]:
    """Chains are written before they are referred to."""
    write = _changed_chains(pairs)
    return [
        *(f":{c.name} - [0:0]\n" for c in write),
        *(c.rules for c in write),
        *(f"-I {line.chain} {line.spec}\n" for line in reversed(_moves(pairs, "nat")[1])),
    ]


def _leave(pairs: _Pairs, drop: frozenset[str]) -> list[str]:
    """Chains go when nothing refers to them."""
    gone = sorted(drop & {c.name for before, _ in pairs if before for c in before.chains})
    return [
        *(f"-D {line.chain} {line.spec}\n" for line in _moves(pairs, "nat")[0]),
        *(f":{name} - [0:0]\n" for name in gone),
        *_delete(gone),
    ]


def _changed_chains(pairs: _Pairs) -> list[OwnChain]:
    changed = []
    for before, after in pairs:
        had = {c.name: c for c in before.chains} if before else {}
        changed += [c for c in (after.chains if after else ()) if had.get(c.name) != c]
    return changed


def sweep(stale: Iterable[str]) -> Delta:
    """Remove chains of the nat table that nobody refers to. One that is gone already is no error."""
    return Delta(remove_chains(stale))


def cleanup(installed: Installed) -> Delta:
    """Take everything of ours away, but KUBE-FIREWALL: kubelet wants it too."""
    blocks = []
    for table in ("mangle", "filter", "nat"):
        out = [f"-D {j.chain} {j.spec}\n" for j in sorted(installed.jumps) if j.table == table]
        out = [line for line in out if not line.endswith(f"-j {names.FIREWALL}\n")]
        ours = sorted(c for t, c in installed.chains if t == table and c in _REMOVABLE[table])
        blocks.append(_block(table, [*out, *(f":{c} - [0:0]\n" for c in ours), *_delete(_unmarked(ours))]))
    own = [c for table, c in installed.chains if table == "nat" and names.is_own_chain(c)]
    mark = _delete([names.MARK_MASQ] if ("nat", names.MARK_MASQ) in installed.chains else [])
    return Delta("".join(blocks) + remove_chains(own) + _block("nat", mark))


_REMOVABLE = {
    "mangle": {names.CANARY},
    "nat": {names.SERVICES, names.NODE_PORTS, names.POSTROUTING, names.MARK_MASQ, names.CANARY},
    "filter": {
        names.SERVICES,
        names.EXTERNAL_SERVICES,
        names.FORWARD,
        names.NODE_PORTS,
        names.PROXY_FIREWALL,
        names.CANARY,
    },
}


def _unmarked(chains: Sequence[str]) -> list[str]:
    """Without the chain that every Service's chains refer to: it goes after them."""
    return [c for c in chains if c != names.MARK_MASQ]


def _moves(pairs: Iterable[tuple[Piece | None, Piece | None]], table: str) -> tuple[list[Line], list[Line]]:
    """Lines of shared chains that go, and lines that come."""
    out: list[Line] = []
    come: list[Line] = []
    for before, after in pairs:
        had, has = (_lines(before, table), _lines(after, table))
        out += [line for line in had if line not in has]
        come += [line for line in has if line not in had]
    return out, come


def _lines(piece: Piece | None, table: str) -> tuple[Line, ...]:
    if piece is None:
        return ()
    return piece.nat if table == "nat" else piece.filter


def remove_chains(chains: Iterable[str]) -> str:
    """Blocks that flush and delete own chains, those that refer to others first."""
    ordered = sorted(chains, key=lambda c: (names.OWN_PREFIXES.index(f"{c.rsplit('-', 1)[0]}-"), c))
    parts = [ordered[i : i + BLOCK_STALE] for i in range(0, len(ordered), BLOCK_STALE)]
    return "".join(_block("nat", [*(f":{c} - [0:0]\n" for c in part), *_delete(part)]) for part in parts)


def _delete(chains: Iterable[str]) -> list[str]:
    return [f"-X {c}\n" for c in chains]


def _write_fixed(chains: Sequence[FixedChain], lines: dict[str, list[str]]) -> list[str]:
    text = [f":{c.name} - [0:0]\n" for c in chains]
    for chain in chains:
        # By descending target: iptables-nft keeps the chains it has met in a sorted list that it searches from its
        # head, and this way it always stops there. The sort is stable: lines to one target keep their order.
        specs = sorted(lines.get(chain.name, ()), key=_target, reverse=True)
        text += [f"-A {chain.name} {spec}\n" for spec in (*specs, *chain.tail)]
    return text


def _target(spec: str) -> str:
    return spec.rpartition(" -j ")[2]


def _write_own(chains: Sequence[OwnChain]) -> list[str]:
    return [f":{c.name} - [0:0]\n" for c in chains] + [c.rules for c in chains]


def _insert(wanted: Iterable[Jump], table: str) -> list[str]:
    """Each goes on top, so the one that is to be the first comes last."""
    return [f"-I {j.chain} {j.spec}\n" for j in reversed([*wanted]) if j.table == table]


def _block(table: str, lines: Sequence[str]) -> str:
    return f"*{table}\n{''.join(lines)}COMMIT\n" if lines else ""

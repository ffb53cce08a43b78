"""A set of taken numbers that finds the next free one at once, in a range of 2**64 as in one of eight."""

BITS = 8
FANOUT = 1 << BITS
FULL = (1 << FANOUT) - 1
LEVELS = 17  # BITS * LEVELS >= 129: every IPv6 address, and the number behind the last


class Taken:
    """A sparse tree of bit masks. Level 0 says which numbers are taken; level k says which groups of level k-1 are
    full. Memory grows with what is taken, time with the depth: `next_free` never walks over taken numbers."""

    def __init__(self) -> None:
        self._levels: list[dict[int, int]] = [{} for _ in range(LEVELS)]
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return bool(self._levels[0].get(number >> BITS, 0) >> (number % FANOUT) & 1)

    def add(self, number: int) -> bool:
        """False if it was taken already."""
        if number in self:
            return False
        self._count += 1
        for level in self._levels:
            group = number >> BITS
            mask = level.get(group, 0) | 1 << (number % FANOUT)
            level[group] = mask
            if mask != FULL:
                break
            number = group
        return True

    def discard(self, number: int) -> bool:
        """False if it was free already."""
        if number not in self:
            return False
        self._count -= 1
        for level in self._levels:
            group = number >> BITS
            before = level[group]
            mask = before & ~(1 << (number % FANOUT))
            if mask:
                level[group] = mask
            else:
                del level[group]
            if before != FULL:
                break
            number = group
        return True

    def next_free(self, number: int) -> int:
        """The smallest free number >= `number`."""
        return self._next(0, number)

    def _next(self, depth: int, number: int) -> int:
        level, group = self._levels[depth], number >> BITS
        free = ~level.get(group, 0) & FULL & (FULL << (number % FANOUT))
        if not free:
            group = self._next(depth + 1, group + 1)
            free = ~level.get(group, 0) & FULL
        return group << BITS | ((free & -free).bit_length() - 1)

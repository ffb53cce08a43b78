"""How often to ask, and how far counts may be from equal, so that a right cluster is called wrong once in 1e9 runs.

Each connection is one draw, all backends alike, independent of the others; that is all that is assumed.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

ALARM = 1e-9  # chance of a false alarm in a whole run
ROUNDS = 3  # of a run


def tries(backends: int, pools: int) -> int:
    """Connections after which each of so many backends has answered, in each of so many pools, with half of what a
    round may spend on false alarms."""
    if backends < 2:
        return 1
    each = ALARM / 2 / ROUNDS / pools / backends
    return math.ceil(math.log(each) / math.log1p(-1 / backends))


def shares(counts: Iterable[Mapping[str, int]]) -> list[str]:
    """What is not equal: `counts` are those of the pools, by backend. Pools of the same size are added up, first
    backend with first, by their order. Bounds are Bernstein's."""
    sums: dict[int, Counter[int]] = {}
    for pool in counts:
        sums.setdefault(len(pool), Counter()).update(dict(enumerate(pool[name] for name in sorted(pool))))
    places = sum(sums)  # each is judged by itself, with its part of what a round may spend
    spent = math.log(max(places, 1) * 2 * ROUNDS * 2 / ALARM)
    found = []
    for size, by_place in sorted(sums.items()):
        total = by_place.total()
        variance = total / size * (1 - 1 / size)
        bound = spent / 3 + math.sqrt((spent / 3) ** 2 + 2 * variance * spent)
        found += [
            f"backend {place + 1} of {size}: {count} of {total} connections, {total / size:.0f} ± {bound:.0f} expected"
            for place, count in sorted(by_place.items())
            if size > 1 and abs(count - total / size) > bound
        ]
    return found

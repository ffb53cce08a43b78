"""Looking a value up in a set or map of nftables."""

from collections.abc import Sequence

from clusterip.diagnosis.walk.nft_values import PROTOCOLS, Known, Missing, Scalar, constant, covers
from clusterip.rulesets.nft import values as n


class Index:
    """Elements that are one value, by it; the others, ranges and prefixes, tried in turn; "*" last."""

    def __init__(self, elements: Sequence[n.Element]) -> None:
        self.exact: dict[Known, n.Element] = {}
        self.wide: list[n.Element] = []
        self.rest: n.Element | None = None
        self._partial: dict[tuple[int, ...], set[tuple[Scalar, ...]]] = {}
        for element in elements:
            if isinstance(element.key, n.Any):
                self.rest = element
            elif (key := _exact(element.key)) is not None:
                self.exact[key] = element
            else:
                self.wide.append(element)

    def find(self, value: Known) -> n.Element | None:
        for one in value if isinstance(value, frozenset) else (value,):
            found = self.exact.get(one)
            if found is not None:
                return found
        return next((e for e in self.wide if covers(e.key, value)), self.rest)

    def may_hold(self, parts: Sequence[Scalar | Missing]) -> bool:
        """Whether any element agrees with what is known of a value."""
        if self.rest is not None:
            return True
        places = tuple(at for at, part in enumerate(parts) if not isinstance(part, Missing))
        if tuple(parts[at] for at in places) in self._parts_at(places):
            return True
        return any(
            isinstance(e.key, n.Concat)
            and all(
                isinstance(p, Missing) or covers(k, p) is not False for k, p in zip(e.key.parts, parts, strict=False)
            )
            for e in self.wide
        )

    def _parts_at(self, places: tuple[int, ...]) -> set[tuple[Scalar, ...]]:
        """Of all elements that are one value, what they have at these places."""
        found = self._partial.get(places)
        if found is None:
            rows = [key for key in self.exact if isinstance(key, tuple) and len(key) > max(places, default=-1)]
            found = self._partial[places] = {tuple(row[at] for at in places) for row in rows}
        return found


def _exact(key: n.Expression) -> Known | None:
    if isinstance(key, n.Concat):
        parts = [_exact(part) for part in key.parts]
        return None if None in parts else tuple(p for p in parts if isinstance(p, (str, int)))
    if isinstance(key, (n.Prefix, n.Range)) or (isinstance(key, n.Quoted) and key.text.endswith("*")):
        return None
    found = constant(key)
    return found if isinstance(found, (str, int)) else None


def by_name(elements: Sequence[n.Element], types: Sequence[str]) -> Sequence[n.Element]:
    """With the names of protocols where they are given by number, as `nft -n` does."""
    places = [at for at, kind in enumerate(types) if kind in ("inet_proto", "meta l4proto", "ip protocol")]
    if not places:
        return elements
    return [n.Element(_named(e.key, places), e.value, e.comment, e.timeout, e.expires, e.counters) for e in elements]


def _named(key: n.Expression, places: Sequence[int]) -> n.Expression:
    if isinstance(key, n.Number) and 0 in places:
        return n.Word(PROTOCOLS.get(key.value, str(key.value)))
    if isinstance(key, n.Concat):
        return n.Concat(tuple(_named(p, [0]) if at in places else p for at, p in enumerate(key.parts)))
    return key
